"""vLLM's original scheduler: 0.2.7, and 0.6.3 without and with chunked prefill.

A request is a group of samples of one prompt. All samples that have not ended are of one length, so a slot says how
many are left and how long one is. They share the blocks of the prompt: `full` whole ones for good, and, from the
prompt's end to the first decode, the last one if it is partly filled (`tail`), which all but one of them then copy.
A sample's table names `blocks` blocks, so a group takes full + tail + live * (blocks - full - tail).

A group that finds no room is computed anew if it is a single sequence, and else swapped to the host: 0.2.7 moves
each of its blocks once, 0.6.3 once for each sample. The defects of the released code are under `settings.defects`:
recorded cases have them; a plan is better off without, as they lose memory or end the engine for reasons that no
traffic has. What remains of them then is that a request which can never go on is refused.
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.kernel import commit, ledger, step_time, wait_queue
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import (
    CONTINUED,
    DROPPED,
    ENDED,
    FOREVER,
    LOST,
    MAX_STEPS,
    NEED_TRACE,
    NONE,
    REJECTED,
    RUNNING,
    STALLED,
    SWAPPED_IN,
    SWAPPED_OUT,
    TIMED_OUT,
    TRACE_DONE,
)

BY_WEIGHT, ALWAYS_SWAP, ALWAYS_RECOMPUTE = range(3)

# What a slot does in a step, in the order of the running list afterwards; UNREACHED does nothing.
UNREACHED, BACK_DECODE, BACK_CHUNK, DECODE, CHUNK, NEW = range(6)
BATCH_ORDER = (NEW, CHUNK, BACK_CHUNK, DECODE, BACK_DECODE)

FITS, LATER, NEVER = range(3)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("arrival_ns", np.int64),
        ("priority", np.int32),
        ("length", np.int32),  # prompt and tokens of one sample
        ("computed_tokens", np.int32),  # of those, in KV
        ("seen", np.int32),  # of those, tokens that blocks were given for
        ("target_tokens", np.int32),  # length at which the last sample ends
        ("blocks", np.int32),
        ("full", np.int32),
        ("tail", np.int32),
        ("samples", np.int32),  # asked for
        ("live", np.int32),  # sequences that have not ended; 1 until the prompt has been computed
        ("tokens", np.int32),  # in the step being decided, of all sequences
        ("event", np.int8),
        ("kind", np.int8),
        ("forked", np.int8),  # it has been split into its samples
        ("prefill", np.int8),  # not all tokens known have been computed
        ("misread", np.int8),  # defect: the engine takes what it computes anew for decodes
        ("phantom", np.int8),  # defect: its shared blocks count users that are gone, so they are never free again
    ],
    align=True,
)

SETTINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "early",  # 0.2.7
            "chunked",
            "by_rank",  # priority before arrival, running requests put out for it
            "preemption_mode",
            "max_paddings",
            "longest_prompt",  # a longer one is dropped
            "watermark_blocks",
            "swap_block_ns",  # moving a block over the host link
            "copy_block_ns",  # copying a block on the accelerator
            "defects",
            # state
            "host_free",  # blocks of host memory that are free
            "swapped",  # groups there
            "joined",  # groups have joined the running list since it was sorted
            "last_call_ns",  # when prompts were asked for last
            "prompts_last",  # whether that call let one in
            "prompt_ns",  # how long the last step of prompts seemed to take
            "crashed",  # no host memory was left to swap to
            # the decision being taken
            "sequences",  # that count against max_num_seqs
            "put_out",  # to go back to the queue once it has been served
            "unfit",  # that can never come back from the host
            "moved_blocks",
            "copied_blocks",
        )
    ]
    + [("delay_factor", np.float64)],
    align=True,
)

OWN = np.dtype(
    [
        (name, np.int32)
        for name in (
            "swapped",
            "sequences",
            "padded_tokens",
            "swapped_in",
            "recomputed",
            "swapped_out",
            "ignored",
            "free_host_blocks",
            "blocks_in",
            "blocks_out",
            "blocks_copied",
        )
    ],
    align=True,
)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    slots: Any  # SLOT[most running requests], the first engine.running
    swapped: Any  # SLOT[blocks of the host], the first settings.swapped
    work: Any  # SLOT[most running requests + 1], scratch
    rows: Any  # int64[2, ...], rows of the trace put out, and of those that can never come back
    settings: Any  # SETTINGS
    own_columns: Any  # OWN[step rows]


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    slots, swapped, work = parts.slots[replica], parts.swapped[replica], parts.work[replica]
    rows, own = parts.rows[replica], parts.settings[replica]
    while True:
        if engine.collect_due:
            if engine.gpu_free_ns > engine.horizon_ns:
                return NEED_TRACE
            engine.collect_due = 0
            _collect(requests, lengths, flights, gaps, engine, slots)
        if engine.now_ns >= engine.horizon_ns + engine.stepwise:
            return NEED_TRACE
        _give_up(requests, arrivals, heap, engine, slots, swapped, own)
        wait_queue.arrive(requests, arrivals, heap, engine)
        if engine.ended != NONE:
            return ENDED
        if engine.unfinished == 0 and not own.crashed:
            _passed_delay(requests, engine, own, 0)
            if not ledger.jump(requests, arrivals, engine):
                return TRACE_DONE if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        reason = ledger.full(steps, gaps, decisions, engine)
        if reason != ledger.ROOM:
            return reason
        step = steps[engine.steps_used]
        beside = parts.own_columns[replica, engine.steps_used]
        start_ns = max(engine.now_ns, engine.gpu_free_ns)
        decided = engine.decisions_used
        if not own.crashed:
            _open(engine, step, beside, own, slots)
            _decide(requests, heap, lengths, decisions, engine, step, beside, slots, swapped, work, rows, own, start_ns)
        if own.crashed:
            engine.decisions_used = decided
            engine.wake_ns = FOREVER
            return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
        _write(requests, decisions, cost, engine, step, beside, slots, own)
        if step.scheduled == 0 and step.preempted == 0 and beside.ignored == 0:
            if not ledger.jump(requests, arrivals, engine):
                return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        moved_ns = own.swap_block_ns * own.moved_blocks + own.copy_block_ns * own.copied_blocks
        ledger.close_step(flights, g_ns, cost, engine, step, start_ns, moved_ns)
        if engine.steps == engine.max_steps:
            return MAX_STEPS
        engine.collect_due = 1
        if engine.ended != NONE:
            return ENDED
        if engine.stepwise:
            return NEED_TRACE


@inlined
def _open(engine, step, beside, own, slots):
    ledger.open_step(engine, step)
    beside.padded_tokens = 0
    beside.swapped_in = 0
    beside.recomputed = 0
    beside.swapped_out = 0
    beside.ignored = 0
    beside.blocks_in = 0
    beside.blocks_out = 0
    own.copied_blocks = 0
    own.put_out = 0
    own.unfit = 0
    own.sequences = 0
    engine.budget = engine.max_num_batched_tokens
    for i in range(engine.running):
        slots[i].tokens = 0
        slots[i].kind = UNREACHED
        if not own.chunked:
            own.sequences += _weight(slots[i])


@inlined
def _decide(requests, heap, lengths, decisions, engine, step, beside, slots, swapped, work, rows, own, start_ns):
    if own.chunked:
        unreached = _serve(requests, decisions, engine, step, beside, slots, swapped, rows, own)
        if own.crashed:
            return
        if step.preempted == 0:
            _bring_back(requests, decisions, engine, step, beside, slots, swapped, rows, own)
        _admit(requests, heap, lengths, decisions, engine, step, beside, slots, own, start_ns, unreached)
        _return_to_queue(requests, heap, decisions, engine, beside, rows, own)
        _regroup(engine, slots, work)
        return
    if own.swapped == 0:
        before = engine.running
        _admit(requests, heap, lengths, decisions, engine, step, beside, slots, own, start_ns, before)
        if engine.running > before or (own.early and beside.ignored > 0):
            return
    if own.by_rank:
        _make_way(requests, heap, lengths, decisions, engine, step, beside, slots, swapped, work, rows, own)
        if own.crashed:
            return
    elif own.early:
        _sort_running(slots, work, engine, own)
        own.sequences = 0
    made_way = step.preempted
    _serve(requests, decisions, engine, step, beside, slots, swapped, rows, own)
    if own.crashed:
        return
    if own.early:
        _sort(swapped, work, own.swapped, False)
    if step.preempted == made_way:
        _bring_back(requests, decisions, engine, step, beside, slots, swapped, rows, own)
    _return_to_queue(requests, heap, decisions, engine, beside, rows, own)


# Blocks


@inlined
def _weight(this):
    """Return what a group counts against max_num_seqs."""
    return this.samples if this.samples > 1 and not this.forked else this.live


@inlined
def _each(this):
    """Return the tokens that each sequence of a group computes in the step."""
    return this.tokens if this.live == 1 else this.tokens // this.live


@inlined
def _distinct(this):
    """Return the blocks that a group takes."""
    return this.full + this.tail + this.live * (this.blocks - this.full - this.tail)


@inlined
def _blocks(tokens, engine):
    return (tokens + engine.block_size - 1) // engine.block_size


@inlined
def _release(this, engine):
    """Give back the blocks of a group on the accelerator."""
    engine.free_blocks += _distinct(this)
    if this.phantom:
        engine.free_blocks -= this.full + this.tail


@inlined
def _touched(this, engine, own):
    """Return the blocks that must be free before a group goes on: those it writes to, even if it has them."""
    if own.early or this.length > this.seen or this.seen % engine.block_size > 0:
        return this.live
    return 0


@inlined
def _make_room(this, engine, own):
    """Give every sequence of a group a place for its next token; a block with other users is copied."""
    if this.length > this.blocks * engine.block_size:
        this.blocks += 1
        engine.free_blocks -= this.live
    elif this.tail and this.length > this.seen:
        copies = this.live if this.phantom else this.live - 1
        engine.free_blocks -= copies
        own.copied_blocks += copies
        this.tail = 0
    this.seen = this.length


@inlined
def _swap_need(this, engine, own):
    """Return the blocks that must be free on the other side before a group is moved there."""
    if own.early:
        return _distinct(this)
    return _touched(this, engine, own) + this.live * (this.seen // engine.block_size)


# Who is put out, and who comes back


@compiled
def _put_out(requests, decisions, engine, step, beside, this, swapped, rows, own, mode):
    """Take the memory of a group: it is computed anew, or moved to the host, as several sequences always are."""
    swap = mode == ALWAYS_SWAP or this.live > 1 or (mode == BY_WEIGHT and _weight(this) > 1)
    if not swap:
        _recompute(requests, decisions, engine, step, beside, this, rows, own)
        return
    request = requests[this.request & engine.window_mask]
    if _swap_need(this, engine, own) > own.host_free:
        if own.defects:
            own.crashed = 1
            return
        _release(this, engine)
        _drop(requests, decisions, engine, beside, this.request)
        engine.running -= 1
        return
    commit.write_decision(
        decisions, engine, this.request, SWAPPED_OUT, step.preempted, 0, this.live * this.computed_tokens, False,
        False, 0,
    )  # fmt: skip
    step.preempted += 1
    beside.swapped_out += 1
    request.preemptions += 1
    _release(this, engine)
    if not own.early:
        this.full = 0
        this.tail = 0
    own.host_free -= _distinct(this)
    beside.blocks_out += _distinct(this)
    swapped[own.swapped] = this
    own.swapped += 1
    engine.running -= 1


@inlined
def _recompute(requests, decisions, engine, step, beside, this, rows, own):
    commit.write_decision(
        decisions, engine, this.request, LOST, step.preempted, 0, this.live * this.computed_tokens, False, False, 0
    )
    step.preempted += 1
    beside.recomputed += 1
    requests[this.request & engine.window_mask].preemptions += 1
    _release(this, engine)
    rows[0, own.put_out] = this.request
    own.put_out += 1
    engine.running -= 1


@compiled
def _return_to_queue(requests, heap, decisions, engine, beside, rows, own):
    """Put who is computed anew in front of the queue, the last one first, and drop who can never come back."""
    for i in range(own.put_out):
        wait_queue.push_front(requests, heap, rows[0, i], engine)
    own.put_out = 0
    for i in range(own.unfit):
        _drop(requests, decisions, engine, beside, rows[1, i])
    own.unfit = 0


@compiled
def _drop(requests, decisions, engine, beside, row):
    """End a request that can never be served."""
    ledger.drop(requests, row, REJECTED, NONE, engine)
    commit.write_decision(decisions, engine, row, DROPPED, beside.ignored, 0, 0, False, False, 0)
    beside.ignored += 1


@compiled
def _bring_back(requests, decisions, engine, step, beside, slots, swapped, rows, own):
    """Move groups back from the host, in order, while they fit."""
    done = 0
    while done < own.swapped:
        this = swapped[done]
        need = _swap_need(this, engine, own)
        if own.early:
            need += this.live
        most = engine.most_blocks - own.watermark_blocks if own.early else engine.most_blocks
        if need > most and not (own.early and own.defects):
            if not own.defects:
                own.host_free += _distinct(this)
            rows[1, own.unfit] = this.request
            own.unfit += 1
            done += 1
            continue
        tokens = this.live * (this.length - this.computed_tokens)
        if engine.free_blocks - need < own.watermark_blocks:
            break
        if own.sequences + _weight(this) > engine.max_active or (tokens > engine.budget and not own.early):
            break
        own.sequences += _weight(this)
        engine.budget -= tokens
        own.host_free += _distinct(this)
        engine.free_blocks -= _distinct(this)
        beside.blocks_in += _distinct(this)
        _make_room(this, engine, own)
        told = this.prefill and not this.misread
        this.tokens = tokens if told else this.live
        this.kind = BACK_CHUNK if told else BACK_DECODE
        this.event = SWAPPED_IN
        beside.swapped_in += 1
        slots[engine.running] = this
        engine.running += 1
        own.joined = 1
        done += 1
    if done > 0:
        own.swapped -= done
        for i in range(own.swapped):
            swapped[i] = swapped[i + done]


# Serving who runs


@inlined
def _serve(requests, decisions, engine, step, beside, slots, swapped, rows, own):
    """Let running groups go on, in order; where room lacks, the last one not yet served goes. Return how many remain.

    Those that the token budget did not reach stay behind the served ones in the list.
    """
    at, end, kept = 0, engine.running, 0
    while at < end:
        this = slots[at]
        tokens = this.live * (this.length - this.computed_tokens)
        if own.chunked and this.live == 1:
            tokens = min(tokens, engine.budget)
        if tokens == 0:
            break
        at += 1
        need = _touched(this, engine, own)
        while engine.free_blocks < need and at < end:
            end -= 1
            _put_out(requests, decisions, engine, step, beside, slots[end], swapped, rows, own, own.preemption_mode)
            if own.crashed:
                return 0
        if engine.free_blocks < need:
            _put_out(requests, decisions, engine, step, beside, this, swapped, rows, own, own.preemption_mode)
            if own.crashed:
                return 0
            continue
        _make_room(this, engine, own)
        told = this.prefill and not this.misread
        this.tokens = tokens if told else this.live
        this.kind = CHUNK if told else DECODE
        this.event = CONTINUED
        engine.budget -= tokens
        if own.chunked or own.early:
            own.sequences += _weight(this)
        if kept != at - 1:
            slots[kept] = this
        kept += 1
    unreached = end - at
    if kept != at:
        for i in range(unreached):
            slots[kept + i] = slots[at + i]
    return unreached


@compiled
def _regroup(engine, slots, work):
    """Bring the running list into the order of kinds, each as it is."""
    ordered = True
    for i in range(1, engine.running):
        if slots[i].kind < slots[i - 1].kind:
            ordered = False
    if ordered:
        return
    placed = 0
    for kind in range(NEW + 1):
        for i in range(engine.running):
            if slots[i].kind == kind:
                work[placed] = slots[i]
                placed += 1
    for i in range(placed):
        slots[i] = work[i]


# Prompts


@inlined
def _passed_delay(requests, engine, own, running):
    """Return whether delay_factor lets a prompt in; asked before each."""
    if own.prompts_last:
        own.prompt_ns = engine.now_ns - own.last_call_ns
    own.last_call_ns = engine.now_ns
    own.prompts_last = 0
    if own.delay_factor == 0.0 or engine.waiting == 0 or running == 0:
        return True
    oldest = FOREVER
    row = engine.queue_head
    while row != NONE:
        oldest = min(oldest, requests[row & engine.window_mask].arrival_ns)
        row = requests[row & engine.window_mask].later
    return float(engine.now_ns - oldest) > own.delay_factor * float(own.prompt_ns)


@inlined
def _length(lengths, request, engine):
    """Return the tokens of the one sequence that a waiting request has."""
    if request.samples == 1 or request.known_tokens == request.input_tokens:
        return request.known_tokens
    most = request.target_tokens - request.input_tokens
    longest, total = 0, 0
    for k in range(request.samples):
        tokens = min(lengths[(request.sample_start + k) & engine.length_mask], most)
        longest = max(longest, tokens)
        total += tokens
    return request.known_tokens - (total - longest)


@inlined
def _alive(lengths, request, tokens, engine):
    """Return how many samples go on after so many tokens of each."""
    if request.input_tokens + tokens >= request.target_tokens:
        return 0
    alive = 0
    for k in range(request.samples):
        alive += lengths[(request.sample_start + k) & engine.length_mask] > tokens
    return alive


@inlined
def _can_allocate(length, engine, own):
    need = _blocks(length, engine)
    if engine.most_blocks - need < own.watermark_blocks:
        return NEVER
    return FITS if engine.free_blocks - need >= own.watermark_blocks else LATER


@inlined
def _admit(requests, heap, lengths, decisions, engine, step, beside, slots, own, start_ns, running):
    """Take requests from the queue in order while blocks, tokens, places and padding allow.

    running : groups that run beside them, as the delay sees it
    """
    longest, total, count = 0, 0, 0
    while own.early or _passed_delay(requests, engine, own, running):
        row = wait_queue.head(heap, engine)
        if row == NONE:
            break
        request = requests[row & engine.window_mask]
        length = _length(lengths, request, engine)
        tokens = min(length, engine.budget) if own.chunked else length
        room = _can_allocate(length, engine, own)
        if tokens > own.longest_prompt or room == NEVER:
            wait_queue.remove(requests, heap, row, engine)
            _drop(requests, decisions, engine, beside, row)
            continue
        forked = request.samples > 1 and request.known_tokens > request.input_tokens
        weight = 1 if forked else request.samples
        if room == LATER or tokens == 0 or own.sequences + weight > engine.max_active:
            break
        if own.early:
            padded = (count + 1) * max(longest, length)
            if padded > engine.max_num_batched_tokens or padded - total - length > own.max_paddings:
                break
            beside.padded_tokens = padded
        elif tokens > engine.budget:
            break
        longest = max(longest, length)
        total += length
        count += 1
        wait_queue.remove(requests, heap, row, engine)
        own.sequences += weight
        engine.budget -= tokens
        this = slots[engine.running]
        this.event = ledger.start(request, 0, start_ns, engine, step)
        this.kind = NEW
        own.joined = 1
        this.tokens = tokens
        _fill(lengths, request, row, length, forked, this, engine, own)
    if not own.early:
        own.prompts_last = count > 0


@compiled
def _fill(lengths, request, row, length, forked, this, engine, own):
    """Enter an admitted request in its slot, with blocks for all that it knows."""
    this.request = row
    this.arrival_ns = request.arrival_ns
    this.priority = request.priority
    this.length = length
    this.seen = length
    this.target_tokens = request.target_tokens
    this.computed_tokens = 0
    this.samples = request.samples
    this.live = 1
    this.forked = forked
    this.prefill = 1
    this.blocks = _blocks(length, engine)
    this.full = 0
    this.tail = 0
    this.misread = 0
    this.phantom = 0
    if own.defects and forked:
        parent = (request.sample_start + request.samples - 1) & engine.length_mask  # first in the real group
        if own.early:
            this.phantom = 1
            this.full = length // engine.block_size
            this.tail = this.blocks - this.full
        elif request.input_tokens + lengths[parent] <= length:
            this.misread = 1
    engine.free_blocks -= this.blocks


# Priority


@compiled
def _make_way(requests, heap, lengths, decisions, engine, step, beside, slots, swapped, work, rows, own):
    """Put out running requests that rank behind the head of the queue until it fits; sort both lists by rank."""
    _sort_running(slots, work, engine, own)
    row = wait_queue.head(heap, engine)
    if row == NONE:
        return
    head = requests[row & engine.window_mask]
    life = head.life
    length = _length(lengths, head, engine)
    wait_queue.remove(requests, heap, row, engine)
    while engine.running > 0:
        last = slots[engine.running - 1]
        if last.priority < head.priority or (last.priority == head.priority and last.arrival_ns <= head.arrival_ns):
            break
        if (
            _can_allocate(length, engine, own) == FITS
            and length <= engine.budget
            and own.sequences + head.samples <= engine.max_active
        ):
            break
        own.sequences -= _weight(last)
        _put_out(requests, decisions, engine, step, beside, last, swapped, rows, own, ALWAYS_RECOMPUTE)
        if own.crashed:
            return
    _return_to_queue(requests, heap, decisions, engine, beside, rows, own)
    wait_queue.push_front(requests, heap, row, engine)
    head.life = life
    _sort_queue(requests, engine)


@inlined
def _behind(requests, a, b, engine):
    """Return whether row a ranks before row b, which stands in front of it."""
    one, other = requests[a & engine.window_mask], requests[b & engine.window_mask]
    return one.priority < other.priority or (one.priority == other.priority and one.arrival_ns < other.arrival_ns)


@compiled
def _sort_queue(requests, engine):
    """Sort the waiting queue by rank, stably; most of it is sorted."""
    mask = engine.window_mask
    row = requests[engine.queue_head & mask].later
    while row != NONE:
        this = requests[row & mask]
        following, before = this.later, this.earlier
        if _behind(requests, row, before, engine):
            requests[before & mask].later = following
            if following == NONE:
                engine.queue_tail = before
            else:
                requests[following & mask].earlier = before
            while before != NONE and _behind(requests, row, before, engine):
                before = requests[before & mask].earlier
            after = engine.queue_head if before == NONE else requests[before & mask].later
            this.earlier = before
            this.later = after
            requests[after & mask].earlier = row
            if before == NONE:
                engine.queue_head = row
            else:
                requests[before & mask].later = row
        row = following


@inlined
def _sort_running(slots, work, engine, own):
    if own.joined:
        _sort(slots, work, engine.running, own.by_rank)
        own.joined = 0


@inlined
def _sort(slots, work, count, by_rank):
    """Sort groups by arrival, or by rank, stably; they mostly are."""
    for i in range(1, count):
        if _earlier(slots[i], slots[i - 1], by_rank):
            _insert(slots, work, i, by_rank)


@inlined
def _earlier(one, other, by_rank):
    if by_rank and one.priority != other.priority:
        return one.priority < other.priority
    return one.arrival_ns < other.arrival_ns


@compiled
def _insert(slots, work, at, by_rank):
    spare = work[len(work) - 1]
    work[len(work) - 1] = slots[at]
    while at > 0 and _earlier(spare, slots[at - 1], by_rank):
        slots[at] = slots[at - 1]
        at -= 1
    slots[at] = spare


# The step


@inlined
def _write(requests, decisions, cost, engine, step, beside, slots, own):
    """Count what the step computes; rows of decisions stand in the order of the batch."""
    engine.held_tokens = 0
    beside.sequences = 0
    if len(decisions) > 0:
        for kind in BATCH_ORDER:
            for i in range(engine.running):
                if slots[i].kind == kind:
                    _write_row(decisions, engine, step, slots[i])
                    _count(cost, engine, step, beside, slots[i])
    for i in range(engine.running):
        this = slots[i]
        if len(decisions) == 0 and this.kind != UNREACHED:
            _count(cost, engine, step, beside, this)
        shared = this.full * engine.block_size
        new = _each(this)
        copies = 1 if this.tail else this.live
        engine.held_tokens += shared + copies * (this.computed_tokens + new - shared)
    if not own.early:
        beside.padded_tokens = engine.max_num_batched_tokens - engine.budget
    elif beside.padded_tokens == 0:
        beside.padded_tokens = step.decode_tokens
    beside.swapped = own.swapped
    beside.free_host_blocks = own.host_free
    beside.blocks_copied = own.copied_blocks
    own.moved_blocks = beside.blocks_in + beside.blocks_out


@inlined
def _samples(this):
    """Return whether the step ends with tokens for a group."""
    return not this.prefill or this.misread or this.computed_tokens + this.tokens >= this.length


@compiled
def _write_row(decisions, engine, step, this):
    commit.write_decision(
        decisions, engine, this.request, this.event, step.scheduled, this.tokens, this.live * this.computed_tokens,
        this.prefill and not this.misread, _samples(this), 0,
    )  # fmt: skip


@inlined
def _count(cost, engine, step, beside, this):
    beside.sequences += this.live
    known = this.length + 1 if this.prefill and not this.misread else 0
    step_time.add_chunk(step, known, 0, this.tokens, this.live * this.computed_tokens, cost, engine)
    if _samples(this):
        step.sampled += this.live


@inlined
def _collect(requests, lengths, flights, gaps, engine, slots):
    """The step has ended: sequences get their tokens, prompts that are done are split, and who has ended leaves."""
    number, end_ns = ledger.take_oldest(flights, engine)
    kept = 0
    for i in range(engine.running):
        this = slots[i]
        ends = False
        if this.kind != UNREACHED:
            request = requests[this.request & engine.window_mask]
            request.computed_tokens += this.tokens
            samples = _samples(this)
            this.computed_tokens += _each(this)
            this.prefill = this.prefill and this.computed_tokens < this.length
            if samples:
                ledger.deliver(requests, gaps, this.request, number, end_ns, engine)
                this.length += 1
                ends = this.length >= this.target_tokens
                if this.samples > 1:
                    ends = _share(lengths, request, this, engine)
        if ends:
            _release(this, engine)
            ledger.finish(requests, this.request, end_ns, engine)
        else:
            if kept != i:
                slots[kept] = this
            kept += 1


@inlined
def _share(lengths, request, this, engine):
    """The samples of a group got a token each; split them if these are their first. Return whether all have ended."""
    alive = _alive(lengths, request, this.length - request.input_tokens, engine)
    if not this.forked:
        this.forked = 1
        request.known_tokens += this.samples - 1
        if alive > 1:
            this.full = (this.length - 1) // engine.block_size
            this.tail = this.blocks - this.full
            this.live = alive
        return alive == 0
    request.known_tokens += this.live - 1
    if alive > 0:
        engine.free_blocks += (this.live - alive) * (this.blocks - this.full - this.tail)
        this.live = alive
    return alive == 0


# Clients that leave


@inlined
def _give_up(requests, arrivals, heap, engine, slots, swapped, own):
    """Take out every request whose client has stopped waiting by now."""
    row = ledger.overdue(requests, arrivals, engine)
    while row != NONE:
        request = requests[row & engine.window_mask]
        if request.life == RUNNING:
            _leave(row, engine, slots, swapped, own)
        else:
            wait_queue.remove(requests, heap, row, engine)
        ledger.drop(requests, row, TIMED_OUT, request.arrival_ns + engine.timeout_ns, engine)
        row = ledger.overdue(requests, arrivals, engine)


@compiled
def _leave(row, engine, slots, swapped, own):
    kept = 0
    for i in range(engine.running):
        if slots[i].request == row:
            _release(slots[i], engine)
        else:
            slots[kept] = slots[i]
            kept += 1
    engine.running = kept
    kept = 0
    for i in range(own.swapped):
        if swapped[i].request == row:
            own.host_free += _distinct(swapped[i])
        else:
            swapped[kept] = swapped[i]
            kept += 1
    own.swapped = kept
