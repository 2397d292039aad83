"""Ledger: what is written down about steps and requests, whatever the policy decides.

A policy that visits each running request opens a step, counts what it schedules (`step_time.add_chunk`), closes it
with its times, and when the step has ended delivers a token to each request that sampled one. vLLM's own loop notes
tokens as it decides (`commit`), since it does not visit those who just decode.
"""

from pipeline.kernel import release, step_time, wait_queue
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import (
    ADMITTED,
    DECISIONS_FULL,
    DONE,
    FOREVER,
    GAPS_FULL,
    NONE,
    RESUMED,
    RUNNING,
    STEPS_FULL,
    TIMED_OUT,
)

ROOM = -1  # no buffer is full


@inlined
def full(steps, gaps, decisions, engine):
    """Return STEPS_FULL, GAPS_FULL or DECISIONS_FULL if the next step might not fit into a buffer, else ROOM.

    A step writes at most a gap and two decisions for each request that can run.
    """
    if engine.steps_used == len(steps):
        return STEPS_FULL
    if engine.gaps_used + engine.max_active > len(gaps):
        return GAPS_FULL
    if len(decisions) > 0 and engine.decisions_used + 2 * engine.max_active > len(decisions):
        return DECISIONS_FULL
    return ROOM


@inlined
def jump(requests, arrivals, engine):
    """Move the clock to the next event; return whether one is known."""
    when = wait_queue.next_event_ns(requests, arrivals, engine)
    if when == NONE or when > engine.horizon_ns:
        engine.wake_ns = FOREVER if when == NONE else when
        return False
    engine.now_ns = max(engine.now_ns, when)
    return True


@inlined
def open_step(engine, step):
    """Begin a decision: clear its counts."""
    step.context_tokens = 0
    step.decode_context_tokens = 0
    step.prefill_area2 = 0
    step.scheduled = 0
    step.sampled = 0
    step.prefill_tokens = 0
    step.decode_tokens = 0
    step.admitted = 0
    step.resumed = 0
    step.preempted = 0
    step.hit_tokens = 0
    step.evicted_blocks = 0
    step.new_blocks = 0
    step.new_blocks_crc = 0
    engine.chunk_ns = 0.0


@inlined
def close_step(flights, g_ns, cost, engine, step, start_ns, extra_ns):
    """Give the decided step its number and times, and put it in flight; it is collected next.

    extra_ns : time beside that of the model, as for blocks moved over the host link
    `engine.held_tokens` is the policy's to keep: tokens in KV of all running requests, those of this step included.
    A step that does nothing to the GPU (only preemptions) starts as it is decided and does not occupy it.
    """
    step.step = engine.steps
    step.scheduled_ns = engine.now_ns
    step.duration_ns = step_time.nanoseconds(step, g_ns, cost, engine) + extra_ns
    idle = step.scheduled == 0 and step.duration_ns == 0
    step.start_ns = engine.now_ns if idle else start_ns
    step.running = engine.running
    step.waiting = engine.waiting
    step.held_tokens = engine.held_tokens
    step.free_blocks = engine.free_blocks
    step.cached_blocks = engine.cached_blocks
    end_ns = step.start_ns + step.duration_ns
    flights[engine.steps & 1].end_ns = end_ns
    if not idle:
        engine.gpu_free_ns = end_ns
    engine.steps += 1
    engine.in_flight += 1
    engine.steps_used += 1


@inlined
def take_oldest(flights, engine):
    """Take the oldest step out of flight: the clock moves to its end. Returns its number and its end."""
    number = engine.steps - engine.in_flight
    end_ns = flights[number & 1].end_ns
    engine.in_flight -= 1
    engine.now_ns = max(engine.now_ns, end_ns)
    return number, end_ns


@inlined
def start(request, hit_tokens, start_ns, engine, step):
    """A waiting request begins to run, `hit_tokens` of it found in a cache; return ADMITTED or RESUMED."""
    request.life = RUNNING
    request.seat = engine.seats
    engine.seats += 1
    engine.running += 1
    step.hit_tokens += hit_tokens
    if request.cached_tokens == NONE:
        request.cached_tokens = hit_tokens
        request.first_scheduled_ns = start_ns
        step.admitted += 1
        return ADMITTED
    request.resumed_cached_tokens += hit_tokens
    step.resumed += 1
    return RESUMED


@inlined
def deliver(requests, gaps, row, number, end_ns, engine):
    """A running request gets the token that step `number`, ended at `end_ns`, sampled; return whether it was its last.

    A token whose predecessor came from another step than the one before is a gap row.
    """
    request = requests[row & engine.window_mask]
    request.known_tokens += 1
    if request.first_token_step == NONE:
        request.first_token_step = number
        request.first_token_ns = end_ns
    elif request.gap_step != number - 1:
        gap = gaps[engine.gaps_used]
        engine.gaps_used += 1
        gap.request = row
        gap.step = number
        gap.previous_step = request.gap_step
        gap.gap_ns = end_ns - request.gap_ns
    request.gap_step = number
    request.gap_ns = end_ns
    return request.known_tokens >= request.target_tokens


@inlined
def finish(requests, row, end_ns, engine):
    """A running request has its last token; its place and memory are given back by the policy."""
    request = requests[row & engine.window_mask]
    request.outcome = request.end_outcome
    request.finish_ns = end_ns
    if engine.timeout_ns != NONE and end_ns > request.arrival_ns + engine.timeout_ns:
        # The client left while the last step ran.
        request.outcome = TIMED_OUT
        request.finish_ns = request.arrival_ns + engine.timeout_ns
    engine.running -= 1
    _close(requests, row, engine)


@inlined
def drop(requests, row, outcome, when_ns, engine):
    """A request that neither waits nor runs any more ends without its answer: it can never fit, or its client left."""
    request = requests[row & engine.window_mask]
    request.outcome = outcome
    request.finish_ns = when_ns
    _close(requests, row, engine)


@inlined
def overdue(requests, arrivals, engine):
    """Return the first row, in order of arrival, whose client has stopped waiting by now, or NONE."""
    if engine.timeout_ns == NONE:
        return NONE
    row = wait_queue.next_deadline(requests, arrivals, engine)
    if row != NONE and requests[row & engine.window_mask].arrival_ns + engine.timeout_ns <= engine.now_ns:
        return row
    return NONE


@inlined
def _close(requests, row, engine):
    request = requests[row & engine.window_mask]
    request.finish_step = request.gap_step
    request.life = DONE
    engine.unfinished -= 1
    release.note_end(requests, row, engine)
