"""Radix tree: which texts are in the cache, as runs of tokens that share their beginnings.

A node holds a run of tokens, a multiple of the page; its children differ within their first page. Nodes are evicted
whole, leaves first. What a request uses is locked, with all that comes before it.

A token is known by a name and an offset: under the trace's identity rule (traces/README.md) the hash of its trace block
and its offset there, beyond the hashed tokens the request itself and its position. A hash stands for everything up to
the end of its block, so two texts that agree at a token agree before it. A run is a list of pieces: one name, and
offsets in a row.

Children are found by the name of the last token of their first page, in a hash table of chains. Leaves without a lock
stand in a binary heap in the order in which they are evicted; whatever makes a node newer moves it down there.
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import NONE
from pipeline.kernel.prefix_index import mix

ROOT = 0
LRU, LFU, FIFO, SLRU = range(4)
PROTECTED_HITS = 2  # slru: a node hit so often goes after all others

_i4, _i8, _u8 = np.int32, np.int64, np.uint64

NODE = np.dtype(
    [
        ("key", _u8),  # of its first page below its parent
        ("used", _i8),  # stamps of one counter
        ("born", _i8),
        ("parent", _i4),
        ("first_child", _i4),
        ("last_child", _i4),
        ("earlier", _i4),  # children of one node, in order of their making
        ("later", _i4),
        ("chain", _i4),  # of the hash table; next of the unused nodes
        ("place", _i4),  # in the heap; NONE: it cannot be evicted now
        ("first_piece", _i4),
        ("last_piece", _i4),
        ("length", _i4),  # tokens
        ("locks", _i4),
        ("hits", _i4),
        ("weight", _i4),  # while a queue is sorted: requests that wait for it or for what follows it
    ],
    align=True,
)

PIECE = np.dtype([("name", _u8), ("offset", _i4), ("length", _i4), ("later", _i4)], align=True)

COUNTS = np.dtype(
    [
        (name, _i8)
        for name in (
            "page",  # tokens
            "order",  # of eviction
            "free",  # slots that nobody has, tokens
            "evictable",  # tokens in the tree without and with a lock
            "protected",
            "clock",  # stamps given out
            "nodes_made",
            "unused_node",
            "pieces_made",
            "unused_piece",
            "heap_size",
            "evicted_tokens",  # since somebody last asked
            "evicted_nodes",
        )
    ],
    align=True,
)


class Tree(NamedTuple):
    """The arrays of one tree."""

    nodes: Any  # NODE[pages + 2], the first is the root
    pieces: Any  # PIECE[tokens + 1]
    index: Any  # int32[power of two], heads of the chains
    heap: Any  # int32[nodes]
    counts: Any  # COUNTS record


@inlined
def down(tokens, tree):
    """Return so many tokens cut to whole pages."""
    return tokens // tree.counts.page * tree.counts.page


@inlined
def name_at(hashes, request, row, position, engine):
    """Return name and offset of a request's token, and how many from there on follow each other under that name."""
    if position >= request.prefix_tokens:
        return mix(np.uint64(row) + np.uint64(0x632BE59BD9B4E019)), np.int64(position), np.int64(2**31)
    size = request.prefix_block_tokens
    block = position // size
    offset = position - block * size
    name = hashes[(request.prefix_start + block) & engine.hash_mask]
    return name, np.int64(offset), np.int64(min(size - offset, request.prefix_tokens - position))


@compiled
def common(hashes, one, one_row, two, two_row, limit, engine):
    """Return how many of the first `limit` tokens two requests have in common."""
    found = 0
    while found < limit:
        name, offset, count = name_at(hashes, one, one_row, found, engine)
        other, other_offset, other_count = name_at(hashes, two, two_row, found, engine)
        if name != other or offset != other_offset:
            break
        found += min(count, other_count)
    return min(found, limit)


@compiled
def match(tree, hashes, request, row, tokens, engine):
    """Return the node where what is known of a request's first tokens ends, and how many those are.

    All on the way count as just used; a node that the text leaves in the middle is split there.
    """
    tokens = down(tokens, tree)
    node, found = ROOT, 0
    if tokens == 0:
        return node, found
    while found < tokens:
        child, same = _child(tree, hashes, request, row, node, found, tokens, engine)
        if child == NONE:
            break
        found += same
        node = child
        if same < tree.nodes[child].length:
            _use(tree, child, _stamp(tree))
            node = _split(tree, child, same)
            break
    stamp = _stamp(tree)
    above = node
    while above != NONE:
        _use(tree, above, stamp)
        above = tree.nodes[above].parent
    return node, found


@compiled
def insert(tree, hashes, request, row, tokens, before, engine):
    """Put a request's first tokens, whole pages, into the tree; what is new there counts as evictable.

    before : tokens that it has put in earlier; nodes that end there or before count no hit

    Returns the node where they end, and how many of them were there already.
    """
    node, found = ROOT, 0
    _use(tree, node, _stamp(tree))
    while found < tokens:
        child, same = _child(tree, hashes, request, row, node, found, tokens, engine)
        if child == NONE:
            break
        _use(tree, child, _stamp(tree))
        found += same
        node = child
        if same < tree.nodes[child].length:
            node = _split(tree, child, same)
            _use(tree, node, _stamp(tree))
            _use(tree, child, _stamp(tree))
        if found > before:
            tree.nodes[node].hits += 1
            _sink(tree, node)
    if found < tokens:
        leaf = _make(tree)
        this = tree.nodes[leaf]
        this.length = tokens - found
        this.hits = tokens > before
        this.used = this.born = _stamp(tree)
        _write(tree, hashes, request, row, leaf, found, tokens, engine)
        _hang(tree, leaf, node)
        tree.counts.evictable += this.length
        _settle(tree, node)
        _settle(tree, leaf)
        node = leaf
    return node, found


@compiled
def lock(tree, node, by):
    """Lock a node and all before it once more (by 1), or once less (by -1)."""
    counts = tree.counts
    while node != ROOT:
        this = tree.nodes[node]
        this.locks += by
        if by > 0 and this.locks == 1:
            counts.evictable -= this.length
            counts.protected += this.length
            _settle(tree, node)
        elif by < 0 and this.locks == 0:
            counts.protected -= this.length
            counts.evictable += this.length
            _settle(tree, node)
        node = this.parent


@compiled
def evict(tree, wanted):
    """Drop leaves until so many slots are free, or nothing can be dropped."""
    counts = tree.counts
    while counts.free < wanted and counts.heap_size > 0:
        node = tree.heap[0]
        this = tree.nodes[node]
        parent = this.parent
        counts.free += this.length
        counts.evictable -= this.length
        counts.evicted_tokens += this.length
        counts.evicted_nodes += 1
        _leave_heap(tree, node)
        _unhang(tree, node)
        tree.pieces[this.last_piece].later = counts.unused_piece
        counts.unused_piece = this.first_piece
        this.chain = counts.unused_node
        counts.unused_node = node
        _settle(tree, parent)


@inlined
def _stamp(tree):
    tree.counts.clock += 1
    return tree.counts.clock


@inlined
def _use(tree, node, stamp):
    tree.nodes[node].used = stamp
    _sink(tree, node)


@inlined
def _key(node, name, offset):
    return mix(name + mix(np.uint64(offset)) + np.uint64(node) * np.uint64(0x9E3779B97F4A7C15))


@compiled
def _child(tree, hashes, request, row, node, position, tokens, engine):
    """Return the child that agrees with the page at a position, and how many tokens agree, in whole pages."""
    page = tree.counts.page
    name, offset, _ = name_at(hashes, request, row, position + page - 1, engine)
    key = _key(node, name, offset)
    child = tree.index[np.int64(key & np.uint64(len(tree.index) - 1))]
    while child != NONE:
        this = tree.nodes[child]
        if this.key == key and this.parent == node:
            same = down(_agreeing(tree, hashes, request, row, child, position, tokens - position, engine), tree)
            if same > 0:
                return np.int64(child), same
        child = this.chain
    return np.int64(NONE), np.int64(0)


@inlined
def _agreeing(tree, hashes, request, row, node, position, limit, engine):
    """Return how many tokens of a run agree with a request's from a position on, at most `limit`."""
    limit = min(limit, tree.nodes[node].length)
    piece, inside, found = tree.nodes[node].first_piece, 0, 0
    while found < limit:
        this = tree.pieces[piece]
        name, offset, count = name_at(hashes, request, row, position + found, engine)
        if this.name != name or this.offset + inside != offset:
            break
        count = min(count, this.length - inside)
        found += count
        inside += count
        if inside == this.length:
            piece, inside = this.later, 0
    return np.int64(min(found, limit))


@inlined
def _make(tree):
    """Return an empty node that hangs nowhere."""
    counts = tree.counts
    node = counts.unused_node
    if node == NONE:
        node = counts.nodes_made
        counts.nodes_made += 1
    else:
        counts.unused_node = tree.nodes[node].chain
    this = tree.nodes[node]
    this.parent = this.first_child = this.last_child = this.earlier = this.later = this.place = NONE
    this.first_piece = this.last_piece = NONE
    this.locks = this.weight = 0
    return node


@inlined
def _make_piece(tree, name, offset, length):
    counts = tree.counts
    piece = counts.unused_piece
    if piece == NONE:
        piece = counts.pieces_made
        counts.pieces_made += 1
    else:
        counts.unused_piece = tree.pieces[piece].later
    this = tree.pieces[piece]
    this.name, this.offset, this.length, this.later = name, offset, length, NONE
    return piece


@inlined
def _write(tree, hashes, request, row, node, position, end, engine):
    """Write the pieces of a request's tokens [position, end) into an empty node."""
    this = tree.nodes[node]
    while position < end:
        name, offset, count = name_at(hashes, request, row, position, engine)
        count = min(count, end - position)
        piece = _make_piece(tree, name, offset, count)
        if this.first_piece == NONE:
            this.first_piece = piece
        else:
            tree.pieces[this.last_piece].later = piece
        this.last_piece = piece
        position += count


@compiled
def _split(tree, node, at):
    """Cut a node; its first `at` tokens become a new node between it and its parent, which is returned."""
    head = _make(tree)
    this, above = tree.nodes[node], tree.nodes[head]
    above.length, above.locks, above.hits, above.born, above.used = at, this.locks, this.hits, this.born, 0
    above.first_piece = piece = this.first_piece
    left = at
    while tree.pieces[piece].length < left:
        left -= tree.pieces[piece].length
        piece = tree.pieces[piece].later
    cut = tree.pieces[piece]
    rest = cut.later
    if cut.length > left:
        rest = _make_piece(tree, cut.name, cut.offset + left, cut.length - left)
        tree.pieces[rest].later = cut.later
        if this.last_piece == piece:
            this.last_piece = rest
        cut.length = left
    cut.later = NONE
    above.last_piece = piece
    this.first_piece = rest
    this.length -= at
    # The head takes the place of the node, in its chain and among the children of its parent.
    above.key, above.parent, above.earlier, above.later = this.key, this.parent, this.earlier, this.later
    _leave_chain(tree, node)
    _join_chain(tree, head)
    parent = tree.nodes[this.parent]
    if this.earlier == NONE:
        parent.first_child = head
    else:
        tree.nodes[this.earlier].later = head
    if this.later == NONE:
        parent.last_child = head
    else:
        tree.nodes[this.later].earlier = head
    this.earlier = this.later = NONE
    _hang(tree, node, head)
    return head


@inlined
def _hang(tree, node, parent):
    """Make a node the last child of another."""
    this, above = tree.nodes[node], tree.nodes[parent]
    this.parent = parent
    this.earlier = above.last_child
    if above.last_child == NONE:
        above.first_child = node
    else:
        tree.nodes[above.last_child].later = node
    above.last_child = node
    piece, inside = this.first_piece, tree.counts.page - 1
    while tree.pieces[piece].length <= inside:
        inside -= tree.pieces[piece].length
        piece = tree.pieces[piece].later
    this.key = _key(parent, tree.pieces[piece].name, tree.pieces[piece].offset + inside)
    _join_chain(tree, node)


@inlined
def _unhang(tree, node):
    this = tree.nodes[node]
    above = tree.nodes[this.parent]
    if this.earlier == NONE:
        above.first_child = this.later
    else:
        tree.nodes[this.earlier].later = this.later
    if this.later == NONE:
        above.last_child = this.earlier
    else:
        tree.nodes[this.later].earlier = this.earlier
    _leave_chain(tree, node)


@inlined
def _join_chain(tree, node):
    home = np.int64(tree.nodes[node].key & np.uint64(len(tree.index) - 1))
    tree.nodes[node].chain = tree.index[home]
    tree.index[home] = node


@inlined
def _leave_chain(tree, node):
    home = np.int64(tree.nodes[node].key & np.uint64(len(tree.index) - 1))
    if tree.index[home] == node:
        tree.index[home] = tree.nodes[node].chain
        return
    before = tree.index[home]
    while tree.nodes[before].chain != node:
        before = tree.nodes[before].chain
    tree.nodes[before].chain = tree.nodes[node].chain


@compiled
def _settle(tree, node):
    """Let a node stand in the heap if and only if it can be evicted."""
    this = tree.nodes[node]
    if node != ROOT and this.first_child == NONE and this.locks == 0:
        if this.place == NONE:
            tree.counts.heap_size += 1
            _rise(tree, node, tree.counts.heap_size - 1)
    elif this.place != NONE:
        _leave_heap(tree, node)


@compiled
def _leave_heap(tree, node):
    counts = tree.counts
    place = tree.nodes[node].place
    tree.nodes[node].place = NONE
    counts.heap_size -= 1
    last = tree.heap[counts.heap_size]
    if last != node:
        _rise(tree, last, place)
        _sink(tree, last)


@inlined
def _goes_before(tree, a, b):
    one, two = tree.nodes[a], tree.nodes[b]
    order = tree.counts.order
    if order == FIFO:
        return one.born < two.born
    if order == LFU and one.hits != two.hits:
        return one.hits < two.hits
    if order == SLRU and (one.hits >= PROTECTED_HITS) != (two.hits >= PROTECTED_HITS):
        return one.hits < two.hits
    return one.used < two.used


@compiled
def _rise(tree, node, place):
    while place > 0:
        above = (place - 1) >> 1
        if not _goes_before(tree, node, tree.heap[above]):
            break
        tree.heap[place] = tree.heap[above]
        tree.nodes[tree.heap[place]].place = place
        place = above
    tree.heap[place] = node
    tree.nodes[node].place = place


@compiled
def _sink(tree, node):
    """Move a node that has become newer to its place in the heap, if it stands there."""
    place = tree.nodes[node].place
    if place == NONE:
        return
    size = tree.counts.heap_size
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _goes_before(tree, tree.heap[below + 1], tree.heap[below]):
            below += 1
        if not _goes_before(tree, tree.heap[below], node):
            break
        tree.heap[place] = tree.heap[below]
        tree.nodes[tree.heap[place]].place = place
        place = below
    tree.heap[place] = node
    tree.nodes[node].place = place
