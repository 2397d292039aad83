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
from pipeline.kernel.layout import NONE


@inlined
def mix(word):
    """Scatter 64 bits, one to one (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    word = np.uint64(word)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@inlined
def key(hashes, owner, request, block, engine):
    """Return the key of block number `block` of a request.

    owner : REQUEST or SLOT record, for its prefix_start, prefix_tokens, prefix_block_tokens
    """
    end = (block + 1) * engine.block_size
    if end <= owner.prefix_tokens:
        trace_block = trace_block_of(owner, end)
        return shared_key(mixed_hash(hashes, owner, trace_block, engine), owner, trace_block, end)
    own = mix(np.uint64(request) + np.uint64(0x632BE59BD9B4E019))
    return mix(own + np.uint64(block) * np.uint64(0x9E3779B97F4A7C15))


@inlined
def trace_block_of(owner, end):
    """Return the trace block that holds the token before `end`."""
    return (end - 1) // owner.prefix_block_tokens


@inlined
def mixed_hash(hashes, owner, trace_block, engine):
    """Return a trace block's hash, scattered: hashes may be numbers in a row, and offsets would meet them."""
    return mix(hashes[(owner.prefix_start + trace_block) & engine.hash_mask])


@inlined
def shared_key(mixed, owner, trace_block, end):
    """Return the key of the block that ends at token `end` in this trace block."""
    offset = end - trace_block * owner.prefix_block_tokens
    return mix(mixed + np.uint64(offset) * np.uint64(0x9E3779B97F4A7C15))


@inlined
def find(blocks, index, wanted, engine):
    """Return the block registered first under a key, or NONE."""
    block = index[np.int64(wanted & np.uint64(engine.index_mask))]
    while block != NONE and blocks[block].key != wanted:
        block = blocks[block].chain_later
    return block


@inlined
def put(blocks, index, block, new_key, engine):
    """Register a block that one request holds, behind all others of its chain."""
    home = np.int64(new_key & np.uint64(engine.index_mask))
    this = blocks[block]
    this.key = new_key
    this.home = home
    this.refs = 1
    this.chain_later = NONE
    last = NONE
    known = False
    other = index[home]
    while other != NONE:
        known = known or blocks[other].key == new_key
        last = other
        other = blocks[other].chain_later
    this.chain_earlier = last
    if last == NONE:
        index[home] = block
    else:
        blocks[last].chain_later = block
    if not known:
        engine.cached_blocks += 1
    if new_key == engine.watch_key:
        engine.watch_stale = 1


@inlined
def drop(blocks, index, block, engine):
    """Forget the key of a block."""
    this = blocks[block]
    home = this.home
    if this.watch == engine.watch:
        engine.watch_stale = 1
    if this.chain_earlier == NONE:
        index[home] = this.chain_later
    else:
        blocks[this.chain_earlier].chain_later = this.chain_later
    if this.chain_later != NONE:
        blocks[this.chain_later].chain_earlier = this.chain_earlier
    if find(blocks, index, this.key, engine) == NONE:
        engine.cached_blocks -= 1
