"""Prefix index: which block holds which content.

Blocks that follow each other in a text are listed together, in runs of up to RUN_BLOCKS: number `run *
RUN_BLOCKS + i` of `cached` is block i of a run. So a long prompt is looked up, registered, released and evicted
along the tables, whatever the numbers of its blocks, which any engine soon has shuffled.

A hash table of chains leads to the runs, in order of registration. Blocks with equal content may be listed side
by side, in runs with equal keys: a lookup returns the one registered first among those still there, as vLLM
0.33 does, and `engine.cached_blocks` counts distinct contents.

A name stands for everything up to the end of a block. Under the trace's identity rule (traces/README.md) the
block that ends at token `e` is known by the hash of the trace block that holds token `e - 1` and by the
offset of `e` in it; beyond the hashed tokens by the request itself. The hash, or the request, is the stem of
the name; blocks of one stem differ by their rank, `(offset - 1) // block_size`, or by the rest of the offset, which
is in the key of their run.

A block of a request's own can only ever be found by that request, and only after a preemption. So it is counted
but not listed here before its request is preempted; most never are.
"""

import numpy as np

from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import NONE, RUN_BITS, RUN_BLOCKS


@inlined
def mix(word):
    """Scatter 64 bits, one to one (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    word = np.uint64(word)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@inlined
def stretch(hashes, owner, request, block, engine):
    """Return where block number `block` of a request is listed, and how many after it in the same run.

    owner : REQUEST or SLOT record, for its prefix_start, prefix_tokens, prefix_block_tokens

    Returns (key, rank, count): the key of its run, its place there, and how many of the request's blocks, this one
    included, follow each other in that run.
    """
    size = engine.block_size
    end = (block + 1) * size
    if end > owner.prefix_tokens:
        own = mix(np.uint64(request) + np.uint64(0x632BE59BD9B4E019))
        return _cut(own, np.int64(block), np.int64(RUN_BLOCKS))
    trace_block = (end - 1) // owner.prefix_block_tokens
    # Hashes may be numbers in a row, and offsets would meet them: scatter.
    mixed = mix(hashes[(owner.prefix_start + trace_block) & engine.hash_mask])
    offset = end - trace_block * owner.prefix_block_tokens
    rank = (offset - 1) // size
    left = min(owner.prefix_block_tokens - offset, owner.prefix_tokens - end)
    return _cut(mixed + np.uint64(offset - rank * size), np.int64(rank), np.int64(left // size + 1))


@inlined
def _cut(stem, rank, count):
    """Return the run's key, the place of a rank in it, and how many of the next `count` blocks lie in it."""
    place = rank & (RUN_BLOCKS - 1)
    # The rest of an offset is small, so that the sum names stem, rest and run.
    key = mix(stem + np.uint64(rank >> RUN_BITS) * np.uint64(0x9E3779B97F4A7C15))
    return key, place, min(count, RUN_BLOCKS - place)


@inlined
def first_run(runs, index, key, engine):
    """Return the run registered first under a key, or NONE."""
    run = index[np.int64(key & np.uint64(engine.index_mask))]
    while run != NONE and runs[run].key != key:
        run = runs[run].later
    return run


@inlined
def next_run(runs, run):
    """Return the next run with the same key, or NONE."""
    key = runs[run].key
    run = runs[run].later
    while run != NONE and runs[run].key != key:
        run = runs[run].later
    return run


@inlined
def find(runs, run, place):
    """Return the listed block registered first at a place of `run` or of a later one with its key, or NONE."""
    while run != NONE and (runs[run].present >> place) & 1 == 0:
        run = next_run(runs, run)
    return NONE if run == NONE else run * RUN_BLOCKS + place


@inlined
def put(cached, runs, index, tables, slot, first, count, key, place, engine):
    """List `count` blocks that one request holds, `tables[slot, first:]`, at a run's places from `place` on.

    Each goes behind all others of its content. The table receives their numbers in `cached`.
    """
    run = first_run(runs, index, key, engine)
    if run == NONE:
        run = _open(runs, index, key, engine)
    places = ((1 << count) - 1) << place
    if runs[run].present & places == 0 and next_run(runs, run) == NONE:
        runs[run].present |= places
        for i in range(count):
            _enter(cached, tables, slot, first + i, run * RUN_BLOCKS + place + i)
        engine.cached_blocks += count
    else:
        for i in range(count):
            _put_behind(cached, runs, index, tables, slot, first + i, run, place + i, engine)
    if key == engine.watch_key and (places >> engine.watch_place) & 1:
        engine.watch_stale = 1


@inlined
def _enter(cached, tables, slot, at, number):
    this = cached[number]
    this.block = tables[slot, at]
    this.refs = 1
    tables[slot, at] = number


@compiled
def _put_behind(cached, runs, index, tables, slot, at, run, place, engine):
    """List one block where equal ones may be there already: in the first run after the last one that has one."""
    key = runs[run].key
    known = False
    free = NONE
    while run != NONE:
        if (runs[run].present >> place) & 1:
            known = True
            free = NONE
        elif free == NONE:
            free = run
        run = next_run(runs, run)
    if free == NONE:
        free = _open(runs, index, key, engine)
    runs[free].present |= 1 << place
    _enter(cached, tables, slot, at, free * RUN_BLOCKS + place)
    if not known:
        engine.cached_blocks += 1


@inlined
def is_alone(runs, index, run, engine):
    """Return whether no other run has the key of this one."""
    return first_run(runs, index, runs[run].key, engine) == run and next_run(runs, run) == NONE


@inlined
def drop(cached, runs, index, number, alone, engine):
    """Take a block off the list.

    alone : no other run has the key of its run
    """
    if cached[number].watch == engine.watch:
        engine.watch_stale = 1
    run = number >> RUN_BITS
    place = number & (RUN_BLOCKS - 1)
    this = runs[run]
    this.present &= ~(1 << place)
    if alone or find(runs, first_run(runs, index, this.key, engine), place) == NONE:
        engine.cached_blocks -= 1
    if this.present == 0:
        _close(runs, index, run, engine)


@inlined
def _open(runs, index, key, engine):
    """Append an empty run to its chain."""
    run = engine.unused_run
    this = runs[run]
    engine.unused_run = this.later
    this.key = key
    this.home = np.int64(key & np.uint64(engine.index_mask))
    this.later = NONE
    last = index[this.home]
    if last == NONE:
        index[this.home] = run
        return run
    while runs[last].later != NONE:
        last = runs[last].later
    runs[last].later = run
    return run


@inlined
def _close(runs, index, run, engine):
    """Take an empty run out of its chain."""
    this = runs[run]
    before = index[this.home]
    if before == run:
        index[this.home] = this.later
    else:
        while runs[before].later != run:
            before = runs[before].later
        runs[before].later = this.later
    this.later = engine.unused_run
    engine.unused_run = run
