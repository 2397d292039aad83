"""TensorRT-LLM's two schedulers: capacity chooses who fits into memory, then micro-batching who runs.

All requests that have arrived and not ended stand in one list by priority and arrival, whether they have started or
not; `heap` holds it. Capacity goes through it by one of three rules:

    NO_EVICT        everything a request may still generate has its block before it starts; nobody is ever paused
    STATIC_BATCH    the same, and nobody starts while anybody generates
    MAX_UTILIZATION only the next step needs blocks; where they run out the last one that has started is paused, loses
                    its memory and keeps its place in the list

Of those who fit, generating requests take one token each and prompts what is left of the step, whole or in chunks.
Source: capacityScheduler.cpp and microBatchScheduler.cpp of TensorRT-LLM, 2025.
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.kernel import commit, ledger, step_time, wait_queue
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import (
    CONTINUED,
    DONE,
    ENDED,
    FOREVER,
    LOST,
    MAX_STEPS,
    NEED_TRACE,
    NONE,
    PREEMPTED,
    RUNNING,
    STALLED,
    TIMED_OUT,
    TRACE_DONE,
)

NO_EVICT, STATIC_BATCH, MAX_UTILIZATION = range(3)
WHOLE, FIRST_COME_FIRST_SERVED, EQUAL_PROGRESS = range(3)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("prompt_tokens", np.int32),  # to compute before it samples: what it generated before it was paused included
        ("computed_tokens", np.int32),
        ("blocks", np.int32),
        ("tokens", np.int32),  # in the step being decided
        ("later", np.int32),  # next unused slot
    ],
    align=True,
)

SETTINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "capacity",
            "chunking",
            "chunk_unit",
            "max_batch_size",
            "active",  # requests in the list
            "fitting",  # of this decision
            "batch",
        )
    ],
    align=True,
)
OWN = np.dtype([("fitting", np.int32)], align=True)
PLAN = np.dtype([("request", np.int64), ("tokens", np.int32), ("generates", np.int8)], align=True)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    slots: Any  # SLOT[most started requests]
    fitting: Any  # PLAN[max_batch_size], who fits, then what they compute
    settings: Any  # SETTINGS
    own_columns: Any  # OWN[step rows]


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    slots, fitting, own = parts.slots[replica], parts.fitting[replica], parts.settings[replica]
    active = heap
    while True:
        if engine.collect_due:
            if engine.gpu_free_ns > engine.horizon_ns:
                return NEED_TRACE
            engine.collect_due = 0
            _collect(requests, flights, gaps, engine, slots, fitting, active, own)
        if engine.now_ns >= engine.horizon_ns + engine.stepwise:
            return NEED_TRACE
        _give_up(requests, arrivals, engine, slots, active, own)
        _arrive(requests, arrivals, heap, engine, active, own)
        if engine.ended != NONE:
            return ENDED
        if engine.unfinished == 0:
            if not ledger.jump(requests, arrivals, engine):
                return TRACE_DONE if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        reason = ledger.full(steps, gaps, decisions, engine)
        if reason != ledger.ROOM:
            return reason
        step = steps[engine.steps_used]
        start_ns = max(engine.now_ns, engine.gpu_free_ns)
        ledger.open_step(engine, step)
        if own.capacity == MAX_UTILIZATION:
            _utilise(requests, decisions, engine, step, slots, fitting, active, own)
        else:
            _keep(requests, engine, slots, fitting, active, own)
        parts.own_columns[replica, engine.steps_used].fitting = own.fitting
        _micro_batch(requests, engine, slots, fitting, own)
        _start(requests, decisions, cost, engine, step, slots, fitting, own, start_ns)
        if step.scheduled == 0 and step.preempted == 0:
            if not ledger.jump(requests, arrivals, engine):
                return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        ledger.close_step(flights, g_ns, cost, engine, step, start_ns, 0)
        if engine.steps == engine.max_steps:
            return MAX_STEPS
        engine.collect_due = 1
        if engine.stepwise:
            return NEED_TRACE


@inlined
def _arrive(requests, arrivals, heap, engine, active, own):
    """Put those who have arrived into the list, in their place by priority."""
    wait_queue.arrive(requests, arrivals, heap, engine)
    row = engine.queue_head
    while row != NONE:
        request = requests[row & engine.window_mask]
        at = own.active
        while at > 0 and requests[active[at - 1] & engine.window_mask].priority < request.priority:
            active[at] = active[at - 1]
            at -= 1
        active[at] = row
        own.active += 1
        row = request.later
    engine.queue_head = NONE
    engine.queue_tail = NONE


@inlined
def _generates(request, slots):
    """Whether a request has computed its prompt and samples a token in every step that it is in."""
    if request.life != RUNNING:
        return False
    return slots[request.slot].computed_tokens >= slots[request.slot].prompt_tokens


@inlined
def _blocks(tokens, engine):
    return (tokens + engine.block_size - 1) // engine.block_size


@inlined
def _to_end(request, slots, engine):
    """Return the blocks that a request may still take."""
    most = engine.max_model_len
    if request.max_tokens != NONE:
        most = min(most, request.input_tokens + request.max_tokens)
    held = slots[request.slot].blocks if request.life == RUNNING else 0
    return _blocks(most, engine) - held


@inlined
def _next_step(request, slots, engine):
    """Return the blocks that a request takes in its next step."""
    if request.life != RUNNING:
        return _blocks(request.known_tokens, engine)
    this = slots[request.slot]
    if this.computed_tokens < this.prompt_tokens:
        return 0
    return 1 if this.computed_tokens == this.blocks * engine.block_size else 0


@inlined
def _fit(request, row, slots, fitting, own):
    fitting[own.fitting].request = row
    fitting[own.fitting].generates = _generates(request, slots)
    own.fitting += 1


@inlined
def _keep(requests, engine, slots, fitting, active, own):
    """Choose all who generate, then prompts in order while all that they may generate fits too."""
    own.fitting = 0
    free = engine.free_blocks
    seen, at = 0, 0
    while seen < engine.running and own.fitting < own.max_batch_size:
        row = active[at]
        at += 1
        request = requests[row & engine.window_mask]
        if request.life != RUNNING:
            continue
        seen += 1
        if _generates(request, slots):
            free -= _to_end(request, slots, engine)
            _fit(request, row, slots, fitting, own)
    if own.capacity == STATIC_BATCH and own.fitting > 0:
        return
    for i in range(own.active):
        if own.fitting >= own.max_batch_size:
            return
        row = active[i]
        request = requests[row & engine.window_mask]
        if _generates(request, slots):
            continue
        needed = _to_end(request, slots, engine)
        if needed > free:
            return
        free -= needed
        _fit(request, row, slots, fitting, own)


@inlined
def _utilise(requests, decisions, engine, step, slots, fitting, active, own):
    """Choose in order while the next step's blocks are there; else pause from the end of those who have started."""
    own.fitting = 0
    needed, at, end = 0, 0, own.active
    last, seen = 0, 0  # behind the last one that has started
    while seen < engine.running:
        seen += requests[active[last] & engine.window_mask].life == RUNNING
        last += 1
    while at < end:
        row = active[at]
        request = requests[row & engine.window_mask]
        more = _next_step(request, slots, engine)
        if own.fitting < own.max_batch_size and needed + more <= engine.free_blocks:
            _fit(request, row, slots, fitting, own)
            needed += more
            at += 1
            continue
        last -= 1
        while last >= at and requests[active[last] & engine.window_mask].life != RUNNING:
            last -= 1
        if last < at:
            return
        _pause(requests, decisions, engine, step, slots, active[last])
        end = last


@inlined
def _pause(requests, decisions, engine, step, slots, row):
    """Take a request's memory; what it has generated is computed again with its prompt."""
    request = requests[row & engine.window_mask]
    commit.write_decision(
        decisions, engine, row, LOST, step.preempted, 0, slots[request.slot].computed_tokens, False, False, 0
    )
    step.preempted += 1
    request.preemptions += 1
    _leave(request, engine, slots)
    request.life = PREEMPTED
    engine.running -= 1
    engine.waiting += 1


@inlined
def _leave(request, engine, slots):
    """Give back memory and slot."""
    this = slots[request.slot]
    engine.free_blocks += this.blocks
    engine.held_tokens -= this.computed_tokens
    this.later = engine.idle_slot
    engine.idle_slot = request.slot


@inlined
def _micro_batch(requests, engine, slots, fitting, own):
    """Give tokens to those who fit: one to each who generates, and what is left to prompts."""
    engine.budget = engine.max_num_batched_tokens
    own.batch = 0
    prompts, whole = 0, True  # tokens of prompts, and whether none is too long for a step
    for i in range(own.fitting):
        plan = fitting[i]
        plan.tokens = 1
        if not plan.generates:
            plan.tokens = _rest(requests[plan.request & engine.window_mask], slots)
            if own.chunking != WHOLE:
                prompts += plan.tokens
                whole = whole and plan.tokens <= engine.max_num_batched_tokens
                own.batch += 1
                continue
        if plan.tokens > engine.budget:
            break
        engine.budget -= plan.tokens
        own.batch += 1
    if own.chunking != WHOLE and (prompts > engine.budget or not whole):
        if own.chunking == FIRST_COME_FIRST_SERVED:
            _chunks_in_turn(engine, fitting, own)
        else:
            _equal_chunks(requests, engine, slots, fitting, own)


@inlined
def _rest(request, slots):
    if request.life != RUNNING:
        return request.known_tokens
    this = slots[request.slot]
    return this.prompt_tokens - this.computed_tokens


@inlined
def _chunks_in_turn(engine, fitting, own):
    """Each prompt takes what is left; where that is not all of it, whole units."""
    for i in range(own.batch):
        plan = fitting[i]
        if not plan.generates:
            tokens = min(plan.tokens, engine.budget)
            if tokens < plan.tokens:
                tokens = tokens // own.chunk_unit * own.chunk_unit
            plan.tokens = tokens
            engine.budget -= tokens


@inlined
def _equal_chunks(requests, engine, slots, fitting, own):
    """Round after round each prompt takes a unit more, as long as there is room."""
    for i in range(own.batch):
        if not fitting[i].generates:
            fitting[i].tokens = 0
    moved = True
    while moved and engine.budget > 0:
        moved = False
        for i in range(own.batch):
            plan = fitting[i]
            if plan.generates:
                continue
            rest = _rest(requests[plan.request & engine.window_mask], slots)
            more = min(plan.tokens + own.chunk_unit, rest) - plan.tokens
            if 0 < more <= engine.budget and plan.tokens + more <= engine.max_num_batched_tokens:
                plan.tokens += more
                engine.budget -= more
                moved = True


@inlined
def _start(requests, decisions, cost, engine, step, slots, fitting, own, start_ns):
    """Give blocks to the batch, count what it computes; rows of decisions name prompts first, as the batch has them."""
    for generating in range(2):
        for i in range(own.batch):
            plan = fitting[i]
            if plan.generates != generating or plan.tokens == 0:
                continue
            request = requests[plan.request & engine.window_mask]
            event = CONTINUED
            if request.life != RUNNING:
                event = _take_slot(request, plan.request, engine, step, slots, start_ns)
            this = slots[request.slot]
            blocks = max(_blocks(this.computed_tokens + plan.tokens, engine) - this.blocks, 0)
            this.blocks += blocks
            engine.free_blocks -= blocks
            this.tokens = plan.tokens
            samples = this.computed_tokens + plan.tokens >= this.prompt_tokens
            commit.write_decision(
                decisions, engine, plan.request, event, step.scheduled, plan.tokens, this.computed_tokens,
                not plan.generates, samples, 0,
            )  # fmt: skip
            step_time.add_chunk(
                step, this.prompt_tokens + 1, this.prompt_tokens, plan.tokens, this.computed_tokens, cost, engine
            )
            step.sampled += samples
            engine.held_tokens += plan.tokens


@inlined
def _take_slot(request, row, engine, step, slots, start_ns):
    """A waiting request starts, with blocks for its whole prompt."""
    engine.waiting -= 1
    request.slot = engine.idle_slot
    this = slots[request.slot]
    engine.idle_slot = this.later
    this.request = row
    this.prompt_tokens = request.known_tokens
    this.computed_tokens = 0
    this.blocks = _blocks(request.known_tokens, engine)
    engine.free_blocks -= this.blocks
    return ledger.start(request, 0, start_ns, engine, step)


@inlined
def _collect(requests, flights, gaps, engine, slots, fitting, active, own):
    """The step has ended: who computed the last of what it knew gets a token, and who has the last one leaves."""
    number, end_ns = ledger.take_oldest(flights, engine)
    ended = False
    for i in range(own.batch):
        plan = fitting[i]
        if plan.tokens == 0:
            continue
        request = requests[plan.request & engine.window_mask]
        this = slots[request.slot]
        request.computed_tokens += plan.tokens
        this.computed_tokens += plan.tokens
        if this.computed_tokens >= this.prompt_tokens and ledger.deliver(
            requests, gaps, plan.request, number, end_ns, engine
        ):
            _leave(request, engine, slots)
            ledger.finish(requests, plan.request, end_ns, engine)
            ended = True
    if ended:
        _close_ranks(requests, engine, active, own)


@inlined
def _close_ranks(requests, engine, active, own):
    """Take those who have ended out of the list."""
    kept = 0
    for i in range(own.active):
        if requests[active[i] & engine.window_mask].life != DONE:
            active[kept] = active[i]
            kept += 1
    own.active = kept


@inlined
def _give_up(requests, arrivals, engine, slots, active, own):
    """Take out every request whose client has stopped waiting by now."""
    row = ledger.overdue(requests, arrivals, engine)
    left = row != NONE
    while row != NONE:
        request = requests[row & engine.window_mask]
        if request.life == RUNNING:
            _leave(request, engine, slots)
            engine.running -= 1
        else:
            engine.waiting -= 1
        ledger.drop(requests, row, TIMED_OUT, request.arrival_ns + engine.timeout_ns, engine)
        row = ledger.overdue(requests, arrivals, engine)
    if left:
        _close_ranks(requests, engine, active, own)
