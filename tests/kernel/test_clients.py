"""Arrivals that depend on ends: closed loop and sessions, against the twin and against what they promise."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.kernel import layout
from pipeline.replay.state import StepCost
from tests import engines, oracle, strategies
from tests.builders import trace
from tests.kernel import agree

LOADS = ("closed", "sessions")
MS = 1_000_000


@settings(max_examples=strategies.examples(60))
@given(strategies.scenarios(loads=LOADS))
def test_every_visit_agrees_with_the_twin(scenario):
    assert agree.differences(scenario.twin(), agree.kernel(scenario, decisions=True)) == []


@settings(max_examples=strategies.examples(120))
@given(strategies.scenarios(loads=LOADS))
def test_the_shortcut_agrees_with_the_twin(scenario):
    assert agree.differences(scenario.twin(), agree.kernel(scenario)) == []


@settings(max_examples=strategies.examples(40))
@given(strategies.scenarios(loads=LOADS), st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_cutting_buffers_and_trace_elsewhere_changes_nothing(scenario, rows, pieces, decisions):
    sizes = {"step_rows": rows, "gap_rows": 1, "decision_rows": 1, "window": 1}
    got = agree.kernel(scenario, pieces=pieces, sizes=sizes, decisions=decisions)
    assert agree.differences(scenario.twin(), got) == []


# Several replicas: a fleet is as it should be if each replica does what it would do alone with the arrivals it got, the
# arrivals are those that the ends release, and the router counted right.


@settings(max_examples=strategies.examples(40))
@given(strategies.scenarios(loads=LOADS, clients=False), st.integers(2, 4), st.data())
def test_a_fleet_sends_when_requests_end_and_to_whom_is_least_busy(scenario, replicas, data):
    assume(scenario.a_ns > 0)  # where steps take no time, arrivals and ends of one moment have no order
    sizes = data.draw(st.sampled_from([agree.ROOMY, {"step_rows": 3, "gap_rows": 1, "decision_rows": 1, "window": 1}]))
    batches = [replace(agree.batch(scenario), replica=layout.NONE)]
    if scenario.concurrency is not None and data.draw(st.booleans()):
        count = len(scenario.trace.rows)
        batches = [replace(agree.batch(scenario, i, i + 1), replica=layout.NONE) for i in range(count)]
    most = scenario.engine.max_num_batched_tokens + scenario.engine.max_num_seqs
    cost = StepCost.whole(scenario.a_ns, scenario.b_ns, scenario.c_ns, most)
    kernel_settings = engines.settings(scenario.engine, audit=True, **agree.clients(scenario))
    results = engines.run_fleet(kernel_settings, cost, batches, replicas, **sizes)
    requests = results[0].requests
    assume(all(len(result.steps["step"]) < strategies.MOST_STEPS for result in results))
    assume("rejected" not in requests["outcome"])  # those have no time of their own
    sent = np.array(requests["replica"]) != oracle.NONE
    check_arrivals(scenario, requests, sent)
    order = sorted(np.flatnonzero(sent), key=lambda row: (requests["arrival_ns"][row], row))
    for place, row in enumerate(order):
        before = order[:place]
        finish_ns = requests["finish_ns"][before]
        open_ = (finish_ns > requests["arrival_ns"][row]) | (finish_ns == oracle.NONE)
        in_flight = np.bincount(requests["replica"][before][open_], minlength=replicas)
        assert requests["replica"][row] == np.argmin(in_flight)
    for replica, result in enumerate(results):
        rows = [row for row in order if requests["replica"][row] == replica]
        result.requests = {name: column[rows] for name, column in requests.items()}
        place = {row: at for at, row in enumerate(rows)}
        result.gaps["request"] = np.array([place[row] for row in result.gaps["request"]], dtype=int)
        assert agree.differences(alone(scenario, rows, requests["arrival_ns"]), result) == []


def check_arrivals(scenario, requests, sent):
    arrival_ns, finish_ns = requests["arrival_ns"], requests["finish_ns"]
    if scenario.concurrency is not None:
        ends = sorted(finish_ns[sent & (finish_ns != oracle.NONE)])
        first = min(scenario.concurrency, len(sent))
        wanted = [0] * first + ends[: len(sent) - first]
        assert sent.tolist() == [True] * len(wanted) + [False] * (len(sent) - len(wanted))
        assert arrival_ns[sent].tolist() == wanted
        return
    for row, it in enumerate(scenario.trace.rows):
        if it.after is None:
            assert sent[row]
            assert arrival_ns[row] == 1000 * it.arrival_us
        else:
            assert sent[row] == (finish_ns[it.after] != oracle.NONE)
            assert not sent[row] or arrival_ns[row] == finish_ns[it.after] + 1000 * it.think_us


def alone(scenario, rows, arrival_ns):
    """Replay some rows with the twin, arriving when they did in the fleet."""
    requests = scenario.trace.requests(scenario.engine.block_size)
    chosen = [replace(requests[row], arrival_ns=int(arrival_ns[row]), after=None) for row in rows]
    duration = oracle.linear_duration(scenario.a_ns, scenario.b_ns, scenario.c_ns)
    return oracle.run(chosen, scenario.engine, duration)


# By hand. A step takes 10 ms, whatever is in it; decisions are synchronous.


def by_hand(text, replicas=1, **changes):
    values = {
        "block_size": 4,
        "num_gpu_blocks": 100,
        "max_model_len": 64,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "async_scheduling": False,
    }
    clients = {name: changes.pop(name) for name in ("timeout_ns", "queue_limit", "concurrency") if name in changes}
    scenario = strategies.Scenario(trace(text), oracle.Engine(**values | changes), 10 * MS, 0, 0, **clients)
    batch = replace(agree.batch(scenario), replica=layout.NONE)
    kernel_settings = engines.settings(scenario.engine, **agree.clients(scenario))
    [requests, *_] = [
        result.requests
        for result in engines.run_fleet(kernel_settings, StepCost.whole(10 * MS, 0, 0, 128), [batch], replicas)
    ]
    return requests


def in_ms(column):
    return [value / MS for value in column]


def test_closed_loop_sends_the_next_when_one_ends():
    # two at a time: 2 and 4 steps; the third starts at 20 ms beside the second, the fourth at 40 ms when both end
    requests = by_hand("5s 6>2, 6s 6>4, 7s 6>2, 8s 6>1, 9s 6>1", concurrency=2)
    assert in_ms(requests["arrival_ns"]) == [0, 0, 20, 40, 40]
    assert in_ms(requests["finish_ns"]) == [20, 40, 40, 50, 50]


def test_concurrency_is_that_of_the_whole_fleet():
    requests = by_hand("0us 6>2, 0us 6>3, 0us 6>4, 0us 6>1", replicas=2, concurrency=2)
    assert requests["replica"].tolist() == [0, 1, 0, 1]
    assert in_ms(requests["arrival_ns"]) == [0, 0, 20, 30]


def test_any_end_sends_the_next():
    # too long; cancelled after one token; gives up at 25 ms, which the engine sees at 30 ms; and an ordinary one
    requests = by_hand("0us 64>1, 0us 6>1 cancelled, 0us 6>9, 0us 6>1", concurrency=1, timeout_ns=25 * MS)
    assert requests["outcome"].tolist() == ["rejected", "cancelled", "timed_out", "finished"]
    assert in_ms(requests["arrival_ns"]) == [0, 0, 10, 40]
    assert in_ms(requests["finish_ns"])[1:] == [10, 35, 50]


def test_a_full_queue_uses_up_the_trace():
    # one runs, one waits; a client that gets a 429 sends the next at once
    requests = by_hand("0us 6>2 times=9", concurrency=4, queue_limit=1, max_num_seqs=1)
    assert requests["outcome"].tolist() == ["finished", *["queue_full"] * 8]


def test_rows_that_are_not_replayed_take_no_place():
    requests = by_hand("0us 6>2, 1us 6>1 status=error, 2us 6>1", concurrency=1)
    assert in_ms(requests["arrival_ns"]) == [0, 20, 20]
    assert requests["outcome"].tolist() == ["finished", "not_replayed", "finished"]


def test_a_turn_waits_for_the_former_one_and_thinks():
    # logged at 1 s, 2 s: the replay is quicker than the log was; the open request arrives when it was logged
    requests = by_hand("0us 6>2, 1s 6>1 after=0+5ms, 1500ms 6>1, 2s 6>1 after=1")
    assert in_ms(requests["arrival_ns"]) == [0, 25, 1500, 35]


def test_a_turn_waits_for_a_slow_one():
    requests = by_hand("0us 6>9, 10ms 6>1 after=0+1ms")
    assert in_ms(requests["arrival_ns"]) == [0, 91]


def test_a_former_request_that_is_not_replayed_ends_as_it_arrives():
    requests = by_hand("0us 6>1, 7ms 6>1 status=error, 1s 6>1 after=1+5ms, 2s 6>1 after=2+1ms")
    assert in_ms(requests["arrival_ns"]) == [0, 7, 12, 23]


def test_who_is_sent_by_a_decision_comes_after_all_who_had_arrived():
    # at 10 ms the first ends and sends the second, which is too long, and the fourth; the refusal sends the third
    requests = by_hand("0us 6>1, 0us 64>1 after=0, 0us 6>1 after=1, 0us 6>1 after=0", max_num_seqs=1)
    assert in_ms(requests["arrival_ns"]) == [0, 10, 10, 10]
    assert in_ms(requests["finish_ns"])[2:] == [30, 20]
