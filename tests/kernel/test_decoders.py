"""Decoding requests kept without touching them: who needs a block at a tick, and who ends at it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kernel import decoders
from pipeline.kernel.layout import NONE
from tests.kernel.world import World

BLOCK = 4


def join(world, slot, computed_tokens, target_tokens, seat=None):
    world.slots[slot].seat = slot if seat is None else seat
    world.slots[slot].target_tokens = target_tokens
    world.call(decoders.join, slot=slot, computed_tokens=computed_tokens)


def members(world, head, link):
    found, slot = [], int(head)
    while slot != NONE:
        found.append(slot)
        slot = int(world.slots[slot][link])
    return found


def needing_a_block(world):
    return members(world, world.phases[world.engine.ticks % BLOCK].head, "group_later")


def ending(world):
    return sorted(members(world, world.calendar[world.engine.ticks & world.engine.calendar_mask], "end_later"))


@pytest.fixture
def world():
    return World()


def test_a_block_is_needed_when_the_last_one_is_full(world):
    join(world, 0, 8, 60)
    join(world, 1, 9, 60)
    join(world, 2, 11, 60)
    seen = {}
    for tick in range(5):
        world.engine.ticks = tick
        seen[tick] = needing_a_block(world)
    assert seen == {0: [0], 1: [2], 2: [], 3: [1], 4: [0]}


def test_those_of_one_phase_stand_in_order_of_admission(world):
    for slot, seat in ((0, 7), (1, 3), (2, 9), (3, 1)):
        join(world, slot, 8, 60, seat)
    assert needing_a_block(world) == [3, 1, 0, 2]
    assert world.phases[0].count == 4


def test_the_last_token_is_sampled_when_one_less_is_computed(world):
    """12 known tokens are its end; with 8 computed it knows 9 and samples 10, 11, 12 at the next three ticks."""
    join(world, 0, 8, 12)
    world.engine.ticks = 1
    assert ending(world) == []
    world.engine.ticks = 2
    assert ending(world) == [0]


def test_leaving_returns_the_tokens_in_kv(world):
    join(world, 0, 8, 60)
    world.engine.ticks = 5
    join(world, 1, 30, 60)
    world.engine.ticks = 7
    assert world.call(decoders.leave, slot=0) == 8 + 7
    assert world.call(decoders.leave, slot=1) == 30 + 2
    assert (world.engine.decoding, world.engine.origin_sum) == (0, 0)
    assert [group.count for group in world.phases] == [0] * BLOCK


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_those_who_end_together_can_leave_one_by_one(world, gone):
    for slot in range(3):
        join(world, slot, 8, 10)
    assert ending(world) == [0, 1, 2]
    world.call(decoders.leave, slot=gone)
    rest = [slot for slot in range(3) if slot != gone]
    assert ending(world) == rest
    world.call(decoders.leave, slot=rest[1])
    assert ending(world) == [rest[0]]
    world.call(decoders.leave, slot=rest[0])
    assert ending(world) == []


def test_one_without_a_token_in_flight_is_no_longer_counted_when_it_leaves(world):
    join(world, 0, 8, 60)
    world.slots[0].fresh = 1  # as batch_plan marks it
    world.engine.fresh = 1
    world.call(decoders.leave, slot=0)
    assert world.engine.fresh == 0


@given(st.data())
def test_groups_hold_who_belongs_there(data):
    """Any joining, leaving and passing over, against a dictionary of tokens in KV."""
    world, computed, target = World(max_num_seqs=6), {}, {}
    for _ in range(data.draw(st.integers(1, 25))):
        absent = [slot for slot in range(6) if slot not in computed]
        move = data.draw(st.sampled_from("jlp" if computed else "j"))
        if move == "j" and absent:
            slot = data.draw(st.sampled_from(absent))
            computed[slot] = data.draw(st.integers(1, 20))
            target[slot] = data.draw(st.integers(30, 60))
            join(world, slot, computed[slot], target[slot])
        elif move == "l" and computed:
            slot = data.draw(st.sampled_from(sorted(computed)))
            assert world.call(decoders.leave, slot=slot) == computed.pop(slot)
        elif move == "p" and computed:
            # as batch_plan passes over some: their origin falls, then all are sorted in again
            world.engine.running_head = NONE
            for slot in sorted(computed, reverse=True):
                world.slots[slot].later = world.engine.running_head
                world.engine.running_head = slot
            slot = data.draw(st.sampled_from(sorted(computed)))
            world.slots[slot].origin -= 1
            computed[slot] -= 1
            world.call(decoders.sort_in_again)
        assert needing_a_block(world) == [s for s in sorted(computed) if computed[s] % BLOCK == 0]
        assert world.phases[world.engine.ticks % BLOCK].count == len(needing_a_block(world))
        assert ending(world) == [s for s in sorted(computed) if computed[s] + 2 == target[s]]
        assert world.engine.decoding == len(computed)
        assert world.engine.origin_sum == sum(computed.values()) - len(computed) * world.engine.ticks
        world.engine.ticks += 1
        computed = {slot: tokens + 1 for slot, tokens in computed.items()}
        for slot in [s for s in computed if computed[s] + 2 > target[s]]:
            world.call(decoders.leave, slot=slot)
            del computed[slot]
