"""What a waiting request needs to start: a seat, blocks, budget, and nobody in front of it."""

import pytest

from tests.kernel.by_hand import BOTH_WAYS, column, replay


@pytest.fixture(params=BOTH_WAYS, ids=["visits", "shortcut"])
def way(request):
    return request.param


def starts(text, **settings):
    return column(replay(text, **settings).requests, "first_scheduled_ns")


def test_a_head_that_does_not_fit_holds_up_all_behind_it(way):
    """The first holds 6 of 8 blocks from 0 to 8 us and all at last; the second needs 5, the third 1."""
    assert starts("0us 24>8, 1us 20>2, 2us 4>2", **way) == [0, 8000, 8000]
    assert starts("0us 24>8, 2us 4>2", **way) == [0, 2000]


def test_seats(way):
    assert starts("0us 4>3, 0us 4>3, 0us 4>3", max_num_seqs=2, **way) == [0, 0, 3000]
    assert starts("0us 4>3, 0us 4>3, 0us 4>3", max_num_active_seqs=1, **way) == [0, 3000, 6000]


def test_asynchronously_a_seat_is_free_one_decision_later(way):
    """The step after the last token is decided before that token is there, and has nothing to do."""
    assert starts("0us 4>3, 0us 4>3", max_num_seqs=1, **way) == [0, 3000]
    result = replay("0us 4>3, 0us 4>3", max_num_seqs=1, async_scheduling=True, **way)
    assert column(result.requests, "first_scheduled_ns") == [0, 3000]
    assert column(result.steps, "scheduled_ns") == [0, 0, 1000, 3000, 3000, 4000]


def test_a_prompt_that_exceeds_the_budget_is_cut(way):
    result = replay("0us 20>1, 0us 12>1", max_num_batched_tokens=12, **way)
    assert column(result.steps, "prefill_tokens") == [12, 8 + 4, 8]
    assert column(result.requests, "first_token_step") == [1, 2]


def test_without_chunks_it_waits_for_a_step_of_its_own(way):
    settings = {"enable_chunked_prefill": False, "max_num_batched_tokens": 32}
    result = replay("0us 24>1, 0us 12>1", **settings, **way)
    assert column(result.steps, "prefill_tokens") == [24, 12]


def test_the_threshold_on_long_prompts_counts_only_in_company(way):
    alone = replay("0us 24>1", long_prefill_token_threshold=8, **way)
    assert column(alone.steps, "prefill_tokens") == [24]
    both = replay("0us 24>1, 0us 4>1", long_prefill_token_threshold=8, **way)
    assert column(both.steps, "prefill_tokens") == [8 + 4, 16]


def test_the_whole_prompt_must_fit_if_so_asked(way):
    """The first holds 4 blocks until 2 us; the second needs 6, and its first chunk of 12 tokens 3."""
    settings = {"max_num_batched_tokens": 28, **way}
    text = "0us 16>2, 0us 24>1"
    assert starts(text, scheduler_reserve_full_isl=True, **settings) == [0, 2000]
    assert starts(text, scheduler_reserve_full_isl=False, **settings) == [0, 0]


def test_the_watermark_keeps_blocks_free_beside_others(way):
    """Four of nine blocks: beside the first (2 blocks, 3 from step 1 on) one block may be taken, the second needs 3."""
    text = "0us 8>8, 1us 12>1"
    assert starts(text, watermark=0.5, **way) == [0, 8000]
    assert starts(text, watermark=0.0, **way) == [0, 1000]
    assert starts("0us 24>1", watermark=0.5, **way) == [0]  # alone it does not count


def test_a_cached_prefix_is_not_computed(way):
    """Three blocks are cached; the third holds the last token, and one token is always computed."""
    result = replay("0us 12>1 prefix=a, 5us 12>1 prefix=a", **way)
    assert column(result.requests, "cached_tokens") == [0, 8]
    assert column(result.requests, "computed_tokens") == [12, 4]
    assert column(result.steps, "hit_tokens") == [0, 8]
    off = replay("0us 12>1 prefix=a, 5us 12>1 prefix=a", enable_prefix_caching=False, **way)
    assert column(off.requests, "cached_tokens") == [0, 0]


def test_a_later_turn_finds_what_was_generated(way):
    """Prompt 8 and answer 5: twelve of the thirteen tokens were computed, so three blocks are cached."""
    result = replay("0us 8>5, 20us 20>1 follows=0", **way)
    assert column(result.requests, "cached_tokens") == [0, 12]


def test_idle_hits_use_up_room(way):
    """The second finds 2 idle blocks and needs 4 in all, but beside the third only 3 are idle."""
    text = "0us 12>1 prefix=a, 5us 20>8, 6us 16>1 prefix=a:12"
    assert starts(text, **way) == [0, 5000, 13000]
    assert starts(text, num_gpu_blocks=17, **way) == [0, 5000, 6000]


def test_prefills_keep_their_distance(way):
    """With an interval of three steps the second waits while the first decodes; nobody was held up before."""
    result = replay("0us 4>9, 1us 4>1", prefill_schedule_interval=3, **way)
    assert column(result.requests, "first_scheduled_ns") == [0, 3000]
