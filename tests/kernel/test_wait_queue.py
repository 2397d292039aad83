"""Who is next: in order of arrival or by priority, and who never gets to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kernel import layout, wait_queue
from pipeline.kernel.layout import NONE
from tests.kernel.world import World


def head(world):
    return world.call(wait_queue.head)


def remove(world, row):
    world.call(wait_queue.remove, row=row)


def drain(world):
    order = []
    while (row := head(world)) != NONE:
        remove(world, row)
        order.append(int(row))
    return order


def filled(rows=4, policy="fcfs", **columns):
    world = World(scheduling_policy=policy)
    world.load(**{"arrival_ns": list(range(rows))} | columns)
    for row in range(rows):
        world.call(wait_queue.push_back, row=row)
    return world


def test_first_come_first_served():
    assert drain(filled()) == [0, 1, 2, 3]


def test_an_empty_queue_has_no_head():
    world = World()
    assert (head(world), world.engine.waiting) == (NONE, 0)


def test_preempted_requests_go_to_the_front_the_last_one_foremost():
    world = filled()
    for row in (0, 1):
        remove(world, row)
    for row in (1, 0):
        world.call(wait_queue.push_front, row=row)
        assert world.requests[row].life == layout.PREEMPTED
    assert world.engine.waiting == 4
    assert drain(world) == [0, 1, 2, 3]


def test_one_behind_a_preempted_request_can_leave():
    world = filled()
    remove(world, 1)
    world.call(wait_queue.push_front, row=1)
    remove(world, 0)
    assert drain(world) == [1, 2, 3]


def test_a_preempted_request_alone_in_the_queue_is_its_head_and_its_tail():
    world = filled(2)
    drain(world)
    world.call(wait_queue.push_front, row=0)
    world.call(wait_queue.push_back, row=1)
    assert drain(world) == [0, 1]


@pytest.mark.parametrize("row", [0, 1, 3])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_one_in_the_queue_can_leave_from_anywhere(policy, row):
    world = filled(policy=policy)
    remove(world, row)
    assert world.engine.waiting == 3
    assert drain(world) == [r for r in range(4) if r != row]
    world.call(wait_queue.push_back, row=row)
    assert drain(world) == [row]


def test_lower_priority_numbers_first_then_arrival_then_place_in_the_trace():
    world = filled(5, "priority", priority=[1, 0, 0, -1, 0], arrival_ns=[0, 7, 7, 9, 3])
    assert drain(world) == [3, 4, 1, 2, 0]


def test_a_preempted_request_finds_its_place_by_priority():
    world = filled(3, "priority", priority=[0, 1, 2])
    remove(world, 1)
    world.call(wait_queue.push_front, row=1)
    assert drain(world) == [0, 1, 2]


def test_who_fills_a_gap_in_the_heap_may_have_to_rise():
    """The rows stand in the heap as they come; the last, 5, takes the place of 11 and belongs above 10."""
    world = filled(7, "priority", priority=[0, 10, 1, 11, 12, 20, 5])
    remove(world, 3)
    assert drain(world) == [0, 2, 6, 1, 4, 5]


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=16), st.data())
def test_the_heap_is_a_sorted_list(priorities, data):
    world = filled(len(priorities), "priority", priority=priorities)
    waiting = list(range(len(priorities)))
    for row in data.draw(st.lists(st.sampled_from(waiting), unique=True)):
        remove(world, row)
        waiting.remove(row)
        assert head(world) == min(waiting, key=lambda r: (priorities[r], r), default=NONE)
    assert drain(world) == sorted(waiting, key=lambda r: (priorities[r], r))


def arrive(now_ns, **columns):
    settings = {name: columns.pop(name) for name in ("timeout_ns", "queue_limit") if name in columns}
    world = World(**settings)
    world.load(**columns)
    world.engine.now_ns = now_ns
    world.call(wait_queue.arrive)
    rows = world.requests[: world.engine.routed]
    return world, rows.outcome.tolist(), rows.finish_ns.tolist()


def test_those_arrive_whose_time_has_come():
    world, _, _ = arrive(10, arrival_ns=[0, 10, 11])
    assert (world.engine.arrived, world.engine.waiting, world.engine.unfinished) == (2, 2, 2)


def test_a_prompt_that_reaches_the_context_limit_is_refused():
    world, outcomes, _ = arrive(0, input_tokens=[63, 64, 65])
    assert outcomes == [layout.PENDING, layout.REJECTED, layout.REJECTED]
    assert world.engine.unfinished == 1


def test_a_full_queue_refuses():
    _, outcomes, ends = arrive(9, arrival_ns=[0, 1, 2, 3], queue_limit=2)
    assert outcomes == [layout.PENDING, layout.PENDING, layout.QUEUE_FULL, layout.QUEUE_FULL]
    assert ends[2:] == [2, 3]


def test_a_client_may_have_left_before_anybody_looked():
    _, outcomes, ends = arrive(100, arrival_ns=[0, 50, 51], timeout_ns=50)
    assert outcomes == [layout.TIMED_OUT, layout.TIMED_OUT, layout.PENDING]
    assert ends[:2] == [50, 100]


def test_a_full_queue_refuses_a_client_that_has_left_as_well():
    _, outcomes, ends = arrive(100, arrival_ns=[0], timeout_ns=50, queue_limit=0)
    assert (outcomes, ends) == ([layout.QUEUE_FULL], [0])


def test_the_next_event_is_an_arrival_or_a_deadline():
    world, _, _ = arrive(10, arrival_ns=[0, 10, 50], timeout_ns=100)
    assert world.call(wait_queue.next_event_ns) == 50
    world, _, _ = arrive(10, arrival_ns=[0, 10, 400], timeout_ns=100)
    assert world.call(wait_queue.next_event_ns) == 100
    world.requests[0].life = layout.DONE
    assert world.call(wait_queue.next_event_ns) == 110
    world.requests[1].life = layout.DONE
    world.engine.unfinished = 0
    assert world.call(wait_queue.next_event_ns) == 400
    world.engine.arrived = 3
    assert world.call(wait_queue.next_event_ns) == NONE
