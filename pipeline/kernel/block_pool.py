"""Block pool: equal KV blocks, shared by reference count, idle ones kept coldest first.

Idle blocks form a ring through one extra row, the sentinel: `blocks[sentinel].newer` is the next to be
handed out. An idle block keeps its key, so a later prefix hit can revive it; a key is dropped only when
its block is handed out. Block 0 is vLLM's null block and never enters the ring.

Source of the order: vLLM 0.33, FreeKVCacheBlockQueue and BlockPool.
"""

import numpy as np

from pipeline.kernel import prefix_index
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import NONE


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _crc_table()


def fill(blocks) -> None:
    """Put every block but the null block into the ring, in order of number (plain Python, once)."""
    sentinel = len(blocks) - 1
    blocks.home = NONE
    order = np.concatenate([[sentinel], np.arange(1, sentinel), [sentinel]])
    blocks["newer"][order[:-1]] = order[1:]
    blocks["older"][order[1:]] = order[:-1]


@inlined
def take(blocks, index, table, count, held, engine, step):
    """Hand out `count` idle blocks, coldest first, and append them to `table[held:]`.

    There must be so many. A block that still has a key loses it: that is eviction.
    """
    sentinel = len(blocks) - 1
    block = blocks[sentinel].newer
    for i in range(count):
        this = blocks[block]
        if this.home != NONE:
            prefix_index.drop(blocks, index, block, engine)
            step.evicted_blocks += 1
        this.refs = 1
        table[held + i] = block
        if engine.audit:
            step.new_blocks_crc = _crc32(step.new_blocks_crc, block)
        block = this.newer
    blocks[sentinel].newer = block
    blocks[block].older = sentinel
    engine.free_blocks -= count
    step.new_blocks += count


@inlined
def share(blocks, block, engine):
    """Add a user to a block; an idle one leaves the ring."""
    this = blocks[block]
    if this.refs == 0:
        blocks[this.older].newer = this.newer
        blocks[this.newer].older = this.older
        engine.free_blocks -= 1
    this.refs += 1


@inlined
def release(blocks, table, held, engine):
    """Give back `table[:held]`, last block first.

    Blocks without a key go to the front of the ring as a group, the last of the request foremost; blocks
    with one go to the back, the last of the request before its first.
    """
    sentinel = len(blocks) - 1
    front = sentinel
    for i in range(held - 1, -1, -1):
        block = table[i]
        this = blocks[block]
        this.refs -= 1
        if this.refs > 0:
            continue
        engine.free_blocks += 1
        if this.home == NONE:
            after = blocks[front].newer
            this.older = front
            front_block = front
            front = block
        else:
            after = np.int32(sentinel)
            front_block = blocks[sentinel].older
            this.older = front_block
        this.newer = after
        blocks[front_block].newer = block
        blocks[after].older = block


@inlined
def _crc32(crc, block):
    """Continue a CRC-32 (the one of zlib) over one block id as little-endian int32."""
    value = np.uint32(block)
    crc = ~np.uint32(crc)
    for _ in range(4):
        crc = _CRC[np.uint32(crc ^ value) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        value = value >> np.uint32(8)
    return ~crc
