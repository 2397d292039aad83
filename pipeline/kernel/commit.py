"""Commit: a decision becomes a step; a step that has ended becomes tokens, stamps and free blocks.

Asynchronous scheduling keeps two steps in flight: what a step sampled is delivered, and who finished
leaves, when the step is collected, one decision later than it would be synchronously.
"""

from pipeline.kernel import decoders, release, seats, step_time, wait_queue
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import DECODE, DONE, ENDING, LOST, NONE, RUNNING, TIMED_OUT


@inlined
def advance_prefill(requests, slots, promoted, slot, new_tokens, engine, step):
    """Book computed tokens; a request whose known tokens are all computed samples in this step."""
    this = slots[slot]
    this.computed_tokens += new_tokens
    engine.held_tokens += new_tokens
    requests[this.request & engine.window_mask].computed_tokens += new_tokens
    if this.computed_tokens == this.known_tokens:
        seats.leave_prefills(slots, slot, engine)
        promoted[engine.promotions] = slot
        engine.promotions += 1
        step.sampled += 1


@inlined
def log(requests, slots, phases, calendar, flights, promoted, gaps, g_ns, cost, engine, step, start_ns):
    """Give the decided step its number and times, and move every decoding request on by one token."""
    step.step = engine.steps
    step.scheduled_ns = engine.now_ns
    if step.scheduled == 0:
        start_ns = engine.now_ns  # nothing but preemptions: it never reaches the GPU
    step.start_ns = start_ns
    step.duration_ns = step_time.nanoseconds(step, g_ns, cost, engine)
    step.running = engine.running
    step.waiting = engine.waiting
    step.free_blocks = engine.free_blocks
    step.cached_blocks = engine.cached_blocks
    end_ns = start_ns + step.duration_ns
    tick = engine.ticks
    begin(flights, end_ns, engine)
    slot = calendar[tick & engine.calendar_mask]
    while slot != NONE:
        following = slots[slot].end_later
        computed_tokens = decoders.leave(slots, phases, calendar, slot, engine)
        requests[slots[slot].request & engine.window_mask].computed_tokens += computed_tokens - slots[slot].entry_tokens
        _end(requests, slots, flights, slot, computed_tokens, engine)
        slot = following
    for i in range(engine.promotions):
        _promote(requests, slots, phases, calendar, flights, gaps, promoted[i], end_ns, engine)
    engine.promotions = 0
    step.held_tokens = decoders.held_tokens(engine)
    for i in range(engine.gap_mark, engine.gaps_used):
        gaps[i].gap_ns += end_ns
    if step.scheduled > 0:
        engine.gpu_free_ns = end_ns
    count(engine)


@inlined
def begin(flights, end_ns, engine):
    """Put the step being decided in flight, with nothing to do at its end yet, and let decoding requests go on."""
    flight = flights[engine.steps & 1]
    flight.end_ns = end_ns
    flight.collect = NONE
    engine.ticks += 1
    engine.phase = 0 if engine.phase + 1 == engine.block_size else engine.phase + 1


@inlined
def count(engine):
    """Close the row of the step."""
    engine.steps += 1
    engine.in_flight += 1
    engine.steps_used += 1


@inlined
def _promote(requests, slots, phases, calendar, flights, gaps, slot, end_ns, engine):
    """A request has computed all it knows and samples a token: it decodes from now on, or ends."""
    this = slots[slot]
    request = requests[this.request & engine.window_mask]
    if request.first_token_step == NONE:
        request.first_token_step = engine.steps
        request.first_token_ns = end_ns
    elif this.gap_step != NONE:
        note_gap(gaps, this, engine)
    if this.known_tokens + 1 >= this.target_tokens:
        _end(requests, slots, flights, slot, this.computed_tokens, engine)
    else:
        decoders.join(slots, phases, calendar, slot, this.computed_tokens, engine)


@inlined
def _end(requests, slots, flights, slot, computed_tokens, engine):
    this = slots[slot]
    this.state = ENDING
    this.computed_tokens = computed_tokens
    request = requests[this.request & engine.window_mask]
    request.ending = 1
    request.known_tokens = this.target_tokens
    remember(requests, flights, this.request, engine.steps & 1, engine)


@inlined
def remember(requests, flights, row, parity, engine):
    """Note that something is to be done for a request when a step in flight is collected, by seat."""
    seat = requests[row & engine.window_mask].seat
    before = NONE
    after = flights[parity].collect
    while after != NONE and requests[after & engine.window_mask].seat < seat:
        before = after
        after = requests[after & engine.window_mask].collect_next
    requests[row & engine.window_mask].collect_next = after
    if before == NONE:
        flights[parity].collect = row
    else:
        requests[before & engine.window_mask].collect_next = row


@inlined
def collect(requests, hashes, heap, slots, tables, cached, runs, index, idle, flights, engine):
    """Deliver the oldest step in flight; the clock moves to its end."""
    step = engine.steps - engine.in_flight
    flight = flights[step & 1]
    engine.in_flight -= 1
    engine.now_ns = max(engine.now_ns, flight.end_ns)
    row = flight.collect
    while row != NONE:
        request = requests[row & engine.window_mask]
        if request.life == RUNNING:
            # Tokens that were in flight when their block was filled have names now.
            this = slots[request.slot]
            computed_tokens = this.origin + engine.ticks if this.state == DECODE else this.computed_tokens
            full = seats.full_blocks(computed_tokens, engine)
            seats.register(slots, tables, cached, runs, index, hashes, request.slot, full, engine)
        if request.ending:
            if request.life == RUNNING:
                seats.leave(slots, tables, cached, idle, request.slot, computed_tokens, engine)
            else:
                wait_queue.remove(requests, heap, row, engine)
            request.life = DONE
            request.outcome = request.end_outcome
            request.finish_ns = flight.end_ns
            request.finish_step = step
            if engine.timeout_ns != NONE and flight.end_ns > request.arrival_ns + engine.timeout_ns:
                # The client left while the last step ran.
                request.outcome = TIMED_OUT
                request.finish_ns = request.arrival_ns + engine.timeout_ns
            engine.unfinished -= 1
            release.note_end(requests, row, engine)
        row = request.collect_next
    flight.collect = NONE


@inlined
def give_up(requests, arrivals, heap, slots, tables, cached, idle, phases, calendar, flights, gaps, engine):
    """Take out every request whose client has stopped waiting by now, in order of arrival."""
    row = wait_queue.next_deadline(requests, arrivals, engine)
    while row != NONE and requests[row & engine.window_mask].arrival_ns + engine.timeout_ns <= engine.now_ns:
        _abort(requests, heap, slots, tables, cached, idle, phases, calendar, flights, gaps, row, engine)
        row = wait_queue.next_deadline(requests, arrivals, engine)


@inlined
def _abort(requests, heap, slots, tables, cached, idle, phases, calendar, flights, gaps, row, engine):
    request = requests[row & engine.window_mask]
    if request.life == RUNNING:
        slot = request.slot
        this = slots[slot]
        sampled_step = NONE
        computed_tokens = this.computed_tokens
        if this.state == DECODE:
            sampled_step = engine.steps - 1 if this.gap_step == NONE else this.gap_step
            computed_tokens = decoders.leave(slots, phases, calendar, slot, engine)
            request.computed_tokens += computed_tokens - this.entry_tokens
            request.known_tokens = computed_tokens + 1
        elif this.state == ENDING:
            sampled_step = engine.steps - 1
        else:
            seats.leave_prefills(slots, slot, engine)
            sampled_step = this.gap_step
        _forget(requests, flights, row, engine)
        if sampled_step >= engine.steps - engine.in_flight:
            # Its newest token is still in flight and reaches nobody.
            request.known_tokens -= 1
            if this.gap_after == sampled_step:
                _take_back_gap(gaps, row, engine)
                sampled_step = this.gap_before
            else:
                sampled_step -= 1
        seats.leave(slots, tables, cached, idle, slot, computed_tokens, engine)
    else:
        sampled_step = request.gap_step
        wait_queue.remove(requests, heap, row, engine)
    if request.known_tokens == request.input_tokens:
        request.first_token_step = NONE
        request.first_token_ns = NONE
        sampled_step = NONE
    request.finish_step = sampled_step
    request.life = DONE
    request.ending = 0
    request.outcome = TIMED_OUT
    request.finish_ns = request.arrival_ns + engine.timeout_ns
    engine.unfinished -= 1
    release.note_end(requests, row, engine)


@inlined
def _forget(requests, flights, row, engine):
    """Take a request off the list of the step in flight."""
    if engine.in_flight == 0:
        return
    flight = flights[(engine.steps - 1) & 1]
    before = NONE
    at = flight.collect
    while at != NONE and at != row:
        before = at
        at = requests[at & engine.window_mask].collect_next
    if at == NONE:
        return
    following = requests[row & engine.window_mask].collect_next
    if before == NONE:
        flight.collect = following
    else:
        requests[before & engine.window_mask].collect_next = following


@inlined
def note_gap(gaps, this, engine):
    """Write a token gap that is not one step; its end is added when the step has its times."""
    gap = gaps[engine.gaps_used]
    engine.gaps_used += 1
    gap.request = this.request
    gap.step = engine.steps
    gap.previous_step = this.gap_step
    gap.gap_ns = -this.gap_ns
    this.gap_after = engine.steps
    this.gap_before = this.gap_step
    this.gap_step = NONE


@compiled
def _take_back_gap(gaps, row, engine):
    """Remove the newest gap of a request; the rows of the last step are still in the buffer."""
    at = engine.gaps_used - 1
    while gaps[at].request != row:
        at -= 1
    for later in range(at + 1, engine.gaps_used):
        gaps[later - 1] = gaps[later]
    engine.gaps_used -= 1


@inlined
def note_decision(decisions, engine, step, row, event, new_tokens, computed_tokens, known_tokens, input_tokens, hits):
    """Write one row per step and request, where they are asked for."""
    if len(decisions) == 0:
        return
    write_decision(
        decisions,
        engine,
        row,
        event,
        step.preempted if event == LOST else step.scheduled,
        new_tokens,
        computed_tokens,
        computed_tokens < max(input_tokens, known_tokens - 1),
        event != LOST and computed_tokens + new_tokens == known_tokens,
        hits,
    )


@inlined
def write_decision(decisions, engine, row, event, position, new_tokens, computed_tokens, is_prefill, samples, hits):
    """Write one row of a policy that says itself what a prompt is, where they are asked for.

    Of those that a step drops unserved there can be any number; what finds no room is left out.
    """
    if engine.decisions_used >= len(decisions):
        return
    decision = decisions[engine.decisions_used]
    engine.decisions_used += 1
    decision.step = engine.steps
    decision.request = row
    decision.position = position
    decision.event = event
    decision.scheduled_tokens = new_tokens
    decision.computed_tokens = computed_tokens
    decision.is_prefill = is_prefill
    decision.samples = samples
    decision.hit_tokens = hits
