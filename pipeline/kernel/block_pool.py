"""Block pool: equal KV blocks, shared by reference count, idle ones kept coldest first.

Idle blocks stand in a queue, `idle`, a ring of entries between `engine.idle_head` and `engine.idle_tail`.
The head is the next to be handed out. An entry is a number and what is known of the block's content:

* PLAIN: nothing, it can be overwritten at no loss;
* UNLISTED: it has a key, but only the request that computed it could find it, and that is gone for good;
* LISTED: it stands in the prefix index and can be revived by a hit, which leaves a hole in the queue.

While a request holds a block, its kind follows from its place in the request (SLOT.keyed, SLOT.listed), so
only listed blocks need a record of their own, in `cached`. Those go by their number there, in the queue as in
the requests' `tables`; all others by the number of the block. Block 0 is vLLM's null block and never idle.

Source of the order: vLLM 0.33, FreeKVCacheBlockQueue and BlockPool.
"""

import numpy as np

from pipeline.kernel import prefix_index
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import NONE, RUN_BITS

PLAIN, UNLISTED, LISTED = 0, 1, 2


def fill(idle: np.ndarray, num_blocks: int) -> None:
    """Queue every block but the null block, in order of number (plain Python, once)."""
    idle[: num_blocks - 1] = 4 * np.arange(1, num_blocks)


@inlined
def take(cached, runs, index, idle, tables, slot, held, count, engine, step):
    """Hand out `count` idle blocks, coldest first, and append them to `tables[slot, held:]`.

    There must be so many. A block whose content has a key loses it: that is eviction.
    """
    head, mask = engine.idle_head, engine.idle_mask
    end = held + count
    evicted = 0
    run = NONE
    alone = False
    while held < end:
        entry = idle[head & mask]
        head += 1
        if entry == NONE:
            continue
        block, kind = entry >> 2, entry & 3
        if kind == LISTED:
            number = block
            block = cached[number].block
            if number >> RUN_BITS != run:
                run = number >> RUN_BITS
                alone = prefix_index.is_alone(runs, index, run, engine)
            prefix_index.drop(cached, runs, index, number, alone, engine)
            evicted += 1
        elif kind == UNLISTED:
            engine.cached_blocks -= 1
            evicted += 1
        tables[slot, held] = block
        held += 1
    engine.idle_head = head
    step.evicted_blocks += evicted
    engine.free_blocks -= count
    step.new_blocks += count
    if engine.audit:
        for i in range(count):
            step.new_blocks_crc = _crc32(step.new_blocks_crc, tables[slot, end - count + i])


@inlined
def share(cached, idle, number, engine):
    """Add a user to a listed block; an idle one leaves the queue."""
    this = cached[number]
    if this.refs == 0:
        if this.watch == engine.watch:
            engine.watch_stale = 1
        idle[this.place] = NONE
        engine.free_blocks -= 1
    this.refs += 1


@inlined
def release(cached, idle, tables, slot, held, keyed, listed, engine):
    """Give back `tables[slot, :held]`, of which the first `keyed` have a key and the first `listed` are listed.

    Blocks without a key go to the front of the queue as a group, the last of the request foremost; blocks
    with one go to the back, the last of the request before its first.
    """
    if engine.idle_tail - engine.idle_head + held > len(idle):
        _close_holes(cached, idle, engine)
    for i in range(keyed, held):
        engine.idle_head -= 1
        idle[engine.idle_head & engine.idle_mask] = 4 * tables[slot, i]
    for i in range(keyed - 1, listed - 1, -1):
        idle[engine.idle_tail & engine.idle_mask] = 4 * tables[slot, i] + UNLISTED
        engine.idle_tail += 1
    first = tail = engine.idle_tail
    for i in range(min(keyed, listed) - 1, -1, -1):
        number = tables[slot, i]
        this = cached[number]
        this.refs -= 1
        if this.refs == 0:
            if this.watch == engine.watch:
                engine.watch_stale = 1
            place = tail & engine.idle_mask
            this.place = place
            idle[place] = 4 * number + LISTED
            tail += 1
    engine.idle_tail = tail
    engine.free_blocks += held - min(keyed, listed) + tail - first


@compiled
def _close_holes(cached, idle, engine):
    """Move the idle blocks together, in order; holes are as many as releases since the last time, or fewer."""
    end = engine.idle_head
    for at in range(engine.idle_head, engine.idle_tail):
        entry = idle[at & engine.idle_mask]
        if entry == NONE:
            continue
        place = end & engine.idle_mask
        idle[place] = entry
        if entry & 3 == LISTED:
            cached[entry >> 2].place = place
        end += 1
    engine.idle_tail = end


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _crc_table()


@inlined
def _crc32(crc, block):
    """Continue a CRC-32 (the one of zlib) over one block id as little-endian int32."""
    value = np.uint32(block)
    crc = ~np.uint32(crc)
    for _ in range(4):
        crc = _CRC[np.uint32(crc ^ value) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        value = value >> np.uint32(8)
    return ~crc
