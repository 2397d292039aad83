"""The order in which KV blocks are handed out and come back: vLLM's free queue."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kernel import block_pool
from pipeline.kernel.layout import NONE
from tests.kernel.world import World


def take(world: World, slot: int, count: int, held: int = 0) -> list[int]:
    world.call(block_pool.take, slot=slot, held=held, count=count)
    return world.tables[slot, held : held + count].tolist()


def release(world: World, slot: int, held: int, keyed: int = 0, listed: int = 0) -> None:
    world.call(block_pool.release, slot=slot, held=held, keyed=keyed, listed=listed)


@pytest.fixture
def world():
    return World()


def test_blocks_are_handed_out_in_order_and_the_null_block_never(world):
    assert world.engine.free_blocks == 8
    assert take(world, 0, 3) == [1, 2, 3]
    assert take(world, 1, 5) == [4, 5, 6, 7, 8]
    assert world.engine.free_blocks == 0
    assert world.step.new_blocks == 8
    assert world.step.evicted_blocks == 0


def test_blocks_without_a_key_come_back_to_the_front_the_last_one_foremost(world):
    take(world, 0, 3)
    release(world, 0, held=3)
    assert world.idle_blocks() == [3, 2, 1, 4, 5, 6, 7, 8]
    assert world.engine.free_blocks == 8


def test_blocks_with_a_key_go_to_the_back_the_last_of_the_request_first(world):
    take(world, 0, 3)
    for at, key in enumerate((70, 71, 72)):
        world.list(0, at, key)
    assert world.engine.cached_blocks == 3
    release(world, 0, held=3, keyed=3, listed=3)
    assert world.idle_blocks() == [4, 5, 6, 7, 8, 3, 2, 1]
    assert [world.found(key) for key in (70, 71, 72)] == [1, 2, 3]


def test_a_request_gives_back_both_kinds_at_once(world):
    """Its first two blocks have keys, the one it was filling has none."""
    take(world, 0, 3)
    for at, key in enumerate((70, 71)):
        world.list(0, at, key)
    release(world, 0, held=3, keyed=2, listed=2)
    assert world.idle_blocks() == [3, 4, 5, 6, 7, 8, 2, 1]


def test_a_key_lives_until_its_block_is_handed_out(world):
    take(world, 0, 1)
    world.list(0, 0, 70)
    release(world, 0, held=1, keyed=1, listed=1)
    take(world, 1, 7)
    assert (world.found(70), world.engine.cached_blocks, world.step.evicted_blocks) == (1, 1, 0)
    assert take(world, 2, 1) == [1]
    assert (world.found(70), world.engine.cached_blocks, world.step.evicted_blocks) == (NONE, 0, 1)


def test_keys_that_are_not_listed_are_counted_as_cached_and_as_evicted(world):
    take(world, 0, 2)
    world.engine.cached_blocks += 2  # as seats.register counts them
    release(world, 0, held=2, keyed=2, listed=0)
    assert world.idle_blocks() == [3, 4, 5, 6, 7, 8, 2, 1]
    take(world, 1, 7)
    assert (world.engine.cached_blocks, world.step.evicted_blocks) == (1, 1)


def test_a_hit_revives_an_idle_block(world):
    take(world, 0, 2)
    for at, key in enumerate((70, 71)):
        world.list(0, at, key)
    release(world, 0, held=2, keyed=2, listed=2)
    assert world.idle_blocks() == [3, 4, 5, 6, 7, 8, 2, 1]
    world.call(block_pool.share, number=world.listed(71))
    assert world.engine.free_blocks == 7
    assert world.idle_blocks() == [3, 4, 5, 6, 7, 8, 1]
    assert take(world, 1, 7) == [3, 4, 5, 6, 7, 8, 1]  # the hole where it stood is passed over


def test_a_block_can_be_revived_any_number_of_times(world):
    """Each hit leaves a hole in a ring of 32 entries; they are closed in time and every entry is found again."""
    take(world, 0, 3)
    for at, key in enumerate((70, 71, 72)):
        world.list(0, at, key)
    release(world, 0, held=3, keyed=3, listed=3)
    order = [3, 2, 1]
    for turn in range(100):
        block = order.pop(turn % 2)
        number = world.listed(69 + block)
        world.call(block_pool.share, number=number)
        assert world.idle_blocks() == [4, 5, 6, 7, 8, *order]
        world.tables[0, 0] = number
        release(world, 0, held=1, keyed=1, listed=1)
        order.append(block)
        assert world.idle_blocks() == [4, 5, 6, 7, 8, *order]
        assert world.engine.idle_tail - world.engine.idle_head <= len(world.idle)


def test_a_shared_block_is_idle_when_its_last_user_leaves(world):
    take(world, 0, 1)
    world.list(0, 0, 70)
    world.tables[1, 0] = world.listed(70)
    world.call(block_pool.share, number=world.listed(70))
    release(world, 0, held=1, keyed=1, listed=1)
    assert 1 not in world.idle_blocks()
    assert world.engine.free_blocks == 7
    release(world, 1, held=1, keyed=1, listed=1)
    assert world.idle_blocks()[-1] == 1
    assert world.engine.free_blocks == 8


def test_the_checksum_of_new_blocks_is_the_one_of_zlib():
    world = World(audit=True)
    blocks = take(world, 0, 3) + take(world, 0, 2, held=3)
    assert world.step.new_blocks_crc == zlib.crc32(np.array(blocks, np.int32).tobytes())


@given(st.lists(st.tuples(st.sampled_from("tsr"), st.integers(0, 5), st.integers(1, 4)), max_size=60))
def test_free_plus_held_blocks_is_all_blocks(moves):
    """Requests take, share their first block and release in any order: no block is lost, none is held and idle."""
    world, held, key = World(), {}, 1
    for move, slot, count in moves:
        if move == "t" and slot not in held and count <= world.engine.free_blocks:
            take(world, slot, count)
            for at in range(count):
                world.list(slot, at, key)
                key += 1
            held[slot] = count
        elif move == "s" and slot not in held and held:
            owner = min(held)
            world.tables[slot, 0] = world.tables[owner, 0]
            world.call(block_pool.share, number=world.tables[owner, 0])
            held[slot] = 1
        elif move == "r" and slot in held:
            count = held.pop(slot)
            release(world, slot, count, keyed=count, listed=count)
        used = {world.block(number) for slot, count in held.items() for number in world.tables[slot, :count]}
        idle = world.idle_blocks()
        assert sorted([*used, *idle]) == list(range(1, 9))
        assert world.engine.free_blocks == len(idle)
