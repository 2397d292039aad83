"""Replicas under one clock: each does what it would do alone, and the routers send as they say."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.config import Fleet
from pipeline.kernel import layout
from pipeline.replay.router import Router
from pipeline.replay.state import StepCost
from tests import engines, oracle, shared, strategies
from tests.kernel import agree

# uhashring 2.5, HashRing() over http://w0:8000 ..., keys session-000 to session-019, as recorded by its own package.
RING_OF_3 = [2, 0, 1, 2, 1, 2, 1, 0, 2, 2, 1, 0, 2, 2, 2, 2, 1, 0, 1, 0]


def replay(scenario, replicas, chosen, pieces=None, **sizes):
    engine = scenario.engine
    most = engine.max_num_batched_tokens + engine.max_num_seqs
    cost = StepCost.whole(scenario.a_ns, scenario.b_ns, scenario.c_ns, most)
    more = {"timeout_ns": scenario.timeout_ns, "queue_limit": scenario.queue_limit, "audit": True}
    count = len(scenario.trace.rows)
    batches = []
    for first in range(0, count, pieces or count):
        rows = agree.batch(scenario, first, first + (pieces or count))
        batches.append(rows.__class__(**{**_fields(rows), "replica": np.array(chosen[first : first + len(rows)])}))
    return engines.run_fleet(engines.settings(engine, **more), cost, batches, replicas, **(sizes or agree.ROOMY))


def _fields(batch):
    return {name: getattr(batch, name) for name in batch.__dataclass_fields__}


def alone(scenario, rows):
    """Replay some rows of a drawn trace with the twin, under their own keys."""
    requests = dict(zip(scenario.trace.replayable, scenario.trace.requests(scenario.engine.block_size), strict=True))
    duration = oracle.linear_duration(scenario.a_ns, scenario.b_ns, scenario.c_ns)
    chosen = [requests[row] for row in rows]
    return oracle.run(chosen, scenario.engine, duration, scenario.timeout_ns, scenario.queue_limit)


@settings(max_examples=strategies.examples(50))
@given(strategies.scenarios(), st.integers(2, 4), st.sampled_from(["round_robin", "least_outstanding"]), st.data())
def test_a_replica_does_what_it_would_do_alone(scenario, replicas, router, data):
    replayable = np.isin(np.arange(len(scenario.trace.rows)), scenario.trace.replayable)
    chosen = Router(Fleet(replicas=replicas, router=router)).choose(
        replayable, pa.chunked_array([[None] * len(replayable)])
    )
    sizes = data.draw(st.sampled_from([agree.ROOMY, {"step_rows": 3, "gap_rows": 1, "decision_rows": 1, "window": 1}]))
    results = replay(scenario, replicas, chosen, data.draw(st.sampled_from([None, 2])), **sizes)
    where = results[0].requests["replica"]
    if any(len(result.steps["step"]) >= strategies.MOST_STEPS for result in results):
        return  # the first replica to reach that limit ends all
    for replica, result in enumerate(results):
        rows = [row for row in scenario.trace.replayable if where[row] == replica]
        result.requests = {name: column[rows] for name, column in result.requests.items()}
        result.gaps["request"] = np.searchsorted(rows, result.gaps["request"])
        assert agree.differences(alone(scenario, rows), result) == []


@settings(max_examples=strategies.examples(50))
@given(strategies.scenarios(clients=False), st.integers(2, 4))
def test_least_outstanding_counts_requests_in_flight(scenario, replicas):
    assume(scenario.a_ns > 0)  # where steps take no time, arrivals and ends of one moment have no order
    results = replay(scenario, replicas, [layout.NONE] * len(scenario.trace.rows))
    requests = results[0].requests
    if any(len(result.steps["step"]) >= strategies.MOST_STEPS for result in results):
        return
    if (requests["outcome"] == "rejected").any():
        return  # a replica answers those at its next decision
    for row, arrival_ns in enumerate(requests["arrival_ns"]):
        before = np.arange(row)
        finish_ns = requests["finish_ns"][before]
        open_ = (finish_ns > arrival_ns) | (finish_ns == oracle.NONE)
        in_flight = np.bincount(requests["replica"][before][open_], minlength=replicas)
        assert requests["replica"][row] == np.argmin(in_flight)


def test_round_robin_goes_on_over_batches():
    router = Router(Fleet(replicas=3, router="round_robin"))
    none = pa.chunked_array([[None] * 4])
    first = router.choose(np.array([True, False, True, True]), none)
    second = router.choose(np.array([True, True, True, True]), none)
    assert first.tolist() == [0, layout.NONE, 1, 2]
    assert second.tolist() == [0, 1, 2, 0]


def test_sessions_stay_where_the_ring_puts_them():
    router = Router(Fleet(replicas=3, router="session"))
    names = [f"session-{number:03}" for number in range(20)]
    chosen = router.choose(np.ones(22, bool), pa.chunked_array([[*names, None, names[0]]]))
    assert chosen.tolist() == [*RING_OF_3, layout.NONE, RING_OF_3[0]]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_ring_is_the_recorded_one(count):
    recorded = json.loads(shared.path("fleet", "router_cases", "session_ring_uhashring.json").read_text())
    wanted = next(entry["map"] for entry in recorded["sets"] if len(entry["nodes"]) == count)
    router = Router(Fleet(replicas=count, router="session"))
    names = [f"session-{number:03}" for number in range(80)]
    assert router.choose(np.ones(80, bool), pa.chunked_array([names])).tolist() == wanted
