"""S-LoRA's loop with fair queues between tenants: virtual token counters, least counter, deficit round robin, or none.

Prompts and decodes never mix: new requests are looked for when nobody runs and after every `max_wait_tokens` decodes,
and compute their prompts alone while the others wait. Memory is planned to the end of every request, so nobody is
ever preempted. The candidate is the first of the tenant whose turn it is; if it does not fit, nobody else is tried.

    FCFS  one queue for all
    VTC   the tenant with the smallest counter, which grows by what the tenant is served; one that comes back is lifted
          to the smallest of those who wait, so that idle time earns no credit
    LCF   the same without the lift
    MDRR  tenants in a ring, each with a quantum to spend and to pay back

A decode charges every request in it, and every step in which somebody ends charges its batch once more, as the
real code does. Source: VTC-artifact (Sheng et al., OSDI 2024), commit 192c2e2.
"""

from typing import Any, NamedTuple

import numpy as np

from pipeline.kernel import commit, ledger, step_time, wait_queue
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import (
    CONTINUED,
    ENDED,
    FOREVER,
    MAX_STEPS,
    NEED_TRACE,
    NONE,
    RUNNING,
    STALLED,
    TIMED_OUT,
    TRACE_DONE,
)

FCFS, VTC, LCF, MDRR = range(4)
PREFILL, DECODE = 0, 1

TENANT = np.dtype(
    [
        ("counter", np.float64),
        ("weight", np.float64),
        ("head", np.int64),  # its queue
        ("tail", np.int64),
        ("waiting", np.int64),
        ("seen", np.int64),  # order of first appearance, from 1; 0: not seen
        ("in_ring", np.int64),
    ],
    align=True,
)
SETTINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "order",
            "max_total_token_num",
            "batch_max_tokens",
            "max_wait_tokens",
            "waited",  # decodes since the last new batch
            "first",  # of the batch, in the list of running requests
            "seen",  # tenants seen so far
            "ring_head",
            "ring_count",
            "blocked",  # MDRR: tenant whose candidate did not fit
            "planned",
            "audit",
        )
    ]
    + [("input_price", np.float64), ("output_price", np.float64), ("quantum", np.float64)],
    align=True,
)
OWN = np.dtype([("kind", np.int8), ("finished", np.int32)], align=True)
PLAN = np.dtype([("left", np.int64), ("held", np.int64)], align=True)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    running: Any  # int64[running_max_req_size], rows in order of admission, new ones last
    plan: Any  # PLAN[running_max_req_size + 1], by what is left, largest first
    tenants: Any  # TENANT[most tenants]
    seen: Any  # int64[most tenants], tenants by first appearance
    ring: Any  # int64[most tenants]
    settings: Any  # SETTINGS
    levels: Any  # float64[step rows, most tenants] under audit: counters when a step has ended
    own_columns: Any  # OWN[step rows]


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    running, plan, tenants = parts.running[replica], parts.plan[replica], parts.tenants[replica]
    seen, ring, own = parts.seen[replica], parts.ring[replica], parts.settings[replica]
    while True:
        if engine.collect_due:
            if engine.gpu_free_ns > engine.horizon_ns:
                return NEED_TRACE
            engine.collect_due = 0
            _collect(requests, flights, gaps, engine, running, tenants, own)
            if own.audit:
                for i in range(own.seen):
                    parts.levels[replica, engine.steps_used - 1, seen[i]] = tenants[seen[i]].counter
        if engine.now_ns >= engine.horizon_ns + engine.stepwise:
            return NEED_TRACE
        _give_up(requests, arrivals, engine, running, tenants, own)
        _arrive(requests, arrivals, heap, engine, tenants, seen, ring, own)
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
        own.first = engine.running
        kind = DECODE
        if engine.running == 0 or own.waited >= own.max_wait_tokens:
            _pick(requests, engine, running, plan, tenants, seen, ring, own, step, start_ns)
            if engine.running > own.first:
                kind = PREFILL
                own.waited = 0
        else:
            own.waited += 1
        if engine.running == 0:
            if not ledger.jump(requests, arrivals, engine):
                return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        if kind == DECODE:
            own.first = 0
            _charge(requests, engine, running, tenants, own)
        beside = parts.own_columns[replica, engine.steps_used]
        beside.kind = kind
        beside.finished = _compute(requests, decisions, cost, engine, step, running, own, kind)
        ledger.close_step(flights, g_ns, cost, engine, step, start_ns, 0)
        if engine.steps == engine.max_steps:
            return MAX_STEPS
        engine.collect_due = 1
        if engine.stepwise:
            return NEED_TRACE


@inlined
def _queue(request, own):
    """Return the queue that a request stands in: its tenant's, or the one of all."""
    return 0 if own.order == FCFS else request.tenant


@inlined
def _arrive(requests, arrivals, heap, engine, tenants, seen, ring, own):
    """Put those who have arrived into their tenants' queues."""
    wait_queue.arrive(requests, arrivals, heap, engine)
    row = engine.queue_head
    while row != NONE:
        request = requests[row & engine.window_mask]
        following = request.later
        number = _queue(request, own)
        this = tenants[number]
        if this.seen == 0:
            seen[own.seen] = number
            own.seen += 1
            this.seen = own.seen
        request.later = NONE
        request.earlier = this.tail
        if this.tail == NONE:
            this.head = row
        else:
            requests[this.tail & engine.window_mask].later = row
        this.tail = row
        this.waiting += 1
        if own.order == MDRR and not this.in_ring:
            ring[(own.ring_head + own.ring_count) % len(ring)] = number
            own.ring_count += 1
            this.in_ring = 1
        elif own.order == VTC and this.waiting == 1:
            _lift(tenants, seen, number, own)
        row = following
    engine.queue_head = NONE
    engine.queue_tail = NONE


@inlined
def _lift(tenants, seen, number, own):
    """Bring a tenant whose queue was empty to the smallest counter of the others who wait, if it is below."""
    least, found = 0.0, False
    for i in range(own.seen):
        other = tenants[seen[i]]
        if seen[i] != number and other.waiting > 0 and (not found or other.counter < least):
            least, found = other.counter, True
    if found and tenants[number].counter < least:
        tenants[number].counter = least


@inlined
def _leave_queue(requests, row, engine, tenants, own):
    request = requests[row & engine.window_mask]
    this = tenants[_queue(request, own)]
    if request.earlier == NONE:
        this.head = request.later
    else:
        requests[request.earlier & engine.window_mask].later = request.later
    if request.later == NONE:
        this.tail = request.earlier
    else:
        requests[request.later & engine.window_mask].earlier = request.earlier
    this.waiting -= 1
    engine.waiting -= 1


@inlined
def _pick(requests, engine, running, plan, tenants, seen, ring, own, step, start_ns):
    """Take requests while the next one fits."""
    if engine.running >= engine.max_active:
        return
    own.planned = 0
    for i in range(engine.running):
        request = requests[running[i] & engine.window_mask]
        _plan(plan, _most(request, engine) - request.known_tokens - 1, request.known_tokens, own)
    engine.budget = own.batch_max_tokens
    if own.order == MDRR:
        _pick_in_turn(requests, engine, running, plan, tenants, ring, own, step, start_ns)
    else:
        _pick_least(requests, engine, running, plan, tenants, seen, own, step, start_ns)


@inlined
def _pick_least(requests, engine, running, plan, tenants, seen, own, step, start_ns):
    while engine.waiting > 0:
        number = NONE
        for i in range(own.seen):
            this = tenants[seen[i]]
            if this.waiting > 0 and (number == NONE or this.counter < tenants[number].counter):
                number = seen[i]
        row = tenants[number].head
        if not _fits(requests[row & engine.window_mask], plan, engine, own):
            return
        _take(requests, row, engine, running, tenants, own, step, start_ns)
        if own.order != FCFS:
            tokens = requests[row & engine.window_mask].input_tokens
            tenants[number].counter += tokens * own.input_price / tenants[number].weight


@inlined
def _pick_in_turn(requests, engine, running, plan, tenants, ring, own, step, start_ns):
    while own.ring_count > 0:
        number = ring[own.ring_head]
        this = tenants[number]
        skipped = own.blocked == number and this.counter < 0
        if skipped:
            own.blocked = NONE
        else:
            if this.counter <= 0:
                this.counter += own.quantum
            while this.counter > 0 and this.waiting > 0:
                row = this.head
                if not _fits(requests[row & engine.window_mask], plan, engine, own):
                    own.blocked = number
                    return
                _take(requests, row, engine, running, tenants, own, step, start_ns)
                this.counter -= requests[row & engine.window_mask].input_tokens * own.input_price / this.weight
        own.ring_head = (own.ring_head + 1) % len(ring)
        own.ring_count -= 1
        this.in_ring = 0
        if skipped or this.waiting > 0 or this.counter < 0:
            ring[(own.ring_head + own.ring_count) % len(ring)] = number
            own.ring_count += 1
            this.in_ring = 1


@inlined
def _most(request, engine):
    """Return the tokens of prompt and answer that memory is planned for."""
    if request.max_tokens == NONE:
        return engine.max_model_len
    return min(engine.max_model_len, request.input_tokens + request.max_tokens)


@inlined
def _plan(plan, left, held, own):
    at = own.planned
    while at > 0 and plan[at - 1].left < left:
        plan[at].left = plan[at - 1].left
        plan[at].held = plan[at - 1].held
        at -= 1
    plan[at].left = left
    plan[at].held = held
    own.planned += 1


@inlined
def _fits(request, plan, engine, own):
    """Whether memory suffices at every moment at which somebody ends, with this request among them."""
    if own.planned >= engine.max_active or request.input_tokens > engine.budget:
        return False
    _plan(plan, _most(request, engine) - request.input_tokens - 1, request.input_tokens + 1, own)
    held, peak = 0, 0
    for i in range(own.planned):
        held += plan[i].held
        peak = max(peak, held + (i + 1) * plan[i].left)
    if peak >= own.max_total_token_num:
        return False
    engine.budget -= request.input_tokens
    return True


@inlined
def _take(requests, row, engine, running, tenants, own, step, start_ns):
    _leave_queue(requests, row, engine, tenants, own)
    running[engine.running] = row
    ledger.start(requests[row & engine.window_mask], 0, start_ns, engine, step)


@inlined
def _charge(requests, engine, running, tenants, own):
    """Charge every tenant for the requests that it has in the batch."""
    if own.order == FCFS:
        return
    sign = -1.0 if own.order == MDRR else 1.0
    for i in range(own.first, engine.running):
        this = tenants[requests[running[i] & engine.window_mask].tenant]
        this.counter += sign * own.output_price / this.weight


@inlined
def _compute(requests, decisions, cost, engine, step, running, own, kind):
    """Count what the batch computes and return how many requests end with it."""
    finished = 0
    for i in range(own.first, engine.running):
        request = requests[running[i] & engine.window_mask]
        computed = 0 if kind == PREFILL else request.known_tokens - 1
        tokens = request.known_tokens - computed
        event = ledger.ADMITTED if kind == PREFILL else CONTINUED
        commit.write_decision(
            decisions, engine, running[i], event, step.scheduled, tokens, computed, kind == PREFILL, True, 0
        )
        step_time.add_chunk(step, request.known_tokens, request.input_tokens, tokens, computed, cost, engine)
        request.computed_tokens += tokens
        engine.held_tokens += tokens
        engine.free_blocks -= tokens
        step.sampled += 1
        finished += request.known_tokens + 1 >= request.target_tokens
    return finished


@inlined
def _collect(requests, flights, gaps, engine, running, tenants, own):
    """The step has ended: everybody in it gets a token, and who has the last one leaves."""
    number, end_ns = ledger.take_oldest(flights, engine)
    count = engine.running
    charged = False
    for i in range(own.first, count):
        request = requests[running[i] & engine.window_mask]
        if not charged and request.known_tokens + 1 >= request.target_tokens:
            _charge(requests, engine, running, tenants, own)
            charged = True
    kept = own.first
    for i in range(own.first, count):
        row = running[i]
        if ledger.deliver(requests, gaps, row, number, end_ns, engine):
            _release(requests[row & engine.window_mask], engine)
            ledger.finish(requests, row, end_ns, engine)
        else:
            running[kept] = row
            kept += 1


@inlined
def _release(request, engine):
    """Give back the memory of a request: it holds every token that it knows but the newest."""
    engine.held_tokens -= request.known_tokens - 1
    engine.free_blocks += request.known_tokens - 1


@inlined
def _give_up(requests, arrivals, engine, running, tenants, own):
    """Take out every request whose client has stopped waiting by now."""
    row = ledger.overdue(requests, arrivals, engine)
    while row != NONE:
        request = requests[row & engine.window_mask]
        if request.life == RUNNING:
            _leave(row, engine, running)
            _release(request, engine)
        else:
            _leave_queue(requests, row, engine, tenants, own)
        ledger.drop(requests, row, TIMED_OUT, request.arrival_ns + engine.timeout_ns, engine)
        row = ledger.overdue(requests, arrivals, engine)


@inlined
def _leave(row, engine, running):
    kept = 0
    for i in range(engine.running):
        if running[i] != row:
            running[kept] = running[i]
            kept += 1
    engine.running = kept
