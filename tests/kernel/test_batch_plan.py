"""Running requests when the budget does not reach all: with prefills at a distance, one-token starts fill the step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.builders import trace
from tests.kernel import agree
from tests.kernel.by_hand import BOTH_WAYS, column, replay
from tests.strategies import MOST_STEPS, Scenario


@pytest.fixture(params=BOTH_WAYS, ids=["visits", "shortcut"])
def way(request):
    return request.param


def test_one_the_budget_does_not_reach_is_passed_over(way):
    """Two tokens a step, prompts every third step. The prompt of 5 gets a token in steps 1, 4 and 7 and two in 10.

    In between a prompt of one token may start, at step 2. In steps 4 and 7 the first decodes, the prompt takes the
    other token, and the third has none.
    """
    result = replay("0us 1>9, 1us 5>1, 2us 1>6", max_num_batched_tokens=2, prefill_schedule_interval=3, **way)
    assert column(result.requests, "first_token_step") == [0, 10, 2]
    assert column(result.requests, "finish_step") == [8, 10, 9]
    assert column(result.steps, "prefill_tokens") == [1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 2]
    assert column(result.steps, "decode_tokens") == [0, 1, 1, 2, 1, 2, 2, 1, 2, 1, 0]
    assert {name: column(result.gaps, name) for name in ("request", "previous_step", "step", "gap_ns")} == {
        "request": [2, 2],
        "previous_step": [3, 6],
        "step": [5, 8],
        "gap_ns": [2000, 2000],
    }


def test_more_may_decode_than_the_budget_reaches(way):
    """The same, but the prompt's last token is computed in step 13 and its answer takes steps 13 to 17.

    From step 14 on all three decode and the budget is two: the third is passed over until the second ends.
    """
    settings_ = {"max_num_batched_tokens": 2, "prefill_schedule_interval": 3, "num_gpu_blocks": 30}
    result = replay("0us 1>30, 1us 5>5, 2us 1>24", **settings_, **way)
    assert column(result.requests, "first_token_step") == [0, 13, 2]
    assert column(result.requests, "finish_step") == [29, 17, 33]
    assert column(result.steps, "decode_tokens")[13:19] == [1, 2, 2, 2, 2, 2]
    assert column(result.gaps, "previous_step") == [3, 6, 9, 12]
    assert column(result.gaps, "step") == [5, 8, 11, 18]
    assert column(result.gaps, "gap_ns") == [2000, 2000, 2000, 6000]


def test_a_token_in_flight_has_a_name_when_it_is_there_though_its_request_is_passed_over(way):
    """Blocks of one token. The third computes its second token in step 7, is passed over in steps 8 and 9.

    Step 7 is collected before step 9 is decided. Named by then are 10 tokens of the first and 2 of each other.
    """
    result = replay(
        "2us 2>20, 4us 2>4, 7us 1>7 priority=-1",
        block_size=1,
        num_gpu_blocks=200,
        policy="priority",
        max_num_batched_tokens=2,
        prefill_schedule_interval=4,
        async_scheduling=True,
        **way,
    )
    assert column(result.steps, "cached_blocks")[6:10] == [9, 10, 12, 10 + 2 + 2]


@st.composite
def narrow(draw):
    """Draw a replay where budget and blocks are short, prefills keep their distance and most prompts are one token."""
    rows = []
    arrival_us = 0
    for _ in range(draw(st.integers(3, 10))):
        arrival_us += draw(st.integers(0, 3)) * 10
        input_tokens = draw(st.sampled_from((1, 1, 1, 2, 5, 13)))
        priority = draw(st.sampled_from(("", " priority=1", " priority=-1")))
        rows.append(f"{arrival_us}us {input_tokens}>{draw(st.integers(1, 25))}{priority}")
    engine = oracle.Engine(
        block_size=draw(st.integers(1, 4)),
        num_gpu_blocks=draw(st.integers(41, 60) | st.just(200)),
        max_model_len=40,
        max_num_batched_tokens=draw(st.integers(1, 5)),
        max_num_seqs=draw(st.integers(3, 10)),
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        scheduler_reserve_full_isl=draw(st.booleans()),
        prefill_schedule_interval=draw(st.integers(2, 6)),
        async_scheduling=draw(st.booleans()),
        max_steps=MOST_STEPS,
    )
    timeout_ns = draw(st.none() | st.integers(0, 60).map(lambda n: 10_000 * n))
    line = trace(", ".join(rows), block_tokens=draw(st.integers(1, 4)))
    return Scenario(line, engine, a_ns=10_000, b_ns=0, c_ns=0, timeout_ns=timeout_ns)


@settings(max_examples=200)
@given(narrow())
def test_passing_over_agrees_with_the_twin(scenario):
    twin = scenario.twin(check=False)
    assert agree.differences(twin, agree.kernel(scenario)) == []
    assert agree.differences(twin, agree.kernel(scenario, decisions=True)) == []
