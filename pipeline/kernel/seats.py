"""Seats: the running list in order of admission, and the blocks of those who sit in it."""

import numpy as np

from pipeline.kernel import block_pool, prefix_index
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import NONE, PREFILL, RUNNING

ALL_BLOCKS = np.iinfo(np.int32).max


@inlined
def take(requests, slots, row, hits, engine):
    """Seat a waiting request at the end of the running list, holding `hits` cached blocks; return its slot."""
    slot = engine.idle_slot
    request, this = requests[row & engine.window_mask], slots[slot]
    engine.idle_slot = this.later
    request.life = RUNNING
    request.slot = slot
    request.seat = engine.seats
    this.request = row
    this.seat = engine.seats
    engine.seats += 1
    this.prefix_start = request.prefix_start
    this.prefix_tokens = request.prefix_tokens
    this.prefix_block_tokens = request.prefix_block_tokens
    this.input_tokens = request.input_tokens
    this.target_tokens = request.target_tokens
    this.known_tokens = request.known_tokens
    this.gap_step = request.gap_step
    this.gap_ns = request.gap_ns
    this.gap_after = NONE
    this.served_step = NONE
    this.computed_tokens = hits * engine.block_size
    engine.held_tokens += this.computed_tokens
    this.blocks = hits
    this.keyed = hits
    # After a preemption copies of the request's own blocks may still be cached, so it lists the new ones as well.
    this.shared = request.prefix_tokens // engine.block_size
    this.listed = ALL_BLOCKS if request.preemptions > 0 else this.shared
    this.fresh = 0
    this.later = NONE
    this.earlier = engine.running_tail
    if engine.running_tail == NONE:
        engine.running_head = slot
    else:
        slots[engine.running_tail].later = slot
    engine.running_tail = slot
    engine.running += 1
    _join_prefills(slots, slot, engine)
    return slot


@inlined
def leave(slots, tables, cached, idle, slot, computed_tokens, engine):
    """Give back seat and blocks; the request must be in no other group, and has `computed_tokens` tokens in KV."""
    this = slots[slot]
    engine.held_tokens -= computed_tokens
    block_pool.release(cached, idle, tables, slot, this.blocks, this.keyed, this.listed, engine)
    this.blocks = 0
    if this.earlier == NONE:
        engine.running_head = this.later
    else:
        slots[this.earlier].later = this.later
    if this.later == NONE:
        engine.running_tail = this.earlier
    else:
        slots[this.later].earlier = this.earlier
    engine.running -= 1
    this.later = engine.idle_slot
    engine.idle_slot = slot


@inlined
def leave_prefills(slots, slot, engine):
    """Take a request out of the list of those that compute known tokens."""
    this = slots[slot]
    if this.group_earlier == NONE:
        engine.prefill_head = this.group_later
    else:
        slots[this.group_earlier].group_later = this.group_later
    if this.group_later == NONE:
        engine.prefill_tail = this.group_earlier
    else:
        slots[this.group_later].group_earlier = this.group_earlier
    engine.prefilling -= 1


@inlined
def blocks_short(this, tokens, engine):
    """Return how many more blocks a request needs to hold `tokens` tokens."""
    return max(0, (tokens + engine.block_size - 1) // engine.block_size - this.blocks)


@inlined
def extend(slots, tables, cached, runs, index, idle, slot, tokens, engine, step):
    """Give a request the blocks for `tokens` tokens; they must be idle."""
    this = slots[slot]
    more = blocks_short(this, tokens, engine)
    if more > 0:
        block_pool.take(cached, runs, index, idle, tables, slot, this.blocks, more, engine, step)
        this.blocks += more


@inlined
def register(slots, tables, cached, runs, index, hashes, slot, full, engine):
    """Put the first `full` blocks of a request into the prefix index, where they are not yet."""
    this = slots[slot]
    if full <= this.keyed or not engine.prefix_caching:
        return
    _put(slots, tables, cached, runs, index, hashes, slot, this.keyed, min(full, this.listed), engine)
    engine.cached_blocks += full - min(full, max(this.keyed, this.listed))
    this.keyed = full


@inlined
def _put(slots, tables, cached, runs, index, hashes, slot, first, end, engine):
    """List blocks `first` to `end` of a request in the prefix index, one run after the other."""
    this = slots[slot]
    while first < end:
        key, place, count = prefix_index.stretch(hashes, this, this.request, first, engine)
        count = min(count, end - first)
        prefix_index.put(cached, runs, index, tables, slot, first, count, key, place, engine)
        first += count


@inlined
def full_blocks(tokens, engine):
    """Return how many blocks so many tokens fill."""
    return tokens // engine.block_size


@inlined
def list_blocks(slots, tables, cached, runs, index, hashes, slot, engine):
    """Put into the prefix index what only this request can find: it is about to be preempted."""
    this = slots[slot]
    engine.cached_blocks -= max(0, this.keyed - this.listed)
    _put(slots, tables, cached, runs, index, hashes, slot, this.listed, this.keyed, engine)
    this.listed = ALL_BLOCKS


@inlined
def _join_prefills(slots, slot, engine):
    this = slots[slot]
    this.state = PREFILL
    this.group_later = NONE
    this.group_earlier = engine.prefill_tail
    if engine.prefill_tail == NONE:
        engine.prefill_head = slot
    else:
        slots[engine.prefill_tail].group_later = slot
    engine.prefill_tail = slot
    engine.prefilling += 1
