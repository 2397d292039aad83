"""SGLang 0.5: prefills before decodes, admission by an estimate of what answers will take, a radix tree for prefixes.

A step is a prefill of several requests, a decode of all that run, or with mixed chunks both. Admission counts a share
of what running requests may still generate, the new-token ratio; it falls while that goes well. When memory is short,
requests are retracted and the ratio rises. With overlap a step is chosen while the one before it runs.

The estimates are floats, added up in the order of the running list.
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.kernel import commit, ledger, radix_tree, step_time, wait_queue
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import (
    CONTINUED,
    DROPPED,
    ENDED,
    FOREVER,
    LOST,
    MAX_MODEL_LEN,
    MAX_STEPS,
    NEED_TRACE,
    NONE,
    PREEMPTED,
    REJECTED,
    RUNNING,
    STALLED,
    TIMED_OUT,
    TRACE_DONE,
)
from pipeline.kernel.radix_tree import ROOT, Tree

FCFS, LPM, DFS_WEIGHT, LOF = range(4)
# Constants of SGLang.
LONGEST_COUNTED = 4096  # tokens of an answer, in estimates of memory
AHEAD = 20  # decode steps that a retraction makes room for
SAME_PREFIX = 32  # tokens in common for which lpm holds a request back
MOST_MATCHED = 128  # waiting requests that are matched in a sort
REFRESH = 32  # sorts from one refreshing of what the queue will need to the next
FAR = 2**61

# Why no more requests are admitted.
GOES_ON, OTHER, NO_TOKEN = 0, 1, 2

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("seat", np.int64),  # NONE: nobody holds it
        ("node", np.int32),  # where its locked prefix ends
        ("own", np.int32),  # from this token on it has slots of its own
        ("kv", np.int32),  # tokens that have slots
        ("inserted", np.int32),  # tokens that it has put into the tree
        ("generated", np.int32),  # tokens of its answer, as far as delivered
        ("in_flight", np.int32),  # tokens being sampled
        ("max_new", np.int32),  # most tokens of its answer
        ("tokens", np.int32),  # the decision being taken: so many, after so many
        ("computed", np.int32),
        ("hits", np.int32),
        ("event", np.int8),
        ("prefill", np.int8),
        ("ends", np.int8),  # it samples
        ("ignore_eos", np.int8),
        ("leaving", np.int8),
    ],
    align=True,
)

# A request's part in a step in flight.
FLOWN = np.dtype([("slot", np.int32), ("end", np.int32), ("seat", np.int64), ("prefill", np.int8)], align=True)

SETTINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            # settings
            "page",
            "pool",  # tokens, whole pages
            "longest",  # context length, at most the pool
            "most_running",
            "chunk_size",  # NONE: prompts are not cut
            "max_prefill",
            "prefill_max_requests",  # NONE: no limit
            "policy",
            "cache",
            "lru",
            "mixed",
            "by_priority",
            "preempts",
            "low_first",
            "threshold",
            "retract_by_priority",
            "interval",
            "overlap",
            "released_defects",  # with the defects that recorded cases show
            # state
            "running",  # of the running list
            "batch",  # of the batch being chosen
            "joining",  # of the last batch, if that was a prefill
            "chunk",  # slot in the middle of its prompt, or NONE
            "full",
            "pause",
            "sorts",
            "entries",
            "spares",
            "busy",
            "dead",
            "flown0",
            "flown1",
            # the decision being taken
            "chunk_left",
            "input_left",
            "current",
            "next_chunk",
            "admitted",
            "states",
            "evictees",
            "lost",
            "counted_down",
            "retracted",
            "preempted",
            "aborted",
        )
    ]
    + [(name, np.float64) for name in ("ratio", "first_ratio", "least_ratio", "decay", "total")],
    align=True,
)

# What the recorded cases say of a step beside STEP.
OWN = np.dtype(
    [
        *((name, np.int32) for name in ("running", "free_tokens", "evictable_tokens", "protected_tokens")),
        *((name, np.int32) for name in ("evicted_tokens", "evicted_nodes", "retracted", "preempted", "aborted")),
        ("new_token_ratio", np.float64),
    ],
    align=True,
)

STATE = np.dtype([("left", np.float64), ("held", np.int64)], align=True)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    settings: Any  # SETTINGS
    slots: Any  # SLOT[most running requests]
    running: Any  # int32[slots], the running list
    batch: Any  # int32[slots], the last batch
    spare: Any  # int32[slots], unused slots
    flown: Any  # FLOWN[2, slots], steps in flight
    states: Any  # STATE[2 * slots + 2], of the look ahead without a tree
    evictees: Any  # int64[slots], rows that make way for others
    own_columns: Any  # OWN[step_rows]
    nodes: Any
    pieces: Any
    index: Any
    heap: Any
    counts: Any


class Work(NamedTuple):
    """The arrays of one replica."""

    slots: Any
    running: Any
    batch: Any
    spare: Any
    flown: Any
    states: Any
    evictees: Any


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    own = parts.settings[replica]
    tree = Tree(
        parts.nodes[replica], parts.pieces[replica], parts.index[replica], parts.heap[replica], parts.counts[replica]
    )
    work = Work(
        parts.slots[replica], parts.running[replica], parts.batch[replica], parts.spare[replica],
        parts.flown[replica], parts.states[replica], parts.evictees[replica],
    )  # fmt: skip
    if own.dead:
        return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
    while True:
        while engine.collect_due > 0:
            if flights[(engine.steps - engine.in_flight) & 1].end_ns > engine.horizon_ns:
                return NEED_TRACE
            engine.collect_due -= 1
            _collect(requests, hashes, flights, gaps, engine, own, tree, work)
        if engine.now_ns >= engine.horizon_ns + engine.stepwise:
            return NEED_TRACE
        _give_up(requests, arrivals, heap, engine, own, tree, work)
        _arrive(requests, arrivals, heap, engine, own)
        if engine.ended != NONE:
            return ENDED
        if not own.busy:
            if ledger.jump(requests, arrivals, engine):
                continue
            if engine.horizon_ns < FOREVER:
                return NEED_TRACE
            return TRACE_DONE if engine.unfinished == 0 else STALLED
        reason = ledger.full(steps, gaps, decisions, engine)
        if reason != ledger.ROOM:
            return reason
        step = steps[engine.steps_used]
        ledger.open_step(engine, step)
        start_ns = max(engine.now_ns, engine.gpu_free_ns)
        if not _choose(requests, hashes, heap, decisions, engine, step, own, tree, work, start_ns):
            own.dead = 1  # the real scheduler's process ends here
            engine.wake_ns = FOREVER
            return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
        if own.batch > 0 or own.lost > 0:
            _write(requests, decisions, cost, engine, step, own, work)
            _note(parts.own_columns[replica, engine.steps_used], engine, step, own, tree)
            _count_blocks(engine, own, tree)
            ledger.close_step(flights, g_ns, cost, engine, step, start_ns, 0)
            if engine.steps == engine.max_steps:
                return MAX_STEPS
            engine.collect_due = engine.in_flight - (own.overlap and own.batch > 0)
        else:
            engine.collect_due = engine.in_flight
            own.busy = own.counted_down or engine.in_flight > 0
            _count_blocks(engine, own, tree)
            if engine.in_flight == 0 and engine.waiting == 0 and own.running == 0 and own.chunk == NONE:
                own.ratio = own.first_ratio
        if engine.ended != NONE:
            return ENDED
        if engine.stepwise and (own.batch > 0 or own.lost > 0):
            return NEED_TRACE


# Sizes


@inlined
def _up(tokens, own):
    return (tokens + own.page - 1) // own.page * own.page


@inlined
def _max_new(request, own):
    """Return the most tokens of an answer, so that every request fits into an empty pool."""
    room = min(own.longest - request.input_tokens, own.pool - _up(request.input_tokens, own) - own.page) - 1
    if request.max_tokens != NONE:
        room = min(room, request.max_tokens)
    return max(room, 0)


@inlined
def _estimate(this, own):
    """Return what a running request is expected to take yet."""
    ratio = 1.0 if this.ignore_eos else own.ratio
    return min(this.max_new - this.generated, LONGEST_COUNTED) * ratio


@inlined
def _capacity(tree):
    return tree.counts.free + tree.counts.evictable


# Requests come and go


@inlined
def _arrive(requests, arrivals, heap, engine, own):
    before, first = engine.arrived, engine.queue_tail
    wait_queue.arrive(requests, arrivals, heap, engine)
    if engine.arrived > before:
        own.busy = 1
        row = engine.queue_head if first == NONE else requests[first & engine.window_mask].later
        while row != NONE:
            request = requests[row & engine.window_mask]
            request.entry = own.entries
            own.entries += 1
            request.looked_at_tokens = 0
            row = request.later


@compiled
def _enter_again(requests, heap, row, engine, own):
    wait_queue.push_back(requests, heap, row, engine)
    request = requests[row & engine.window_mask]
    request.life = PREEMPTED
    request.entry = own.entries
    own.entries += 1


@compiled
def _release(slot, engine, own, tree, work):
    """Free what a request holds beside the tree, and its row."""
    this = work.slots[slot]
    tree.counts.free += _up(this.kv, own) - this.own
    engine.held_tokens -= this.kv
    radix_tree.lock(tree, this.node, -1)
    this.seat = NONE
    work.spare[own.spares] = slot
    own.spares += 1


@compiled
def _checkpoint(requests, hashes, slot, upto, engine, own, tree, work):
    """Put a request's first tokens into the tree."""
    if not own.cache:
        return
    this = work.slots[slot]
    request = requests[this.request & engine.window_mask]
    upto = radix_tree.down(upto, tree)
    prompt = radix_tree.down(request.input_tokens, tree)
    node, found = radix_tree.insert(tree, hashes, request, this.request, upto, this.inserted, engine)
    tree.counts.free += max(found - this.own, 0)
    # What was its own belongs to the tree now.
    this.inserted = max(upto, this.inserted)
    if upto > prompt:
        radix_tree.insert(tree, hashes, request, this.request, prompt, this.inserted, engine)
    radix_tree.lock(tree, node, 1)
    radix_tree.lock(tree, this.node, -1)
    this.node = node
    this.own = upto


@compiled
def _give_up(requests, arrivals, heap, engine, own, tree, work):
    """Take out every request whose client has stopped waiting by now."""
    row = ledger.overdue(requests, arrivals, engine)
    while row != NONE:
        own.busy = 1
        request = requests[row & engine.window_mask]
        if request.life == RUNNING:
            slot = 0
            while work.slots[slot].request != row or work.slots[slot].seat == NONE:
                slot += 1
            if own.chunk == slot:
                own.chunk = NONE
            _release(slot, engine, own, tree, work)
            engine.running -= 1
        else:
            wait_queue.remove(requests, heap, row, engine)
        ledger.drop(requests, row, TIMED_OUT, request.arrival_ns + engine.timeout_ns, engine)
        row = ledger.overdue(requests, arrivals, engine)


@compiled
def _collect(requests, hashes, flights, gaps, engine, own, tree, work):
    """The oldest step has ended: who sampled gets a token, and who has the last one leaves."""
    number, end_ns = ledger.take_oldest(flights, engine)
    parity = number & 1
    count = own.flown1 if parity else own.flown0
    for i in range(count):
        flown = work.flown[parity, i]
        this = work.slots[flown.slot]
        if this.seat != flown.seat:
            continue
        row = this.request
        this.in_flight -= 1
        this.generated += 1
        if ledger.deliver(requests, gaps, row, number, end_ns, engine):
            _checkpoint(requests, hashes, flown.slot, this.kv, engine, own, tree, work)
            _release(flown.slot, engine, own, tree, work)
            ledger.finish(requests, row, end_ns, engine)
        elif flown.prefill:
            _checkpoint(requests, hashes, flown.slot, flown.end, engine, own, tree, work)


# The choice of a batch


@compiled
def _choose(requests, hashes, heap, decisions, engine, step, own, tree, work, start_ns):
    """Choose the next batch, `own.batch` slots in `work.batch`; false if the process dies of it."""
    own.lost = own.retracted = own.preempted = own.aborted = own.counted_down = 0
    if own.chunk != NONE:
        _checkpoint(requests, hashes, own.chunk, work.slots[own.chunk].kv, engine, own, tree, work)
    _join(own, work)
    own.batch = own.joining = 0
    if own.pause > 0:
        own.pause -= 1
        own.counted_down = 1
    elif not _prefill(requests, hashes, heap, decisions, engine, step, own, tree, work, start_ns):
        return False
    if own.batch > 0:
        own.pause = own.interval
        own.joining = own.batch
        return True
    return _decode(requests, heap, decisions, engine, step, own, tree, work)


@inlined
def _join(own, work):
    """The last prefill batch joins the running list, and who has finished leaves it."""
    kept = 0
    for i in range(own.running):
        slot = work.running[i]
        if work.slots[slot].seat == NONE:
            own.full = 0
        else:
            work.running[kept] = slot
            kept += 1
    before = kept
    for i in range(own.joining):
        slot = work.batch[i]
        if work.slots[slot].seat == NONE or slot == own.chunk:
            own.full = 0
        else:
            work.running[kept] = slot
            kept += 1
    if before == 0 or own.preempts:
        own.full = 0
    own.running = kept


@compiled
def _prefill(requests, hashes, heap, decisions, engine, step, own, tree, work, start_ns):
    """Try a prefill; false if the process dies of it."""
    if (own.full or engine.waiting == 0) and own.chunk == NONE:
        return True
    rows = own.spares
    if min(own.most_running - own.running, rows) <= 0 and own.chunk == NONE and not own.preempts:
        own.full = 1
        return True
    _sort(requests, hashes, heap, engine, own, tree)
    mixed = own.running if own.mixed else 0
    own.chunk_left = own.chunk_size - mixed if own.chunk_size != NONE else FAR
    own.input_left = own.max_prefill - mixed
    own.total = 0.0
    for i in range(own.running):
        this = work.slots[work.running[i]]
        own.total += _estimate(this, own)
    own.total += mixed
    own.current = mixed
    own.admitted = own.evictees = 0
    own.states = NONE
    own.next_chunk = NONE
    if own.chunk != NONE:
        _continue_chunk(requests, engine, own, tree, work)
    while engine.waiting > 0 and _consider(requests, hashes, heap, decisions, engine, step, own, tree, work, start_ns):
        pass
    for i in range(own.evictees):
        _enter_again(requests, heap, work.evictees[i], engine, own)
    own.chunk = own.next_chunk
    if own.admitted == 0:
        return True
    own.batch = own.admitted
    wanted = 0
    for i in range(own.admitted):
        this = work.slots[work.batch[i]]
        # Of two whose prompt was cut, the first is taken for complete.
        this.ends = work.batch[i] != own.chunk
        wanted += this.tokens
    if own.page > 1:
        wanted += own.page * own.admitted
    radix_tree.evict(tree, wanted)
    for i in range(own.admitted):
        this = work.slots[work.batch[i]]
        tree.counts.free -= _up(this.kv + this.tokens, own) - _up(this.kv, own)
        this.kv += this.tokens
        engine.held_tokens += this.tokens
    if tree.counts.free < 0:
        return False
    if own.mixed and own.running > 0:
        _drop_ending(own, work)
        if own.running > 0 and _fits(own, tree, work):
            for i in range(own.running):
                work.batch[own.batch + i] = work.running[i]
            if not _decode_all(engine, own, tree, work):
                return False
            own.batch += own.running
            own.running = 0
    return True


@inlined
def _continue_chunk(requests, engine, own, tree, work):
    this = work.slots[own.chunk]
    request = requests[this.request & engine.window_mask]
    limit = min(own.chunk_left, np.int64(np.trunc(_capacity(tree) - own.total)))
    if limit <= 0:
        limit = own.chunk_left
    if not own.released_defects:
        limit = min(limit, _capacity(tree) + _up(this.kv, own) - this.kv)
    if limit <= 0:  # what others decode leaves it nothing: it goes on in a later step
        own.next_chunk = own.chunk
        return
    this.hits = 0
    _take(own.chunk, min(request.known_tokens - this.kv, limit), CONTINUED, request.known_tokens, own, work)


@inlined
def _take(slot, tokens, event, known_tokens, own, work):
    """Put a request's tokens into the prefill being planned."""
    this = work.slots[slot]
    this.tokens = tokens
    this.computed = this.kv
    this.event = event
    this.prefill = 1
    work.batch[own.admitted] = slot
    own.admitted += 1
    paged = _up(tokens, own)
    own.total += paged + own.page
    own.current += paged + own.page
    if this.kv + tokens == known_tokens:
        own.total += min(this.max_new, LONGEST_COUNTED)
    else:
        own.next_chunk = slot
    own.input_left -= paged
    own.chunk_left -= paged


@inlined
def _spent(own, tree):
    capacity = _capacity(tree)
    if capacity - own.total <= 0 or capacity - own.current <= 0:
        return NO_TOKEN
    return OTHER if own.input_left <= 0 or own.chunk_left <= 0 else GOES_ON


@inlined
def _no_token(own):
    own.full = own.admitted > 0 or own.running > 0
    return False


@compiled
def _consider(requests, hashes, heap, decisions, engine, step, own, tree, work, start_ns):
    """Try to admit the head of the queue; return whether to go on to the next."""
    if _spent(own, tree) == OTHER:
        return False
    row = engine.queue_head
    request = requests[row & engine.window_mask]
    # Rows that the admitted hold already count as free.
    if own.admitted >= min(own.most_running - own.running, own.spares + own.admitted):
        own.full = 1
    if own.full and not (own.preempts and _preempt(requests, decisions, request, engine, step, own, tree, work)):
        return False
    known = request.known_tokens
    node, prefix = np.int64(ROOT), np.int64(0)
    if own.cache:
        node, prefix = radix_tree.match(tree, hashes, request, row, known - 1, engine)
    rest = known - prefix
    request.looked_at_tokens = rest
    if own.prefill_max_requests != NONE and own.admitted >= own.prefill_max_requests:
        return False
    generated = known - request.input_tokens
    max_new = _max_new(request, own)
    plays = request.ignore_eos and not own.cache
    if plays:
        if not _plays_through(requests, request, rest, engine, own, tree, work):
            return _no_token(own)
    else:
        radix_tree.lock(tree, node, 1)
        if rest + min(max_new - generated, LONGEST_COUNTED) + own.page >= _capacity(tree) - own.total:
            radix_tree.lock(tree, node, -1)
            return _no_token(own)
    tokens = rest
    if own.chunk_size == NONE:
        if not plays and _up(rest, own) >= own.input_left and own.admitted > 0:
            tokens = 0
    elif plays:
        tokens = min(rest, own.chunk_left)
    elif _up(rest, own) > own.chunk_left:
        tokens = radix_tree.down(prefix + radix_tree.down(own.chunk_left, tree), tree) - prefix
    second = tokens < rest and own.next_chunk != NONE and not own.released_defects
    if tokens <= 0 or second:
        radix_tree.lock(tree, node, -1)
        return False
    _admit(requests, heap, row, node, prefix, tokens, max_new, engine, step, own, work, start_ns)
    why = _spent(own, tree)
    if why == NO_TOKEN:
        _no_token(own)
    return why == GOES_ON


@compiled
def _admit(requests, heap, row, node, prefix, tokens, max_new, engine, step, own, work, start_ns):
    wait_queue.remove(requests, heap, row, engine)
    request = requests[row & engine.window_mask]
    if request.input_tokens + max(max_new, 1) < request.target_tokens:
        request.target_tokens = request.input_tokens + max(max_new, 1)
        if request.max_tokens == NONE or max_new < request.max_tokens:
            request.end_outcome = MAX_MODEL_LEN
    own.spares -= 1
    slot = work.spare[own.spares]
    this = work.slots[slot]
    event = ledger.start(request, prefix, start_ns, engine, step)
    this.request = row
    this.seat = request.seat
    this.node = node
    this.own = this.kv = this.hits = prefix
    this.inserted = 0
    this.generated = request.known_tokens - request.input_tokens
    this.in_flight = 0
    this.max_new = max_new
    this.ignore_eos = request.ignore_eos
    engine.held_tokens += prefix
    _take(slot, tokens, event, request.known_tokens, own, work)


@compiled
def _plays_through(requests, request, rest, engine, own, tree, work):
    """Without a tree, for a request that never ends early: play the future through; return whether memory lasts."""
    capacity = _capacity(tree)
    needed = _up(rest, own) + own.page
    if needed > capacity - own.current or needed > capacity - own.total:
        return False
    known = request.known_tokens
    left = _max_new(request, own) * 1.0 - (known - request.input_tokens)
    if own.states == NONE:
        own.states = 0
        if left > 0:
            _insert_state(work.states, own.states, left, known)
            own.states += 1
        for i in range(own.running + own.admitted):
            slot = work.running[i] if i < own.running else work.batch[i - own.running]
            this = work.slots[slot]
            other = requests[this.request & engine.window_mask]
            ratio = 1.0 if this.ignore_eos else own.ratio
            its_left = this.max_new * ratio - (other.known_tokens - other.input_tokens)
            if its_left > 0:
                at = own.states
                while at > 0 and work.states[at - 1].left > its_left:
                    at -= 1
                _shift(work.states, at, own.states)
                _insert_state(work.states, at, its_left, other.known_tokens)
                own.states += 1
    elif left > 0:
        at = 0
        while at < own.states and work.states[at].left < left:
            at += 1
        if at == own.states:
            at = max(own.states - 1, 0)  # the largest of all goes in before the last
        _shift(work.states, at, own.states)
        _insert_state(work.states, at, left, known)
        own.states += 1
    freed = 0
    for i in range(own.states):
        count = own.states - i
        if capacity - own.current - needed + freed - work.states[i].left * count <= count:
            return False
        freed += work.states[i].held
    return True


@inlined
def _shift(states, at, count):
    for i in range(count, at, -1):
        states[i] = states[i - 1]


@inlined
def _insert_state(states, at, left, held):
    states[at].left = left
    states[at].held = held


@compiled
def _preempt(requests, decisions, request, engine, step, own, tree, work):
    """Let running requests of lower priority make way for one for which no row is left; return whether it worked."""
    sign = -1 if own.low_first else 1
    needed = request.looked_at_tokens + min(_max_new(request, own), LONGEST_COUNTED) - (_capacity(tree) - own.total)
    for i in range(own.running):
        work.slots[work.running[i]].leaving = 0
    victims = 0
    while victims == 0 or needed > 0:
        best = NONE
        for i in range(own.running):
            slot = work.running[i]
            if not work.slots[slot].leaving and (best == NONE or _makes_way(requests, slot, best, sign, engine, work)):
                best = slot
        if best == NONE:
            break
        this = work.slots[best]
        other = requests[this.request & engine.window_mask]
        if sign * (request.priority - other.priority) <= own.threshold:
            break
        this.leaving = 1
        victims += 1
        needed -= _estimate(this, own)
    if victims == 0 or needed > 0:
        return False
    kept, left = 0, own.running
    for i in range(own.running):
        slot = work.running[i]
        this = work.slots[slot]
        if this.leaving:
            left -= 1
            own.total -= _estimate(this, own)
            work.evictees[own.evictees] = this.request
            own.evictees += 1
            own.preempted += 1
            _lose(requests, decisions, slot, left, engine, step, own, tree, work)
        else:
            work.running[kept] = slot
            kept += 1
    own.running = kept
    return True


@inlined
def _makes_way(requests, slot, other, sign, engine, work):
    """Return whether one running request makes way before another: lowest priority, then latest entry."""
    one = requests[work.slots[slot].request & engine.window_mask]
    two = requests[work.slots[other].request & engine.window_mask]
    if one.priority != two.priority:
        return sign * one.priority < sign * two.priority
    return one.entry > two.entry


@compiled
def _lose(requests, decisions, slot, left, engine, step, own, tree, work):
    """A running request loses all that it holds, and room is made for those who are left."""
    this = work.slots[slot]
    request = requests[this.request & engine.window_mask]
    if len(decisions) > 0:
        commit.write_decision(decisions, engine, this.request, LOST, own.lost, 0, this.kv, False, False, 0)
    own.lost += 1
    step.preempted += 1
    request.preemptions += 1
    engine.running -= 1
    _release(slot, engine, own, tree, work)
    radix_tree.evict(tree, AHEAD * left)


# Decode


@inlined
def _drop_ending(own, work):
    """Who is known to end with the token being sampled leaves the running list; return whether somebody did."""
    kept = 0
    for i in range(own.running):
        slot = work.running[i]
        this = work.slots[slot]
        if this.in_flight > 0 and this.generated + this.in_flight >= this.max_new:
            own.full = 0
        else:
            work.running[kept] = slot
            kept += 1
    some = kept < own.running
    own.running = kept
    return some


@compiled
def _fits(own, tree, work):
    """Return whether everybody in the running list can have one more token."""
    wanted = own.running if own.page == 1 else 0
    if own.page > 1:
        for i in range(own.running):
            if work.slots[work.running[i]].kv % own.page == 0:
                wanted += own.page
    radix_tree.evict(tree, wanted)
    return tree.counts.free >= wanted


@inlined
def _decode_all(engine, own, tree, work):
    """Everybody in the running list gets one more token; false if the process dies of it."""
    radix_tree.evict(tree, own.page * own.running)
    if own.page == 1:
        tree.counts.free -= own.running
    for i in range(own.running):
        this = work.slots[work.running[i]]
        this.tokens = 1
        this.computed = this.kv
        this.event = CONTINUED
        this.prefill = 0
        this.ends = 1
        this.hits = 0
        if own.page > 1 and this.kv % own.page == 0:
            tree.counts.free -= own.page
        this.kv += 1
    engine.held_tokens += own.running
    return tree.counts.free >= 0


@compiled
def _decode(requests, heap, decisions, engine, step, own, tree, work):
    """Choose the running list, retracting where memory is short; false if the process dies of it."""
    some = _drop_ending(own, work) if own.overlap else False
    if own.running == 0:
        own.full = 0
        return True
    if _fits(own, tree, work):
        own.ratio = max(own.ratio - own.decay, own.least_ratio)
    elif some:
        return True  # those who end will leave some room
    else:
        _retract(requests, heap, decisions, engine, step, own, tree, work)
    if own.running == 0:
        return True
    alive = _decode_all(engine, own, tree, work)
    for i in range(own.running):
        work.batch[i] = work.running[i]
    own.batch = own.running
    return alive


@compiled
def _retract(requests, heap, decisions, engine, step, own, tree, work):
    """Take requests out of the running list until the others can go on."""
    _sort_running(requests, engine, own, work)
    again = True
    while own.running > 1 and (again or not _fits(own, tree, work)):
        again = False
        own.running -= 1
        slot = work.running[own.running]
        own.retracted += 1
        row = work.slots[slot].request
        _lose(requests, decisions, slot, own.running, engine, step, own, tree, work)
        _enter_again(requests, heap, row, engine, own)
    if own.running == 1 and not _fits(own, tree, work):
        _abort(requests, decisions, engine, own, tree, work)
    own.full = 0
    generated, allowed = AHEAD * own.running, 0
    for i in range(own.running):
        this = work.slots[work.running[i]]
        generated += this.generated
        allowed += this.max_new
    own.ratio = min(1.0, generated / (allowed + 1))


@inlined
def _abort(requests, decisions, engine, own, tree, work):
    """The only request that runs finds no room for its next token: it ends."""
    slot = work.running[0]
    this = work.slots[slot]
    row = this.request
    if len(decisions) > 0:
        commit.write_decision(decisions, engine, row, DROPPED, own.lost, 0, this.kv, False, False, 0)
    own.lost += 1
    own.aborted += 1
    own.running = 0
    engine.running -= 1
    _release(slot, engine, own, tree, work)
    ledger.drop(requests, row, REJECTED, engine.now_ns, engine)


@inlined
def _sort_running(requests, engine, own, work):
    """Bring the running list into the order in which requests may stay: insertion sort, stable."""
    for i in range(1, own.running):
        slot = work.running[i]
        at = i
        while at > 0 and _stays_before(requests, slot, work.running[at - 1], engine, own, work):
            work.running[at] = work.running[at - 1]
            at -= 1
        work.running[at] = slot


@inlined
def _stays_before(requests, slot, other, engine, own, work):
    one = requests[work.slots[slot].request & engine.window_mask]
    two = requests[work.slots[other].request & engine.window_mask]
    if own.retract_by_priority and one.priority != two.priority:
        return (one.priority > two.priority) != own.low_first
    first, second = one.known_tokens - one.input_tokens, two.known_tokens - two.input_tokens
    return first > second or (first == second and one.input_tokens < two.input_tokens)


# Order of the queue


@compiled
def _sort(requests, hashes, heap, engine, own, tree):
    """Bring the queue into its order; what is matched for that counts as just used."""
    if engine.waiting == 0:
        return
    crowded = own.policy == LPM and engine.waiting > MOST_MATCHED
    if own.policy == FCFS or own.policy == LOF or crowded:
        if own.cache and own.lru:
            if own.sorts % REFRESH == 0:
                _refresh(requests, hashes, engine, tree)
            own.sorts += 1
        if crowded or (own.policy == FCFS and not own.by_priority):
            return
        row = engine.queue_head
        while row != NONE:
            request = requests[row & engine.window_mask]
            heap[row & engine.window_mask] = -_max_new(request, own) if own.policy == LOF else request.entry
            row = request.later
        _merge_sort(requests, heap, own.by_priority, own.low_first, engine)
        return
    if own.policy == LPM:
        _rank_by_match(requests, hashes, heap, engine, tree)
    else:
        _rank_by_weight(requests, hashes, heap, engine, tree)
    _merge_sort(requests, heap, 0, 0, engine)


@inlined
def _refresh(requests, hashes, engine, tree):
    """Match the first waiting requests, the last of them first, so that what they need is not evicted."""
    row = engine.queue_head
    for _ in range(MOST_MATCHED - 1):
        if requests[row & engine.window_mask].later == NONE:
            break
        row = requests[row & engine.window_mask].later
    while row != NONE:
        request = requests[row & engine.window_mask]
        radix_tree.match(tree, hashes, request, row, request.known_tokens, engine)
        row = request.earlier


@inlined
def _rank_by_match(requests, hashes, heap, engine, tree):
    """Longest match first; who shares a beginning with one before it that matches as little waits for that one."""
    mask = engine.window_mask
    row = engine.queue_head
    while row != NONE:
        request = requests[row & mask]
        known = request.known_tokens
        _, found = radix_tree.match(tree, hashes, request, row, known, engine)
        heap[row & mask] = -min(found, known - 1)
        request.treated = 0
        if found <= SAME_PREFIX:
            request.treated = 1
            other_row = engine.queue_head
            while other_row != row and known >= SAME_PREFIX:
                other = requests[other_row & mask]
                long = other.treated and other.known_tokens >= SAME_PREFIX
                if long and _begin_alike(hashes, request, row, other, other_row, engine):
                    request.treated = 0
                    heap[row & mask] = FAR
                    break
                other_row = other.later
        row = request.later


@inlined
def _begin_alike(hashes, one, row, two, other_row, engine):
    return radix_tree.common(hashes, one, row, two, other_row, SAME_PREFIX, engine) == SAME_PREFIX


@inlined
def _rank_by_weight(requests, hashes, heap, engine, tree):
    """Depth first over the tree, the child that most wait below first; who waits for a node itself after those."""
    mask, nodes = engine.window_mask, tree.nodes
    row = engine.queue_head
    while row != NONE:
        request = requests[row & mask]
        node, _ = radix_tree.match(tree, hashes, request, row, request.known_tokens, engine)
        heap[row & mask] = node
        row = request.later
    row = engine.queue_head
    while row != NONE:
        node = heap[row & mask]
        while node != NONE:
            nodes[node].weight += 1
            node = nodes[node].parent
        row = requests[row & mask].later
    # A node that has been left has its place, below zero, for a weight.
    node, place = np.int64(ROOT), -1
    while node != NONE:
        best = np.int64(NONE)
        child = nodes[node].first_child
        while child != NONE:
            if nodes[child].weight > 0 and (best == NONE or nodes[child].weight > nodes[best].weight):
                best = np.int64(child)
            child = nodes[child].later
        if best == NONE:
            nodes[node].weight = place
            place -= 1
            node = np.int64(nodes[node].parent)
        else:
            node = best
    row = engine.queue_head
    while row != NONE:
        heap[row & mask] = -nodes[heap[row & mask]].weight
        row = requests[row & mask].later
    _forget_weights(tree)


@inlined
def _forget_weights(tree):
    """Set the weights of all nodes that have one back to zero."""
    nodes = tree.nodes
    node = np.int64(ROOT)
    nodes[ROOT].weight = 0
    while node != NONE:
        child = np.int64(nodes[node].first_child)
        while child != NONE and nodes[child].weight == 0:
            child = np.int64(nodes[child].later)
        if child == NONE:
            node = np.int64(nodes[node].parent)
        else:
            nodes[child].weight = 0
            node = child


@compiled
def _merge_sort(requests, heap, by_priority, low_first, engine):
    """Sort the queue by the keys in `heap`, smallest first, stably; by priority before that, if asked for."""
    mask = engine.window_mask
    width = 1
    while width < engine.waiting:
        rest, head, tail = engine.queue_head, np.int64(NONE), np.int64(NONE)
        while rest != NONE:
            left, right = rest, rest
            lefts = 0
            while lefts < width and right != NONE:
                right = requests[right & mask].later
                lefts += 1
            rights = width
            while lefts > 0 or (rights > 0 and right != NONE):
                if lefts > 0 and (
                    rights == 0
                    or right == NONE
                    or not _goes_first(requests, heap, right, left, by_priority, low_first, mask)
                ):
                    taken = left
                    left = requests[left & mask].later
                    lefts -= 1
                else:
                    taken = right
                    right = requests[right & mask].later
                    rights -= 1
                if tail == NONE:
                    head = taken
                else:
                    requests[tail & mask].later = taken
                requests[taken & mask].earlier = tail
                tail = taken
            rest = right
        requests[tail & mask].later = NONE
        engine.queue_head, engine.queue_tail = head, tail
        width *= 2


@inlined
def _goes_first(requests, heap, row, other, by_priority, low_first, mask):
    one, two = requests[row & mask].priority, requests[other & mask].priority
    if by_priority and one != two:
        return one < two if low_first else one > two
    return heap[row & mask] < heap[other & mask]


# The step


@compiled
def _write(requests, decisions, cost, engine, step, own, work):
    """Count what the step computes and put it in flight."""
    parity = engine.steps & 1
    count = 0
    for i in range(own.batch):
        slot = work.batch[i]
        this = work.slots[slot]
        request = requests[this.request & engine.window_mask]
        if len(decisions) > 0:
            commit.write_decision(
                decisions, engine, this.request, this.event, i, this.tokens, this.computed, this.prefill, this.ends,
                this.hits,
            )  # fmt: skip
        if this.prefill:
            step_time.add_chunk(step, 0, FAR, this.tokens, this.computed, cost, engine)
        else:
            step_time.add_chunk(step, 0, 0, this.tokens, this.computed, cost, engine)
        request.computed_tokens += this.tokens
        if this.ends:
            step.sampled += 1
            this.in_flight += 1
            flown = work.flown[parity, count]
            flown.slot = slot
            flown.seat = this.seat
            flown.end = this.computed + this.tokens
            flown.prefill = this.prefill
            count += 1
    if parity:
        own.flown1 = count
    else:
        own.flown0 = count


@inlined
def _count_blocks(engine, own, tree):
    """State the pool in pages; what can be evicted counts as free."""
    engine.free_blocks = _capacity(tree) // own.page
    engine.cached_blocks = (tree.counts.evictable + tree.counts.protected) // own.page


@inlined
def _note(beside, engine, step, own, tree):
    counts = tree.counts
    beside.running = own.running
    beside.free_tokens = counts.free
    beside.evictable_tokens = counts.evictable
    beside.protected_tokens = counts.protected
    beside.evicted_tokens = counts.evicted_tokens
    beside.evicted_nodes = counts.evicted_nodes
    beside.retracted = own.retracted
    beside.preempted = own.preempted
    beside.aborted = own.aborted
    beside.new_token_ratio = own.ratio
    step.evicted_blocks = counts.evicted_tokens // own.page
    counts.evicted_tokens = counts.evicted_nodes = 0
