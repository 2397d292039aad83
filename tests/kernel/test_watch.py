"""The watch on a head of the queue that does not fit: what it would hit is looked up again only when it may differ."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.kernel import admission, block_pool, prefix_index, wait_queue
from pipeline.kernel.layout import NONE
from tests.kernel.world import World

BLOCK = 4
TEXT = 6  # blocks of the common text


def text_world(prompts=(25,), **settings):
    """Return a world whose rows, of so many tokens, all begin with one text of 24 tokens."""
    world = World(block_size=BLOCK, **settings)
    world.load(input_tokens=list(prompts))
    world.hashes[:TEXT] = np.arange(1, TEXT + 1)
    for row in range(len(prompts)):
        owner = world.requests[row]
        owner.prefix_start, owner.prefix_tokens, owner.prefix_block_tokens = 0, BLOCK * TEXT, BLOCK
    return world


def name(world, block):
    """Return key and place of the run where a block of the text is listed."""
    key, place, _ = world.call(prefix_index.stretch, owner=world.requests[0], request=0, block=block)
    return {"key": key, "place": place}


def find(world, block):
    return world.listed(**name(world, block))


def cached(world, row=0):
    """Return the blocks that a row would hit, found one by one."""
    found = []
    for block in range((int(world.requests[row].known_tokens) - 1) // BLOCK):
        number = find(world, block)
        if number == NONE:
            break
        found.append(number)
    return found


def watch(world, row=0):
    request = world.requests[row]
    world.call(admission._look_up, request=request, row=row)
    world.call(admission._watch, request=request, row=row)


def start(world, slot, count):
    """Let a request compute so many blocks of the text, less what it hits; return whether there is room."""
    hits = cached(world)[:count]
    idle_hits = sum(world.cached[number].refs == 0 for number in hits)
    if count - len(hits) > world.engine.free_blocks - idle_hits:
        return False
    for place, number in enumerate(hits):
        world.call(block_pool.share, number=number)
        world.tables[slot, place] = number
    world.call(block_pool.take, slot=slot, held=len(hits), count=count - len(hits))
    for block in range(len(hits), count):
        world.list(slot, block, **name(world, block))
    return True


def leave(world, slot, count):
    world.call(block_pool.release, slot=slot, held=count, keyed=count, listed=count)


@given(st.lists(st.tuples(st.sampled_from("ssplw"), st.integers(0, 5), st.integers(1, TEXT)), max_size=60))
def test_a_watch_holds_what_a_look_up_would_find_or_knows_that_it_may_not(moves):
    """Requests start on the text, take plain blocks and leave; the head is looked up anew only now and then."""
    world, held = text_world(), {}
    watch(world)
    for move, slot, count in moves:
        if move == "s" and slot not in held and start(world, slot, count):
            held[slot] = (count, True)
        elif move == "p" and slot not in held and count <= world.engine.free_blocks:
            world.call(block_pool.take, slot=slot, held=0, count=count)
            held[slot] = (count, False)
        elif move == "l" and slot in held:
            count, keyed = held.pop(slot)
            world.call(block_pool.release, slot=slot, held=count, keyed=count * keyed, listed=count * keyed)
        elif move == "w":
            watch(world)
        if not world.engine.watch_stale:
            hits = cached(world)
            assert world.tables[-1, : world.engine.watch_hits].tolist() == hits
            assert world.engine.watch_idle == sum(world.cached[number].refs == 0 for number in hits)


def test_a_watch_is_not_disturbed_by_what_does_not_concern_it():
    world = text_world()
    start(world, 0, 3)
    watch(world)
    assert (world.engine.watched_row, world.engine.watch_hits, world.engine.watch_stale) == (0, 3, 0)
    world.call(block_pool.take, slot=1, held=0, count=2)
    world.call(block_pool.release, slot=1, held=2, keyed=0, listed=0)
    start(world, 1, 3)  # a second user of the same blocks
    leave(world, 1, 3)  # and the first still holds them
    assert not world.engine.watch_stale
    leave(world, 0, 3)
    assert world.engine.watch_stale


def test_blocks_of_an_earlier_watch_do_not_count():
    """Row 0 would hit three blocks and row 1, of nine tokens, two; the third then leaves."""
    world = text_world(prompts=(25, 9))
    start(world, 0, 3)
    watch(world, 0)
    watch(world, 1)
    assert (world.engine.watched_row, world.engine.watch_hits) == (1, 2)
    start(world, 1, 2)
    leave(world, 0, 3)
    assert world.cached[find(world, 2)].refs == 0
    assert not world.engine.watch_stale


def test_a_watch_ends_when_its_request_starts():
    """Six of eight blocks are held by others, the head needs seven: it starts once they are gone."""
    world = text_world(max_num_batched_tokens=64)
    world.engine.budget = 64
    world.call(wait_queue.push_back, row=0)
    world.call(block_pool.take, slot=1, held=0, count=6)
    world.call(admission.admit, start_ns=0)
    assert (world.engine.waiting, world.engine.watched_row) == (1, 0)
    world.call(block_pool.release, slot=1, held=6, keyed=0, listed=0)
    world.call(admission.admit, start_ns=0)
    assert (world.engine.waiting, world.engine.watched_row) == (0, NONE)
