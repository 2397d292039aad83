"""Prefix index: which block holds which content.

A hash table of chains that run through the block records, in order of registration: a lookup returns
the block registered first among those still there, as vLLM 0.33 does. Blocks with equal keys may stand
side by side; `engine.cached_blocks` counts distinct keys.

A key names everything up to the end of a block. Under the trace's identity rule (traces/README.md) the
block that ends at token `e` is known by the hash of the trace block that holds token `e - 1` and by the
offset of `e` in it; beyond the hashed tokens by the request itself.

A block of the latter kind can only ever be found by its own request, and only after a preemption. So it
is counted but not listed here before its request is preempted; most never are.
"""

import numpy as np

from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import CHAIN_LATER, HOME, NONE, REFS, WATCH


@inlined
def mix(word):
    """Scatter 64 bits, one to one (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    word = np.uint64(word)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@inlined
def stem(hashes, owner, request, block, engine):
    """Return what the names of a request's blocks from number `block` on are made of.

    owner : REQUEST or SLOT record, for its prefix_start, prefix_tokens, prefix_block_tokens

    Returns (stem, offset, stride, rank, count): `count` blocks in a row have this stem, the first with `offset`
    and `rank`, each next one with an offset larger by `stride` and a rank larger by 1; `name` and `home` take it
    from there. So the hash of a trace block is scattered once for all engine blocks that end in it.
    """
    size = engine.block_size
    end = (block + 1) * size
    if end > owner.prefix_tokens:
        own = mix(np.uint64(request) + np.uint64(0x632BE59BD9B4E019))
        return own, np.int64(block), np.int64(1), np.int64(block), np.int64(1 << 40)
    trace_block = (end - 1) // owner.prefix_block_tokens
    # Hashes may be numbers in a row, and offsets would meet them: scatter.
    mixed = mix(hashes[(owner.prefix_start + trace_block) & engine.hash_mask])
    offset = end - trace_block * owner.prefix_block_tokens
    last = min(owner.prefix_block_tokens - offset, owner.prefix_tokens - end)
    return mixed, np.int64(offset), np.int64(size), np.int64(offset // size), np.int64(last // size + 1)


@inlined
def name(stem, offset):
    """Return the key of the block at this offset of a stem."""
    return mix(stem + np.uint64(offset) * np.uint64(0x9E3779B97F4A7C15))


@inlined
def home(stem, rank, engine):
    """Return the chain in which a block is kept.

    Chains of blocks that follow each other lie side by side: a prompt is looked up, registered and evicted along
    the table, not across it, which is most of the cost of long prompts.
    """
    return np.int64((stem + np.uint64(rank)) & np.uint64(engine.index_mask))


@inlined
def find(blocks, keys, index, wanted, home):
    """Return the block registered first under a key, or NONE."""
    block = index[home]
    while block != NONE and keys[block] != wanted:
        block = blocks[CHAIN_LATER, block]
    return block


@inlined
def put(blocks, keys, index, block, new_key, home, engine):
    """Register a block that one request holds, behind all others of its chain."""
    keys[block] = new_key
    blocks[HOME, block] = home
    blocks[REFS, block] = 1
    blocks[CHAIN_LATER, block] = NONE
    other = index[home]
    known = False
    if other == NONE:
        index[home] = block
    else:
        last = other
        while other != NONE:
            known = known or keys[other] == new_key
            last = other
            other = blocks[CHAIN_LATER, other]
        blocks[CHAIN_LATER, last] = block
    if not known:
        engine.cached_blocks += 1
    if new_key == engine.watch_key:
        engine.watch_stale = 1


@inlined
def drop(blocks, keys, index, block, engine):
    """Forget the key of a block."""
    if blocks[WATCH, block] == engine.watch:
        engine.watch_stale = 1
    home = blocks[HOME, block]
    later = blocks[CHAIN_LATER, block]
    other = index[home]
    if other == block:
        index[home] = later
    else:
        while blocks[CHAIN_LATER, other] != block:
            other = blocks[CHAIN_LATER, other]
        blocks[CHAIN_LATER, other] = later
    if find(blocks, keys, index, keys[block], home) == NONE:
        engine.cached_blocks -= 1
