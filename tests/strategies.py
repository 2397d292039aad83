"""Hypothesis strategies: small traces, tight memory, odd settings.

`scenarios()` draws a whole replay: trace, engine settings, step time, and how patient the clients are. Times are
whole multiples of a coarse tick, so that arrivals, deadlines and step ends often fall on the same nanosecond.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests import oracle
from tests.builders import OWN, Row, Segment, Trace, spoken

TICK_US = 10
MOST_STEPS = 400  # ends livelocks, which some settings allow


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

    def twin(self, check: bool = True) -> oracle.Result:
        """Replay it with the twin."""
        return oracle.run(
            self.trace.requests(self.engine.block_size),
            self.engine,
            oracle.linear_duration(self.a_ns, self.b_ns, self.c_ns),
            self.timeout_ns,
            self.queue_limit,
            check,
        )


@st.composite
def scenarios(draw: st.DrawFn, most_requests: int = 14, clients: bool = True, prefixes: bool = True) -> Scenario:
    """Draw a replay; `clients` lets them time out, cancel and be turned away, `prefixes` lets prompts share text."""
    max_model_len = draw(st.integers(4, 96))
    trace = draw(traces(max_model_len, most_requests, cancelled=clients, prefixes=prefixes))
    engine = draw(engines(max_model_len))
    impatient = clients and draw(st.booleans())
    ticks = st.integers(0, 400) | st.integers(0, 20)
    return Scenario(
        trace=trace,
        engine=engine,
        a_ns=draw(st.sampled_from((0, 1, 10, 100))) * 1000 * TICK_US,
        b_ns=draw(st.sampled_from((0, 10, 100, 1000 * TICK_US))),
        c_ns=draw(st.sampled_from((0, 0, 1, 40))),
        timeout_ns=draw(ticks.map(lambda n: n * 1000 * TICK_US)) if impatient else None,
        queue_limit=draw(st.none() | st.integers(0, 5)) if clients else None,
    )


@st.composite
def engines(draw: st.DrawFn, max_model_len: int) -> oracle.Engine:
    """Draw engine settings for this context limit, from one that barely holds a request to an ample one."""
    block_size = draw(st.integers(1, 8) | st.sampled_from((16, 32, 64)) | st.integers(1, 64))
    chunked = draw(st.booleans() | st.just(True))
    least_budget = 1 if chunked else max_model_len
    max_num_seqs = draw(st.integers(1, 4) | st.integers(1, 24))
    return oracle.Engine(
        block_size=block_size,
        num_gpu_blocks=draw(_pools(-(-max_model_len // block_size))),
        max_model_len=max_model_len,
        max_num_batched_tokens=least_budget + draw(st.integers(0, 12) | st.integers(0, 200)),
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=draw(st.none() | st.integers(1, max_num_seqs)),
        enable_chunked_prefill=chunked,
        enable_prefix_caching=draw(st.booleans() | st.just(True)),
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        long_prefill_token_threshold=draw(st.just(0) | st.integers(1, 40)),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.just(0.0) | st.sampled_from((0.01, 0.05, 0.2, 0.5))),
        prefill_schedule_interval=draw(st.just(1) | st.integers(2, 8)),
        async_scheduling=draw(st.booleans()),
        max_steps=MOST_STEPS,
    )


def _pools(longest: int) -> st.SearchStrategy[int]:
    """Blocks of KV memory, the null block included, where the longest request needs so many."""
    fewest = max(2, longest // 2)  # some prompts never fit
    return st.one_of(
        st.integers(fewest, longest + 2),
        st.integers(longest + 1, 2 * longest + 4),
        st.integers(longest + 1, 6 * longest + 8),
        st.just(40 * longest + 50),
    )


@st.composite
def traces(
    draw: st.DrawFn, max_model_len: int, most_requests: int = 14, cancelled: bool = True, prefixes: bool = True
) -> Trace:
    """Draw a trace whose prompts mostly fit this context limit: bursts, shared prefixes, later turns."""
    rows: list[Row] = []
    arrival_us = draw(st.integers(0, 3)) * TICK_US
    block_tokens = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
    for _ in range(draw(st.integers(1, most_requests))):
        arrival_us += draw(st.just(0) | st.integers(0, 3) | st.integers(0, 300)) * TICK_US
        rows.append(draw(_rows(rows, arrival_us, max_model_len, block_tokens, prefixes)))
        if cancelled and draw(st.integers(0, 5)) == 5:
            rows[-1] = replace(rows[-1], status="cancelled")
    return Trace(rows)


@st.composite
def _rows(
    draw: st.DrawFn,
    rows: Sequence[Row],
    arrival_us: int,
    max_model_len: int,
    block_tokens: Sequence[int],
    prefixes: bool,
) -> Row:
    shared = draw(_shared(rows)) if prefixes else ()
    own = draw(st.integers(0, 8) | st.integers(0, max_model_len))
    shared_tokens = sum(length for _, _, length in shared)
    if shared_tokens + own == 0:
        own = 1
    input_tokens = shared_tokens + own
    output_tokens = draw(st.integers(1, 6) | st.integers(1, max_model_len + 3))
    covered = st.none() | st.just(input_tokens) | st.integers(0, input_tokens + output_tokens)
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
def _shared(draw: st.DrawFn, rows: Sequence[Row]) -> tuple[Segment, ...]:
    """Draw what a prompt begins with: nothing, a common text, or all of an earlier conversation."""
    kind = draw(st.sampled_from(("own", "text", "text", "follows")))
    if kind == "follows" and rows:
        return spoken(rows, draw(st.integers(0, len(rows) - 1)))
    if kind == "text":
        return ((draw(st.integers(0, 1)), 0, draw(st.integers(1, 60))),)
    return ()
