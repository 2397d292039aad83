"""Engines that can replay a recorded case: functions from a case to the result tables of `tests/oracle.py`."""

import numpy as np

from pipeline import schema
from pipeline.kernel import layout
from pipeline.replay.policies.vllm import Settings
from pipeline.replay.state import State, StepCost, TraceBatch
from tests import oracle
from tests.cases import Case


def twin_engine(case: Case) -> oracle.Result:
    """Replay a case with the slow twin."""
    return oracle.run(requests(case), case.engine, oracle.linear_duration(case.a_ns, case.b_ns, case.c_ns), check=False)


def requests(case: Case) -> list[oracle.Request]:
    """Return the requests of a case as the twin takes them."""
    return [
        oracle.Request(
            arrival_ns=int(case.arrival_ns[row]),
            prompt_len=int(case.input_tokens[row]),
            max_tokens=int(case.max_tokens[row]),
            priority=int(case.priority[row]),
            key=oracle.trace_key(
                row,
                case.engine.block_size,
                case.hashes(row).tolist(),
                int(case.prefix_block_tokens[row]),
                int(case.prefix_tokens[row]),
            ),
        )
        for row in range(len(case.arrival_ns))
    ]


def kernel_engine(case: Case) -> oracle.Result:
    """Replay a case with the compiled engine, visit by visit, with every decision recorded."""
    return run_kernel(settings(case.engine, decisions=True, audit=True), cost(case), [batch(case)])


def shortcut_engine(case: Case) -> oracle.Result:
    """Replay a case with the compiled engine's shortcut; it has no decision rows."""
    return run_kernel(settings(case.engine, audit=True), cost(case), [batch(case)])


def settings(engine: oracle.Engine, **more) -> Settings:
    """Return the twin's settings as the compiled engine takes them."""
    values = {name: getattr(engine, name) for name in oracle.Engine.__dataclass_fields__}
    return Settings(scheduling_policy=values.pop("policy"), **values, **more)


def cost(case: Case) -> StepCost:
    engine = case.engine
    return StepCost.whole(case.a_ns, case.b_ns, case.c_ns, engine.max_num_batched_tokens + engine.max_num_seqs)


def batch(case: Case) -> TraceBatch:
    """Return the requests of a case in order of arrival, as recorded cases and traces have them."""
    assert (np.diff(case.arrival_ns) >= 0).all(), "a case out of order of arrival"
    return TraceBatch(
        arrival_ns=case.arrival_ns,
        input_tokens=case.input_tokens,
        output_tokens=case.max_tokens,
        end_outcome=np.full(len(case.arrival_ns), layout.FINISHED),
        priority=case.priority,
        prefix_tokens=case.prefix_tokens,
        prefix_block_tokens=case.prefix_block_tokens,
        hashes=case.prefix_hashes,
        hash_offsets=case.prefix_offsets,
    )


_DRAINS = {layout.STEPS_FULL: "steps", layout.GAPS_FULL: "gaps", layout.DECISIONS_FULL: "decisions"}


def run_kernel(settings: Settings, cost: StepCost, batches: list[TraceBatch], **sizes: int) -> oracle.Result:
    """Run one compiled engine to its end, buffers drained as the driver does."""
    return run_fleet(settings, cost, batches, 1, **sizes)[0]


def run_fleet(
    settings: Settings, cost: StepCost, batches: list[TraceBatch], replicas: int, **sizes: int
) -> list[oracle.Result]:
    """Run so many replicas to their end; return one result each, `requests` of all of them in every one."""
    state = State(settings, cost, replicas, **sizes)
    done: list[np.ndarray] = []
    kept: list[dict[str, list]] = [{name: [] for name in _DRAINS.values()} for _ in range(replicas)]
    batches = list(batches)
    while True:
        reason = state.run()
        stopped = int(state.fleet.stopped)
        if reason in _DRAINS:
            kept[stopped][_DRAINS[reason]].append(state.drain(_DRAINS[reason], stopped))
        elif reason == layout.NEED_TRACE:
            done.append(state.take_done())
            if batches:
                state.load(batches.pop(0))
            if not batches:
                state.complete()
        elif reason in (layout.TRACE_DONE, layout.MAX_STEPS):
            break
    for replica in range(replicas):
        for name in _DRAINS.values():
            kept[replica][name].append(state.drain(name, replica))
    for batch in batches:  # only where the last step cut the replay short: rows that were never asked for
        done.append(state.take_done())
        state.load(batch)
    state.settle()
    done.append(state.take_done(everything=True))
    results = []
    for replica in range(replicas):
        tables = {name: np.concatenate(parts) for name, parts in kept[replica].items()}
        if reason == layout.MAX_STEPS:
            # The twin notes a gap when its token is delivered; the cut leaves the last steps in flight.
            engine = state.engines[replica]
            tables["gaps"] = tables["gaps"][tables["gaps"]["step"] < engine.steps - engine.in_flight]
        result = _result({"requests": np.concatenate(done), **tables}, bool(state.engines.stalled[replica]))
        if not settings.decisions:
            result.decisions = {}
        results.append(result)
    return results


def _result(tables: dict[str, np.ndarray], stalled: bool) -> oracle.Result:
    requests, steps, decisions = (_columns(tables[name]) for name in ("requests", "steps", "decisions"))
    codes = requests["outcome"]
    requests["outcome"] = np.array([schema.OUTCOMES[code - 1] if code else "" for code in codes], dtype=object)
    requests["output_tokens"] = requests["known_tokens"] - requests["input_tokens"]
    admitting = steps["admitted"] > 0
    place = np.searchsorted(steps["start_ns"][admitting], requests["first_scheduled_ns"])
    started = requests["first_scheduled_ns"] != oracle.NONE
    requests["first_scheduled_step"] = np.where(
        started, np.append(steps["step"][admitting], oracle.NONE)[np.where(started, place, -1)], oracle.NONE
    )
    # A step's preemptions come last in recorded tables.
    order = np.lexsort((np.arange(len(decisions["step"])), decisions["event"] == layout.LOST, decisions["step"]))
    decisions = {name: column[order] for name, column in decisions.items()}
    steps["prefill_area"] = steps.pop("prefill_area2") / 2
    return oracle.Result(requests, steps, decisions, _columns(tables["gaps"]), stalled)


def _columns(rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: rows[name].astype(np.int64) for name in rows.dtype.names}


ENGINES = {"twin": twin_engine, "kernel": kernel_engine, "shortcut": shortcut_engine}
DEFAULT = "kernel"
