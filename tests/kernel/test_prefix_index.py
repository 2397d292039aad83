"""Which block holds which content: where blocks are listed, and the table that finds them."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kernel import prefix_index
from pipeline.kernel.layout import NONE, RUN_BLOCKS
from tests.kernel.world import World


@pytest.fixture
def world():
    return World()


def put(world, block, key, place=0):
    """List a block that stands at the start of a request's table."""
    world.tables[0, 0] = block
    world.list(0, 0, key, place)


def drop(world, key, place=0):
    """Drop the block that a lookup gives."""
    number = world.listed(key, place)
    alone = world.call(prefix_index.is_alone, run=number // RUN_BLOCKS)
    world.call(prefix_index.drop, number=number, alone=alone)


def name(world, request, block, hashes=(), prefix_tokens=0, block_tokens=1):
    """Return where a block is listed: key of the run, place in it."""
    owner = world.requests[0]
    owner.prefix_start, owner.prefix_tokens, owner.prefix_block_tokens = 0, prefix_tokens, block_tokens
    world.hashes[: len(hashes)] = np.array(hashes, np.uint64)
    return world.call(prefix_index.stretch, owner=owner, request=request, block=block)[:2]


def stretch(world, block, prefix_tokens, block_tokens):
    name(world, 0, 0, (1, 2, 3, 4), prefix_tokens, block_tokens)
    return int(world.call(prefix_index.stretch, owner=world.requests[0], request=0, block=block)[2])


def test_mixing_is_that_of_splitmix64():
    """First outputs of the published generator for seeds 0 and 1234567 (its state grows by the golden ratio)."""
    golden = 0x9E3779B97F4A7C15
    assert int(prefix_index.mix(np.uint64(golden))) == 0xE220A8397B1DCDAF
    assert int(prefix_index.mix(np.uint64((1234567 + golden) % 2**64))) == 6457827717110365317


def test_what_is_not_there_is_not_found(world):
    put(world, 1, 70)
    assert (world.found(71), world.found(70, 1)) == (NONE, NONE)


def test_keys_of_one_chain_are_told_apart(world):
    """The index has 32 chains here: keys 32 apart share one."""
    for block, key in ((1, 5), (2, 5 + 32), (3, 5 + 64)):
        put(world, block, key)
    assert [world.found(key) for key in (5, 37, 69, 101)] == [1, 2, 3, NONE]
    drop(world, 37)
    assert [world.found(key) for key in (5, 37, 69)] == [1, NONE, 3]
    drop(world, 5)
    assert [world.found(key) for key in (5, 37, 69)] == [NONE, NONE, 3]
    put(world, 1, 37)
    drop(world, 69)
    assert [world.found(key) for key in (5, 37, 69)] == [NONE, 1, NONE]


def test_of_equal_blocks_the_one_registered_first_is_found(world):
    put(world, 3, 70)
    put(world, 1, 70)
    assert (world.found(70), world.engine.cached_blocks) == (3, 1)
    drop(world, 70)
    assert (world.found(70), world.engine.cached_blocks) == (1, 1)
    drop(world, 70)
    assert (world.found(70), world.engine.cached_blocks) == (NONE, 0)


def test_a_place_left_by_an_earlier_block_is_not_taken_before_a_later_one(world):
    """Blocks 1 and 2 are equal, in two runs; the first leaves, and 3, equal too, stands behind 2."""
    put(world, 1, 70)
    put(world, 5, 70, place=1)  # keeps the first run open
    put(world, 2, 70)
    drop(world, 70)
    put(world, 3, 70)
    assert world.found(70) == 2
    drop(world, 70)
    assert world.found(70) == 3


MOVES = st.tuples(st.sampled_from("ppd"), st.sampled_from((5, 37, 70)), st.integers(0, 3), st.integers(1, 3))


@given(st.lists(MOVES, max_size=80))
def test_the_index_agrees_with_lists_of_blocks(moves):
    """Two keys share a chain; equal blocks leave in any order."""
    world, twin, number_of = World(num_gpu_blocks=40), defaultdict(list), {}
    free = list(range(1, 40))
    for move, key, place, count in moves:
        if move == "p" and len(free) >= count:
            blocks = [free.pop() for _ in range(count)]
            world.tables[0, :count] = blocks
            world.list(0, 0, key, place, count)
            for i, block in enumerate(blocks):
                twin[key, place + i].append(block)
                number_of[block] = int(world.tables[0, i])
        elif move == "d" and twin[key, place]:
            block = twin[key, place].pop((7 * count) % len(twin[key, place]))
            number = number_of[block]
            alone = world.call(prefix_index.is_alone, run=number // RUN_BLOCKS)
            world.call(prefix_index.drop, number=number, alone=alone)
            free.append(block)
        assert all(world.found(*at) == (blocks[0] if blocks else NONE) for at, blocks in twin.items())
        assert world.engine.cached_blocks == sum(bool(blocks) for blocks in twin.values())


def test_a_hashed_block_is_named_by_its_hash_whoever_has_it(world):
    """Blocks of 4 tokens, trace blocks of 8: two engine blocks end in each, at different offsets."""
    hashes = (111, 222)
    names = [name(world, 0, block, hashes, prefix_tokens=16, block_tokens=8) for block in range(4)]
    assert len(set(names)) == 4
    assert [name(world, 9, block, hashes, prefix_tokens=16, block_tokens=8) for block in range(4)] == names
    other = [name(world, 0, block, (111, 333), prefix_tokens=16, block_tokens=8) for block in range(4)]
    assert other[:2] == names[:2]
    assert not set(other[2:]) & set(names)


def test_blocks_that_end_at_different_offsets_of_one_hash_have_different_names(world):
    """Trace blocks of 6 tokens under blocks of 4: ends 4 and 8, 12 lie at offsets 4; 2, 6 of their hashes."""
    names = [name(world, 0, block, (111, 111), prefix_tokens=12, block_tokens=6) for block in range(3)]
    assert len(set(names)) == 3


def test_a_partial_trace_block_names_only_the_tokens_it_covers(world):
    """Ten tokens are covered: engine blocks of 4 end at 4 and 8, the third reaches beyond and is the request's own."""
    hashes = (111, 222)
    one, two = ([name(world, r, b, hashes, prefix_tokens=10, block_tokens=8) for b in range(3)] for r in (0, 1))
    assert one[:2] == two[:2]
    assert one[2] != two[2]


def test_a_block_of_several_trace_blocks_is_named_by_the_last(world):
    """Trace blocks of 2 tokens: the engine block [0, 4) ends in the second of them."""
    assert name(world, 0, 0, (111, 222), 4, 2) == name(world, 0, 0, (999, 222), 4, 2)
    assert name(world, 0, 0, (111, 222), 4, 2) != name(world, 0, 0, (111, 333), 4, 2)


def test_a_stretch_ends_with_the_trace_block_the_hashes_and_the_run(world):
    """Blocks of 4 tokens: trace blocks of 12 hold three; 20 tokens are covered; a run has 16."""
    assert [stretch(world, block, 20, 12) for block in range(5)] == [3, 2, 1, 2, 1]
    assert [stretch(world, block, 100, 100) for block in (0, 15, 16, 24)] == [16, 1, 9, 1]


def test_blocks_of_a_request_are_its_own(world):
    names = {name(world, request, block) for request in range(50) for block in range(50)}
    assert len(names) == 2500
