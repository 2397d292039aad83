"""Cases through the compiled engine: requests in, tables in recorded names out."""

import numpy as np

from pipeline.kernel import layout
from pipeline.replay.policies.base import PolicySettings
from pipeline.replay.state import State, StepCost, TraceBatch
from tests.policies import base

_DRAINS = {layout.STEPS_FULL: "steps", layout.GAPS_FULL: "gaps", layout.DECISIONS_FULL: "decisions"}
# columns of a batch with an entry for each request
ROWS = (
    "arrival_ns", "input_tokens", "output_tokens", "end_outcome", "priority", "prefix_tokens", "prefix_block_tokens",
    "max_tokens", "tenant", "ignore_eos",
)  # fmt: skip
ENDED_WELL = (layout.FINISHED, layout.MAX_MODEL_LEN, layout.REJECTED)


def batch(
    table: base.Table, lengths: list[list[int]] | None = None, stated: np.ndarray | int = base.NONE
) -> TraceBatch:
    """Return requests as the compiled engine takes them: one sample of max_tokens, or samples of the given lengths.

    stated : the limit of the answer that each request states
    """
    rows = len(table["arrival_ns"])
    more = {}
    if lengths is not None:
        more = {
            "lengths": np.array([tokens for row in lengths for tokens in row], np.int32),
            "length_offsets": np.append(0, np.cumsum([len(row) for row in lengths])),
        }
    return TraceBatch(
        arrival_ns=table["arrival_ns"],
        input_tokens=table["prompt_len"],
        output_tokens=table["max_tokens"] if lengths is None else np.array([max(row) for row in lengths]),
        end_outcome=np.full(rows, layout.FINISHED),
        priority=table.get("priority", np.zeros(rows, np.int64)),
        prefix_tokens=np.zeros(rows, np.int64),
        prefix_block_tokens=np.ones(rows, np.int64),
        hashes=np.zeros(0, np.uint64),
        hash_offsets=np.zeros(rows + 1, np.int64),
        max_tokens=stated,
        **more,
    )


def pieces(whole: TraceBatch, rows: int) -> list[TraceBatch]:
    """Cut requests into batches of so many rows."""
    found = []
    for first in range(0, len(whole), rows):
        part = slice(first, first + rows)
        values = {name: getattr(whole, name)[part] for name in ROWS if isinstance(getattr(whole, name), np.ndarray)}
        count = len(values["arrival_ns"])
        offsets = whole.hash_offsets[first : first + count + 1]
        values |= {"hashes": whole.hashes[offsets[0] : offsets[-1]], "hash_offsets": offsets - offsets[0]}
        if whole.lengths is not None and whole.length_offsets is not None:
            offsets = whole.length_offsets[first : first + count + 1]
            values |= {"lengths": whole.lengths[offsets[0] : offsets[-1]], "length_offsets": offsets - offsets[0]}
        found.append(TraceBatch(**values))
    return found


def replay(settings: PolicySettings, cost: StepCost, batches: list[TraceBatch], **sizes: int) -> dict:
    """Run one replica to its end.

    Returns arrays of records `requests`, `steps`, `own` (the policy's columns beside steps), `gaps`, `decisions`,
    and `state` as it was left.
    """
    state = State(settings, cost, **sizes)
    kept: dict[str, list] = {name: [] for name in ("requests", "steps", "own", "gaps", "decisions")}
    coming = iter(batches)
    reason = None
    while reason not in (layout.TRACE_DONE, layout.MAX_STEPS):
        reason = state.run()
        if reason == layout.NEED_TRACE:
            kept["requests"].append(state.take_done())
            following = next(coming, None)
            state.complete() if following is None else state.load(following)
        elif reason in _DRAINS:
            _take(state, kept, _DRAINS[reason])
    for name in _DRAINS.values():
        _take(state, kept, name)
    for rest in coming:  # only where the last step cut the replay short
        state.load(rest)
    state.settle()
    kept["requests"].append(state.take_done(everything=True))
    return {name: np.concatenate(parts) for name, parts in kept.items() if parts} | {"state": state}


def _take(state: State, kept: dict, name: str) -> None:
    if name == "steps" and hasattr(state.parts, "own_columns"):
        kept["own"].append(state.own_columns(0))
    kept[name].append(state.drain(name, 0))


def steps(result: dict) -> base.Table:
    """Return the recorded columns that every policy has."""
    rows = result["steps"]
    tokens = rows["prefill_tokens"] + rows["decode_tokens"]
    return {
        "step": rows["step"], "t_sched_ns": rows["scheduled_ns"], "dur_ns": rows["duration_ns"],
        "n_running": rows["running"], "n_waiting": rows["waiting"], "n_sched": rows["scheduled"], "n_tokens": tokens,
        "prefill_tokens": rows["prefill_tokens"], "decode_tokens": rows["decode_tokens"],
        "ctx_tokens": rows["context_tokens"], "n_admitted": rows["admitted"], "n_resumed": rows["resumed"],
        "n_preempted": rows["preempted"], "free_blocks": rows["free_blocks"],
    }  # fmt: skip


def schedule(result: dict, events: dict[int, int]) -> base.Table:
    """Return the decisions; events: recorded code by the kernel's."""
    rows = result["decisions"]
    return {
        "step": rows["step"], "pos": rows["position"], "req": rows["request"],
        "event": np.array([events[code] for code in rows["event"].tolist()], np.int64),
        "n_sched": rows["scheduled_tokens"], "n_computed": rows["computed_tokens"],
        "is_prefill": rows["is_prefill"] != 0, "samples": rows["samples"] != 0, "hit_tokens": rows["hit_tokens"],
    }  # fmt: skip


def outcomes(result: dict, statuses: dict[int, str]) -> base.Table:
    """Return what became of the requests; statuses: recorded status by the kernel's outcome.

    A request that was dropped unserved ended, in a recording, as it was dropped.
    """
    rows, taken, decisions = result["requests"], result["steps"], result["decisions"]
    first = np.full(len(rows), base.NONE)
    started = rows["first_scheduled_ns"] != base.NONE
    busy = taken[taken["admitted"] > 0]
    first[started] = busy["step"][np.searchsorted(busy["start_ns"], rows["first_scheduled_ns"][started])]
    ended = np.isin(rows["outcome"], ENDED_WELL)
    finish_step = np.where(ended, rows["finish_step"], base.NONE)
    finish_ns = np.where(ended, rows["finish_ns"], base.NONE)
    for drop in decisions[decisions["event"] == layout.DROPPED]:
        at = taken[drop["step"] - taken["step"][0]]
        finish_step[drop["request"]], finish_ns[drop["request"]] = at["step"], at["scheduled_ns"]
    return {
        "out_first_sched_step": first, "out_first_sched_ns": rows["first_scheduled_ns"],
        "out_first_token_ns": rows["first_token_ns"], "out_finish_step": finish_step, "out_finish_ns": finish_ns,
        "out_n_output": rows["known_tokens"] - rows["input_tokens"], "out_n_preempt": rows["preemptions"],
        "out_computed_tokens": rows["computed_tokens"],
        "out_status": np.array([statuses[code] for code in rows["outcome"].tolist()], object),
    }  # fmt: skip
