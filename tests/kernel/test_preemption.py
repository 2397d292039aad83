"""Who gives way when blocks run out, what it loses, and when it comes back: a case done by hand.

Two requests of 12 tokens hold 3 blocks each, 4 from step 1 on. At step 5 the first needs its fifth and there is none.
"""

import pytest

from tests.kernel.by_hand import BOTH_WAYS, column, replay

TWO = "0us 12>20, 0us 12>20"


@pytest.fixture(params=BOTH_WAYS, ids=["visits", "shortcut"])
def way(request):
    return request.param


def test_the_last_one_seated_gives_way(way):
    result = replay(TWO, **way)
    assert column(result.steps, "preempted")[:6] == [0, 0, 0, 0, 0, 1]
    assert column(result.steps, "running")[:7] == [2, 2, 2, 2, 2, 1, 1]
    assert column(result.steps, "waiting")[:7] == [0, 0, 0, 0, 0, 1, 1]
    assert column(result.requests, "preemptions") == [0, 1]
    assert column(result.requests, "finish_step") == [19, 34]


def test_what_it_computes_again(way):
    """It had 17 known tokens. The first takes all eight blocks before it ends, so nothing of them is left cached."""
    result = replay(TWO, **way)
    assert column(result.steps, "resumed")[20] == 1
    assert column(result.steps, "prefill_tokens")[19:22] == [0, 17, 0]
    assert column(result.requests, "computed_tokens") == [12 + 19, 12 + 4 + 17 + 14]
    assert column(result.requests, "resumed_cached_tokens") == [0, 0]
    assert column(result.requests, "output_tokens") == [20, 20]


def test_its_blocks_are_evicted_as_the_other_grows(way):
    """Its four blocks have keys; the first takes the last of them at step 5, then one every four steps."""
    evicted = column(replay(TWO, **way).steps, "evicted_blocks")
    assert [step for step, number in enumerate(evicted) if number][:4] == [5, 9, 13, 17]


def test_the_gap_is_from_its_last_token_to_the_next(way):
    gaps = replay(TWO, **way).gaps
    assert {name: column(gaps, name) for name in ("request", "previous_step", "step", "gap_ns")} == {
        "request": [1],
        "previous_step": [4],
        "step": [20],
        "gap_ns": [16_000],
    }


def test_what_is_still_cached_is_not_computed_again(way):
    """The first ends at step 5 itself, so the second finds its first three blocks again; the fourth was taken."""
    result = replay("0us 12>6, 0us 12>20", **way)
    assert column(result.requests, "preemptions") == [0, 1]
    assert column(result.steps, "resumed")[6] == 1
    assert column(result.requests, "resumed_cached_tokens") == [0, 12]
    assert column(result.steps, "prefill_tokens")[6] == 17 - 12


def test_by_priority_the_least_urgent_gives_way(way):
    result = replay("0us 12>20 priority=1, 0us 12>20", policy="priority", **way)
    assert column(result.requests, "preemptions") == [1, 0]
    result = replay("0us 12>20, 0us 12>20 priority=1", policy="priority", **way)
    assert column(result.requests, "preemptions") == [0, 1]


def test_tokens_of_one_that_was_served_and_gives_way_go_to_others(way):
    """A step has 8 tokens. At step 8 four decode, of whom three need a block, and the fifth has 5 prompt tokens to go.

    The second and third have been served when they give way: of those that arrived last, the first in the list does.
    """
    result = replay(
        "1us 1>15, 4us 1>20, 4us 1>18, 4us 1>16, 4us 9>2",
        policy="priority",
        max_num_batched_tokens=8,
        prefill_schedule_interval=4,
        async_scheduling=True,
        **way,
    )
    assert column(result.steps, "preempted")[8] == 2
    assert (column(result.steps, "decode_tokens")[8], column(result.steps, "prefill_tokens")[8]) == (2, 5)


def test_nobody_is_admitted_in_a_step_that_preempts(way):
    """The third arrives before step 5 and would need one block of those that come free."""
    result = replay(f"{TWO}, 5us 4>1", **way)
    assert column(result.steps, "preempted")[5] == 1
    assert column(result.steps, "admitted")[5] == 0
    assert column(result.requests, "first_scheduled_ns")[2] > 5000


def test_one_request_alone_never_gives_way(way):
    assert column(replay("0us 12>20", **way).steps, "preempted") == [0] * 20
