"""Recorded cases of the real vLLM scheduler: read from disk, and turned into what an engine takes.

A case is a folder with `config.json`, `requests.parquet`, `steps.parquet` and `schedule.parquet`; a bundle holds
many small ones in the same files, told apart by a column `case`. Prompts are given as segments of token
streams. The engines want block identities instead, so each request gets `prefix_hashes` at the engine's own
block size, over the prompt and all it may generate. They are numbers given out one by one, not hashes: equal
content has an equal number and no two contents share one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests import oracle
from tests.policies import base
from tests.policies.base import NotACaseError

FILES = ("config.json", "requests.parquet", "steps.parquet", "schedule.parquet")
GENERATED = 2**40  # stream of the tokens that request r generates: GENERATED + r

# recorded column -> column of the engines' tables
STEP_NAMES = {
    "step": "step",
    "t_sched_ns": "scheduled_ns",
    "t_start_ns": "start_ns",
    "dur_ns": "duration_ns",
    "n_running": "running",
    "n_waiting": "waiting",
    "n_sched": "scheduled",
    "prefill_tokens": "prefill_tokens",
    "decode_tokens": "decode_tokens",
    "ctx_tokens": "context_tokens",
    "n_admitted": "admitted",
    "n_resumed": "resumed",
    "n_preempted": "preempted",
    "hit_tokens": "hit_tokens",
    "free_blocks": "free_blocks",
    "cached_blocks": "cached_blocks",
    "evicted_blocks": "evicted_blocks",
    "new_blocks": "new_blocks",
    "new_blocks_crc": "new_blocks_crc",
}
DECISION_NAMES = {
    "step": "step",
    "pos": "position",
    "req": "request",
    "n_sched": "scheduled_tokens",
    "n_computed": "computed_tokens",
    "event": "event",
    "is_prefill": "is_prefill",
    "samples": "samples",
    "hit_tokens": "hit_tokens",
}
REQUEST_NAMES = {
    "arrival_ns": "arrival_ns",
    "prompt_len": "input_tokens",
    "out_status": "outcome",
    "out_first_sched_step": "first_scheduled_step",
    "out_first_sched_ns": "first_scheduled_ns",
    "out_first_token_ns": "first_token_ns",
    "out_finish_step": "finish_step",
    "out_finish_ns": "finish_ns",
    "out_n_output": "output_tokens",
    "out_n_preempt": "preemptions",
    "out_cached_tokens": "cached_tokens",
    "out_cached_tokens_resume": "resumed_cached_tokens",
    "out_computed_tokens": "computed_tokens",
}
OUTCOMES = {"length": "finished"}  # other recorded statuses have our own names


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded case: what went in, and what the real scheduler made of it.

    All request arrays have one entry per request, in row order. `prefix_hashes` is flat: those of request r are
    `prefix_hashes[prefix_offsets[r]:prefix_offsets[r + 1]]`, the last one over a partial block where prefix_tokens
    is no multiple of the block size. The expected tables have the engines' column names.
    """

    name: str
    engine: oracle.Engine
    a_ns: int  # step time: a + b * tokens + c * context tokens
    b_ns: int
    c_ns: int
    arrival_ns: np.ndarray  # int64
    input_tokens: np.ndarray  # int32
    max_tokens: np.ndarray  # int32
    priority: np.ndarray  # int32
    prefix_hashes: np.ndarray  # uint64, flat
    prefix_offsets: np.ndarray  # int64, one more than requests
    prefix_block_tokens: np.ndarray  # int32, the engine's block size in every row
    prefix_tokens: np.ndarray  # int32
    expected: oracle.Result
    expected_steps: int  # summary of config.json
    stalled: bool

    def hashes(self, request: int) -> np.ndarray:
        """Return the block identities of one request."""
        return self.prefix_hashes[self.prefix_offsets[request] : self.prefix_offsets[request + 1]]


def read(folder: Path) -> Iterator[Case]:
    """Yield the cases of a case folder or of a bundle; NotACaseError where it is neither."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise NotACaseError(f"{folder}: no {', '.join(missing)}")
    try:
        for name, config, tables in base.parts(folder):
            yield _case(name, config, tables)
    except (KeyError, TypeError, ValueError) as error:  # pyarrow's and json's errors are ValueErrors
        raise NotACaseError(f"{folder}: {type(error).__name__}: {error}") from error


def intern_blocks(
    segments: list[list[tuple[int, int, int]]], generated: list[int], block_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Number the content of every block of every request.

    segments: per request, (stream, start, length) of its prompt; generated: tokens it may generate, which follow.
    Returns flat uint64 numbers from 1, and the int64 offset of each request in them. A block's number stands
    for its tokens and all before them.
    """
    numbers: dict[tuple, int] = {}
    flat: list[int] = []
    offsets = [0]
    for request, prompt in enumerate(segments):
        runs = merged([*prompt, (GENERATED + request, 0, generated[request])])
        parent = 0
        for pieces in blocks(runs, block_size):
            parent = numbers.setdefault((parent, pieces), len(numbers) + 1)
            flat.append(parent)
        offsets.append(len(flat))
    return np.array(flat, dtype=np.uint64), np.array(offsets, dtype=np.int64)


def merged(segments: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join neighbours that continue each other, so that equal tokens always look equal."""
    runs: list[tuple[int, int, int]] = []
    for stream, start, length in segments:
        if length == 0:
            continue
        if runs and runs[-1][0] == stream and runs[-1][1] + runs[-1][2] == start:
            start, length = runs[-1][1], runs[-1][2] + length
            runs.pop()
        runs.append((stream, start, length))
    return runs


def blocks(runs: list[tuple[int, int, int]], block_size: int) -> Iterator[tuple]:
    """Yield each block's content: (stream, start) if it is full and lies in one run, else the tuple of its pieces."""
    pieces: list[tuple[int, int, int]] = []
    held = 0
    for stream, start, length in runs:
        at, end = start, start + length
        if held:
            at = min(end, start + block_size - held)
            pieces.append((stream, start, at - start))
            held += at - start
            if held < block_size:
                continue
            yield tuple(pieces)
            pieces, held = [], 0
        last = end - (end - at) % block_size
        for begin in range(at, last, block_size):
            yield (stream, begin)
        if last < end:
            pieces, held = [(stream, last, end - last)], end - last
    if pieces:
        yield tuple(pieces)


def _case(name: str, config: dict[str, Any], tables: dict[str, pa.Table]) -> Case:
    settings = config["engine"]
    known = {field.name for field in fields(oracle.Engine)}
    unknown = set(settings) - known - {"a_ns", "b_ns", "c_ns"}
    if unknown:
        raise NotACaseError(f"{name}: config.json has unknown engine settings {sorted(unknown)}")
    engine = oracle.Engine(**{key: value for key, value in settings.items() if key in known})
    requests = tables["requests"].sort_by("req")
    prompts = requests["prompt_len"].to_numpy()
    limits = requests["max_tokens"].to_numpy()
    room = np.maximum(engine.max_model_len - prompts.astype(np.int64), 0)
    generated = np.minimum(limits, room)
    hashes, offsets = intern_blocks(_segments(requests), generated.tolist(), engine.block_size)
    return Case(
        name=name,
        engine=engine,
        a_ns=settings["a_ns"],
        b_ns=settings["b_ns"],
        c_ns=settings["c_ns"],
        arrival_ns=requests["arrival_ns"].to_numpy().astype(np.int64),
        input_tokens=prompts.astype(np.int32),
        max_tokens=limits.astype(np.int32),
        priority=requests["priority"].to_numpy().astype(np.int32),
        prefix_hashes=hashes,
        prefix_offsets=offsets,
        prefix_block_tokens=np.full(len(prompts), engine.block_size, dtype=np.int32),
        prefix_tokens=(prompts + generated).astype(np.int32),
        expected=_expected(requests, tables["steps"], tables["schedule"], bool(config["summary"]["stalled"])),
        expected_steps=config["summary"]["steps"],
        stalled=bool(config["summary"]["stalled"]),
    )


def _segments(requests: pa.Table) -> list[list[tuple[int, int, int]]]:
    columns = [requests[name].to_pylist() for name in ("seg_stream", "seg_start", "seg_len")]
    return [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]


def _expected(requests: pa.Table, steps: pa.Table, schedule: pa.Table, stalled: bool) -> oracle.Result:
    """Bring the recorded tables into the engines' form: their names and order, NONE for no value."""
    steps = steps.sort_by("step")
    late = pc.equal(schedule["event"], oracle.PREEMPTED).cast(pa.int8())
    schedule = schedule.append_column("late", late)
    schedule = schedule.sort_by([("step", "ascending"), ("late", "ascending"), ("pos", "ascending")])
    outcome = [OUTCOMES.get(status, status) for status in requests["out_status"].to_pylist()]
    return oracle.Result(
        requests=_renamed(requests, REQUEST_NAMES) | {"outcome": np.array(outcome, dtype=object)},
        steps=_renamed(steps, STEP_NAMES),
        decisions=_renamed(schedule, DECISION_NAMES),
        gaps={},
        stalled=stalled,
    )


def _renamed(table: pa.Table, names: dict[str, str]) -> dict[str, np.ndarray]:
    columns = {}
    for old, new in names.items():
        column = table[old]
        if pa.types.is_integer(column.type):
            column = pc.fill_null(column.cast(pa.int64()), oracle.NONE)
        columns[new] = column.to_numpy()
    return columns
