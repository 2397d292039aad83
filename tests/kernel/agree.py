"""The compiled engine beside the twin: the same drawn replay through both, every column compared."""

import numpy as np

from pipeline.kernel import layout
from pipeline.replay.state import StepCost, TraceBatch
from tests import engines, oracle
from tests.strategies import Scenario

# What the compiled engine does not have: which step a request started in follows from the other columns.
_NOT_KEPT = {"requests": ("first_scheduled_step",)}
ROOMY = {"step_rows": 4096, "gap_rows": 4096, "decision_rows": 1 << 16, "window": 64}


def batch(scenario: Scenario, first: int = 0, last: int | None = None) -> TraceBatch:
    """Return rows of a drawn trace as the driver would load them."""
    trace = scenario.trace
    numbers = range(len(trace.rows))[first:last]
    rows = [trace.rows[number] for number in numbers]
    hashes = [np.array(trace.prefix_hashes[number], dtype=np.uint64) for number in numbers]
    outcome = [layout.CANCELLED if row.status == "cancelled" else layout.FINISHED for row in rows]
    return TraceBatch(
        arrival_ns=np.array([1000 * row.arrival_us for row in rows]),
        input_tokens=np.array([row.input_tokens for row in rows]),
        output_tokens=np.array([row.output_tokens for row in rows]),
        end_outcome=np.where([row.replayable for row in rows], outcome, layout.NOT_REPLAYED),
        priority=np.array([row.priority for row in rows]),
        prefix_tokens=np.array([trace.prefix_tokens[number] for number in numbers]),
        prefix_block_tokens=np.array([row.block_tokens for row in rows]),
        hashes=np.concatenate([np.zeros(0, np.uint64), *hashes]),
        hash_offsets=np.append(0, np.cumsum([len(row) for row in hashes])).astype(np.int64),
        after=np.array([layout.NONE if row.after is None else row.after for row in rows]),
        think_ns=np.array([1000 * row.think_us for row in rows]),
    )


def kernel(
    scenario: Scenario, cost: StepCost | None = None, pieces: int | None = None, sizes: dict | None = None, **more
) -> oracle.Result:
    """Replay a drawn replay with the compiled engine; only rows that reach an engine come back.

    pieces : load the trace so many rows at a time
    """
    engine = scenario.engine
    if cost is None:
        most = engine.max_num_batched_tokens + engine.max_num_seqs
        cost = StepCost.whole(scenario.a_ns, scenario.b_ns, scenario.c_ns, most)
    settings = engines.settings(engine, audit=True, **clients(scenario), **more)
    count = len(scenario.trace.rows)
    step = pieces or count
    batches = [batch(scenario, first, first + step) for first in range(0, count, step)]
    result = engines.run_kernel(settings, cost, batches, **(sizes or ROOMY))
    result.requests = {name: column[scenario.trace.replayable] for name, column in result.requests.items()}
    for table in (result.decisions, result.gaps):
        if table:
            table["request"] = np.searchsorted(scenario.trace.replayable, table["request"])
    return result


def clients(scenario: Scenario) -> dict:
    """Return the settings of the compiled engine that say how its clients behave."""
    names = ("timeout_ns", "queue_limit", "concurrency", "sessions")
    return {name: getattr(scenario, name) for name in names}


def differences(twin: oracle.Result, got: oracle.Result) -> list[str]:
    """Return one line per column that differs; none if the two agree in everything both have."""
    found = [] if twin.stalled == got.stalled else [f"stalled: twin {twin.stalled}, kernel {got.stalled}"]
    for table in ("requests", "steps", "decisions", "gaps"):
        wanted, columns = getattr(twin, table), getattr(got, table)
        if table == "decisions" and not columns:
            continue
        if table == "gaps":
            wanted, columns = _sorted(wanted), _sorted(columns)
        for name in wanted:
            if name in _NOT_KEPT.get(table, ()):
                continue
            ours = np.asarray(columns[name], dtype=object)
            theirs = np.asarray(wanted[name], dtype=object)
            if len(ours) != len(theirs) or (ours != theirs).any():
                found.append(f"{table}.{name}: twin {theirs.tolist()[:60]}, kernel {ours.tolist()[:60]}")
    return found


def _sorted(gaps: dict) -> dict:
    order = np.lexsort((np.asarray(gaps["request"]), np.asarray(gaps["step"])))
    return {name: np.asarray(column)[order] for name, column in gaps.items()}
