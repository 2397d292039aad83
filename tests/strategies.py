"""Hypothesis strategies: small traces, tight memory, odd settings.

`scenarios()` draws a whole replay: trace, engine settings, step time, and how patient the clients are. Times are
whole multiples of a coarse tick, so that arrivals, deadlines and step ends often fall on the same nanosecond.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests import oracle
from tests.builders import OWN, Row, Segment, Trace, spoken

TICK_US = 10
MOST_STEPS = 400  # ends livelocks, which some settings allow


def examples(count: int) -> int:
    """Return how many replays to draw: `count`, times SERVECAST_EXAMPLES for a longer search."""
    return count * int(os.environ.get("SERVECAST_EXAMPLES", "1"))


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a replay depends on."""

    trace: Trace
    engine: oracle.Engine
    a_ns: int  # step time: a + b * tokens + c * context tokens
    b_ns: int
    c_ns: int
    timeout_ns: int | None = None
    queue_limit: int | None = None
    concurrency: int | None = None

    @property
    def sessions(self) -> bool:
        """Whether some requests wait for others."""
        return any(row.after is not None for row in self.trace.rows)

    def twin(self, check: bool = True) -> oracle.Result:
        """Replay it with the twin."""
        return oracle.run(
            self.trace.requests(self.engine.block_size),
            self.engine,
            oracle.linear_duration(self.a_ns, self.b_ns, self.c_ns),
            self.timeout_ns,
            self.queue_limit,
            check,
            self.concurrency,
        )


@st.composite
def scenarios(
    draw: st.DrawFn, most_requests: int = 14, clients: bool = True, prefixes: bool = True, loads: tuple = ("open",)
) -> Scenario:
    """Draw a replay; `clients` lets them time out, cancel and be turned away, `prefixes` lets prompts share text.

    `loads` is what to choose from: "open", "closed" (fixed concurrency), "sessions" (some wait for others).

    Half of them are crowded: many requests at once in little memory, where preemption and eviction happen.
    """
    crowded = draw(st.sampled_from((True, False)))
    max_model_len = draw(st.integers(32, 96) if crowded else st.integers(24, 160) | st.integers(4, 96))
    trace = draw(traces(max_model_len, most_requests, crowded, cancelled=clients, prefixes=prefixes))
    engine = draw(engines(max_model_len, crowded))
    load = draw(st.sampled_from(loads)) if len(loads) > 1 else loads[0]
    if load == "sessions":
        trace = Trace(draw(_sessions(trace.rows)))
    impatient = clients and draw(_rarely())
    full = clients and draw(_rarely())
    ticks = st.integers(0, 2000) | st.integers(0, 100)
    return Scenario(
        trace=trace,
        engine=engine,
        a_ns=draw(st.sampled_from((10, 100, 100, 1, 0))) * 1000 * TICK_US,
        b_ns=draw(st.sampled_from((0, 10, 100, 1000 * TICK_US))),
        c_ns=draw(st.sampled_from((0, 0, 1, 40))),
        timeout_ns=draw(ticks.map(lambda n: n * 1000 * TICK_US)) if impatient else None,
        queue_limit=draw(st.integers(0, 5)) if full else None,
        concurrency=draw(st.integers(1, 4) | st.integers(1, most_requests + 2)) if load == "closed" else None,
    )


@st.composite
def engines(draw: st.DrawFn, max_model_len: int, crowded: bool = False) -> oracle.Engine:
    """Draw engine settings for this context limit, from one that barely holds a request to an ample one.

    A crowded one has small blocks, and runs many requests in memory for little more than one.
    """
    sizes = st.integers(1, 8) | st.integers(2, 6) | st.sampled_from((16, 32, 64)) | st.integers(1, 64)
    block_size = draw(st.integers(1, 6) if crowded else sizes)
    chunked = draw(st.booleans() | st.just(True))
    least_budget = 1 if chunked else max_model_len
    max_num_seqs = draw(st.integers(4, 24) if crowded else st.integers(1, 4) | st.integers(3, 24))
    longest = -(-max_model_len // block_size)
    pools = st.integers(longest + 1, longest + 2 + longest // 2) if crowded else _pools(longest)
    return oracle.Engine(
        block_size=block_size,
        num_gpu_blocks=draw(pools),
        max_model_len=max_model_len,
        max_num_batched_tokens=least_budget + draw(st.integers(0, 12) | st.integers(8, 200)),
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=draw(st.integers(1, max_num_seqs)) if draw(_rarely()) else None,
        enable_chunked_prefill=chunked,
        enable_prefix_caching=draw(st.booleans() | st.just(True)),
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        long_prefill_token_threshold=draw(st.just(0) | st.integers(1, 40)),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        scheduler_reserve_full_isl=not draw(_rarely()),
        watermark=draw(st.just(0.0) | st.sampled_from((0.01, 0.05, 0.2, 0.5))),
        prefill_schedule_interval=draw(st.just(1) | st.integers(2, 8)),
        async_scheduling=draw(st.sampled_from((True, False))),
        max_steps=MOST_STEPS,
    )


def _pools(longest: int) -> st.SearchStrategy[int]:
    """Blocks of KV memory, the null block included, where the longest request needs so many."""
    return st.one_of(
        st.integers(longest + 1, longest + 2 + longest // 4),
        st.integers(longest + 1, longest + 2 + longest // 4),
        st.integers(longest + 1, 2 * longest + 4),
        st.integers(longest + 1, 4 * longest + 4),
        st.integers(max(2, longest // 2), longest + 1),  # some never fit
        st.just(40 * longest + 50),
    )


@st.composite
def traces(
    draw: st.DrawFn,
    max_model_len: int,
    most_requests: int = 14,
    crowded: bool = False,
    cancelled: bool = True,
    prefixes: bool = True,
) -> Trace:
    """Draw a trace whose prompts mostly fit this context limit: bursts, shared prefixes, later turns.

    In a crowded one all arrive within little time and many generate half the context.
    """
    rows: list[Row] = []
    arrival_us = draw(st.integers(0, 3)) * TICK_US
    block_tokens = draw(st.lists(st.integers(1, 8) | st.integers(1, 40), min_size=1, max_size=2))
    gaps = st.just(0) | st.integers(0, 3) | st.integers(0, 40)
    for _ in range(draw(st.integers((most_requests + 1) // 2, most_requests) | st.integers(1, most_requests))):
        arrival_us += draw(gaps if crowded else gaps | st.integers(0, 400)) * TICK_US
        rows.append(draw(_rows(rows, arrival_us, max_model_len, block_tokens, crowded, prefixes)))
        if cancelled and draw(_rarely()):
            rows[-1] = replace(rows[-1], status="cancelled")
    return Trace(rows)


@st.composite
def _sessions(draw: st.DrawFn, rows: Sequence[Row]) -> list[Row]:
    """Let most rows wait for one before them, with no think time or some ticks of it."""
    chosen = list(rows)
    for place in range(1, len(rows)):
        if not draw(_rarely()):
            think_us = draw(st.just(0) | st.integers(0, 60)) * TICK_US
            chosen[place] = replace(rows[place], after=draw(st.integers(0, place - 1)), think_us=think_us)
    return chosen


@st.composite
def _rows(
    draw: st.DrawFn,
    rows: Sequence[Row],
    arrival_us: int,
    max_model_len: int,
    block_tokens: Sequence[int],
    crowded: bool,
    prefixes: bool,
) -> Row:
    most = 2 * max_model_len if draw(_rarely()) and draw(_rarely()) else max_model_len - 1  # some are rejected
    shared = draw(_shared(rows, most)) if prefixes else ()
    shared_tokens = sum(length for _, _, length in shared)
    left = most - shared_tokens
    own = draw(st.integers(0, min(8, left)) | st.integers(0, min(8, left)) | st.integers(0, left))
    if shared_tokens + own == 0:
        own = 1
    input_tokens = shared_tokens + own
    lengths = st.integers(1, 6) | st.integers(4, 40) | st.integers(1, max_model_len + 3)
    output_tokens = draw(st.integers(2, max_model_len // 2) if crowded else lengths)
    covered = st.none() | st.none() | st.just(input_tokens) | st.integers(0, input_tokens + output_tokens)
    return Row(
        arrival_us=arrival_us,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        prompt=(*shared, (OWN + len(rows), 0, own)),
        covered_tokens=draw(covered) if prefixes else 0,
        block_tokens=draw(st.sampled_from(block_tokens)),
        priority=draw(st.just(0) | st.integers(-2, 2)),
    )


@st.composite
def _shared(draw: st.DrawFn, rows: Sequence[Row], most: int) -> tuple[Segment, ...]:
    """Draw what a prompt begins with: nothing, a common text, or all of an earlier conversation if that is short."""
    kind = draw(st.sampled_from(("own", "text", "text", "follows")))
    spoken_before = [row for row, it in enumerate(rows) if it.input_tokens + it.output_tokens <= most]
    if kind == "follows" and spoken_before:
        return spoken(rows, draw(st.sampled_from(spoken_before)))
    if kind == "text":
        return ((draw(st.integers(0, 1)), 0, draw(st.integers(1, most) | st.just(most // 2 + 1))),)
    return ()


def _rarely() -> st.SearchStrategy[bool]:
    return st.sampled_from((False, False, False, True))
