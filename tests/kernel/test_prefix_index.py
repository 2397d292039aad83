"""Which block holds which content: names of blocks, and the table that finds them."""

import numpy as np
import pytest

from pipeline.kernel import prefix_index
from pipeline.kernel.layout import NONE
from tests.kernel.world import World


@pytest.fixture
def world():
    return World()


def put(world, block, key):
    world.call(prefix_index.put, block=block, new_key=np.uint64(key), home=key % len(world.index))


def find(world, key):
    return world.call(prefix_index.find, wanted=np.uint64(key), home=key % len(world.index))


def drop(world, block):
    world.call(prefix_index.drop, block=block)


def key(world, request, block, hashes=(), prefix_tokens=0, block_tokens=1):
    owner = world.requests[0]
    owner.prefix_start, owner.prefix_tokens, owner.prefix_block_tokens = 0, prefix_tokens, block_tokens
    world.hashes[: len(hashes)] = np.array(hashes, np.uint64)
    stem, offset, *_ = world.call(prefix_index.stem, owner=owner, request=request, block=block)
    return int(prefix_index.name(np.uint64(stem), offset))


def test_mixing_is_that_of_splitmix64():
    """First outputs of the published generator for seeds 0 and 1234567 (its state grows by the golden ratio)."""
    golden = 0x9E3779B97F4A7C15
    assert int(prefix_index.mix(np.uint64(golden))) == 0xE220A8397B1DCDAF
    assert int(prefix_index.mix(np.uint64((1234567 + golden) % 2**64))) == 6457827717110365317


def test_what_is_not_there_is_not_found(world):
    put(world, 1, 70)
    assert find(world, 71) == NONE


def test_keys_of_one_chain_are_told_apart(world):
    """The index has 32 chains here: keys 32 apart share one."""
    for block, k in ((1, 5), (2, 5 + 32), (3, 5 + 64)):
        put(world, block, k)
    assert [find(world, k) for k in (5, 37, 69, 101)] == [1, 2, 3, NONE]
    drop(world, 2)
    assert [find(world, k) for k in (5, 37, 69)] == [1, NONE, 3]
    drop(world, 1)
    assert [find(world, k) for k in (5, 37, 69)] == [NONE, NONE, 3]
    put(world, 1, 37)
    drop(world, 3)
    assert [find(world, k) for k in (5, 37, 69)] == [NONE, 1, NONE]


def test_of_equal_blocks_the_one_registered_first_is_found(world):
    put(world, 3, 70)
    put(world, 1, 70)
    assert (find(world, 70), world.engine.cached_blocks) == (3, 1)
    drop(world, 3)
    assert (find(world, 70), world.engine.cached_blocks) == (1, 1)
    drop(world, 1)
    assert (find(world, 70), world.engine.cached_blocks) == (NONE, 0)


def test_a_hashed_block_is_named_by_its_hash_whoever_has_it(world):
    """Blocks of 4 tokens, trace blocks of 8: two engine blocks end in each, at different offsets."""
    hashes = (111, 222)
    keys = [key(world, 0, block, hashes, prefix_tokens=16, block_tokens=8) for block in range(4)]
    assert len(set(keys)) == 4
    assert [key(world, 9, block, hashes, prefix_tokens=16, block_tokens=8) for block in range(4)] == keys
    other = [key(world, 0, block, (111, 333), prefix_tokens=16, block_tokens=8) for block in range(4)]
    assert other[:2] == keys[:2]
    assert not set(other[2:]) & set(keys)


def test_a_partial_trace_block_names_only_the_tokens_it_covers(world):
    """Ten tokens are covered: engine blocks of 4 end at 4 and 8, the third reaches beyond and is the request's own."""
    hashes = (111, 222)
    one, two = ([key(world, r, b, hashes, prefix_tokens=10, block_tokens=8) for b in range(3)] for r in (0, 1))
    assert one[:2] == two[:2]
    assert one[2] != two[2]


def test_a_block_of_several_trace_blocks_is_named_by_the_last(world):
    """Trace blocks of 2 tokens: the engine block [0, 4) ends in the second of them."""
    assert key(world, 0, 0, (111, 222), 4, 2) == key(world, 0, 0, (999, 222), 4, 2)
    assert key(world, 0, 0, (111, 222), 4, 2) != key(world, 0, 0, (111, 333), 4, 2)


def test_blocks_of_a_request_are_its_own(world):
    keys = {key(world, request, block) for request in range(50) for block in range(50)}
    assert len(keys) == 2500
