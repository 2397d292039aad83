"""The engine alone: arrays of requests in, arrays of steps and requests out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline import config, hardware
from pipeline.kernel import layout
from pipeline.replay import driver
from pipeline.replay.source import Source
from pipeline.replay.state import State, TraceBatch

_DRAINS = {layout.STEPS_FULL: "steps", layout.GAPS_FULL: "gaps"}


@dataclass
class Made:
    """What one replay in memory made: counts, and CPU and wall seconds."""

    requests: int = 0
    steps: int = 0
    tokens: int = 0
    events: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0


def batches(trace: Path, settings: tuple[str, ...]) -> tuple[hardware.Deployment, list[TraceBatch]]:
    """Return the deployment, and the whole trace as the driver would load it."""
    deployment = hardware.resolve(config.load(None, settings, None))
    source = Source(trace, None, deployment.config)
    return deployment, list(iter(source.next, None))


def replay(deployment: hardware.Deployment, trace: list[TraceBatch]) -> Made:
    """Replay arrays in memory and count what happened; the clocks stand still while rows given out are counted."""
    cost, settings = driver.cost(deployment), driver.settings(deployment, False)
    made, pieces = Made(), None
    while True:
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        pieces = pieces or run(State(settings, cost, deployment.config.fleet.replicas), trace)
        piece = next(pieces, None)
        made.cpu_s += time.thread_time() - cpu_s
        made.wall_s += time.perf_counter() - wall_s
        if piece is None:
            return made
        table, rows = piece
        if table == "requests":
            made.requests += len(rows)
            made.events += 2 * int((rows["outcome"] != layout.NOT_REPLAYED).sum())
        elif table == "steps":
            _count(made, rows, settings.block_size)


def run(state: State, trace: list[TraceBatch]) -> Iterator[tuple[str, np.ndarray]]:
    """Run a state to the end of the trace and give out its tables, piece by piece, with their names."""
    coming = iter(trace)
    while True:
        reason = state.run()
        if reason == layout.NEED_TRACE:
            yield "requests", state.take_done()
            batch = next(coming, None)
            if batch is None:
                state.complete()
            else:
                state.load(batch)
        elif reason in _DRAINS:
            yield _DRAINS[reason], state.drain(_DRAINS[reason], int(state.fleet.stopped))
        elif reason == layout.TRACE_DONE:
            break
        else:
            raise AssertionError(f"the engine stopped for reason {reason}")
    state.settle()
    yield "requests", state.take_done(everything=True)
    for replica in range(state.replicas):
        yield "steps", state.drain("steps", replica)


def _count(made: Made, steps: np.ndarray, block_size: int) -> None:
    def total(*names: str) -> int:
        return sum(int(steps[name].sum(dtype=np.int64)) for name in names)

    made.steps += len(steps)
    made.tokens += total("prefill_tokens", "hit_tokens", "sampled")
    chunks = total("scheduled") - total("decode_tokens")
    blocks = total("new_blocks") + total("hit_tokens") // block_size
    made.events += total("admitted", "resumed", "preempted") + chunks + 2 * blocks


def decoding(requests: int, tokens: int) -> list[TraceBatch]:
    """Return requests that arrive together and only decode: a prompt of one block, all of one length."""
    same = np.full(requests, tokens)
    return [
        TraceBatch(
            arrival_ns=np.zeros(requests, np.int64),
            input_tokens=np.full(requests, 16),
            output_tokens=same,
            end_outcome=np.full(requests, layout.FINISHED),
            priority=np.zeros(requests, np.int64),
            prefix_tokens=np.zeros(requests, np.int64),
            prefix_block_tokens=np.ones(requests, np.int64),
            hashes=np.zeros(0, np.uint64),
            hash_offsets=np.zeros(requests + 1, np.int64),
        )
    ]
