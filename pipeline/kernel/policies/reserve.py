"""The conservative baseline: a request starts when KV blocks for its prompt and all it may generate are free.

First come, first served; every running request gets its token in each step, and whole prompts join while the token
budget lasts. Nobody is ever preempted, no block is shared, and what is reserved beyond the answer stays empty: what
a budget divided by the longest request comes to, with continuous batching.
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
    REJECTED,
    RUNNING,
    STALLED,
    TIMED_OUT,
    TRACE_DONE,
)

SLOT = np.dtype([("request", np.int64), ("computed_tokens", np.int32), ("blocks", np.int32)], align=True)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    slots: Any  # SLOT[most running requests], the first engine.running in order of admission


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    slots = parts.slots[replica]
    while True:
        if engine.collect_due:
            if engine.gpu_free_ns > engine.horizon_ns:
                return NEED_TRACE
            engine.collect_due = 0
            _collect(requests, flights, gaps, engine, slots)
        if engine.now_ns >= engine.horizon_ns + engine.stepwise:
            return NEED_TRACE
        _give_up(requests, arrivals, heap, engine, slots)
        wait_queue.arrive(requests, arrivals, heap, engine)
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
        _serve(requests, decisions, cost, engine, step, slots)
        _admit(requests, heap, decisions, cost, engine, step, slots, start_ns)
        if step.scheduled == 0:
            if engine.ended == NONE and engine.unfinished > 0 and not ledger.jump(requests, arrivals, engine):
                return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        ledger.close_step(flights, g_ns, cost, engine, step, start_ns, 0)
        if engine.steps == engine.max_steps:
            return MAX_STEPS
        engine.collect_due = 1
        if engine.ended != NONE:
            return ENDED
        if engine.stepwise:
            return NEED_TRACE


@inlined
def _serve(requests, decisions, cost, engine, step, slots):
    """Every running request gets one token."""
    for i in range(engine.running):
        this = slots[i]
        request = requests[this.request & engine.window_mask]
        _schedule(request, this, 1, 0, CONTINUED, decisions, cost, engine, step)
    engine.budget = engine.max_num_batched_tokens - engine.running


@inlined
def _admit(requests, heap, decisions, cost, engine, step, slots, start_ns):
    """Start waiting requests in order, while budget, places and blocks for their whole length last."""
    while engine.running < engine.max_active:
        row = wait_queue.head(heap, engine)
        if row == NONE:
            return
        request = requests[row & engine.window_mask]
        answer = engine.max_model_len - request.input_tokens
        if request.max_tokens != NONE:
            answer = min(answer, request.max_tokens)
        blocks = (request.input_tokens + answer + engine.block_size - 1) // engine.block_size
        if blocks > engine.most_blocks:
            wait_queue.remove(requests, heap, row, engine)
            ledger.drop(requests, row, REJECTED, NONE, engine)
            continue
        if blocks > engine.free_blocks or request.input_tokens > engine.budget:
            return
        wait_queue.remove(requests, heap, row, engine)
        this = slots[engine.running]
        this.request = row
        this.computed_tokens = 0
        this.blocks = blocks
        engine.free_blocks -= blocks
        engine.budget -= request.input_tokens
        event = ledger.start(request, 0, start_ns, engine, step)
        _schedule(request, this, request.input_tokens, 0, event, decisions, cost, engine, step)


@inlined
def _schedule(request, this, new_tokens, hits, event, decisions, cost, engine, step):
    commit.note_decision(
        decisions, engine, step, this.request, event, new_tokens, this.computed_tokens, request.known_tokens,
        request.input_tokens, hits,
    )  # fmt: skip
    step_time.add_chunk(
        step, request.known_tokens, request.input_tokens, new_tokens, this.computed_tokens, cost, engine
    )
    this.computed_tokens += new_tokens
    engine.held_tokens += new_tokens
    request.computed_tokens += new_tokens
    step.sampled += 1


@inlined
def _collect(requests, flights, gaps, engine, slots):
    """The step has ended: everybody gets a token, and who has the last one leaves."""
    number, end_ns = ledger.take_oldest(flights, engine)
    kept = 0
    for i in range(engine.running):
        row = slots[i].request
        if ledger.deliver(requests, gaps, row, number, end_ns, engine):
            _release(slots[i], engine)
            ledger.finish(requests, row, end_ns, engine)
        else:
            slots[kept] = slots[i]
            kept += 1


@inlined
def _give_up(requests, arrivals, heap, engine, slots):
    """Take out every request whose client has stopped waiting by now."""
    row = ledger.overdue(requests, arrivals, engine)
    while row != NONE:
        request = requests[row & engine.window_mask]
        if request.life == RUNNING:
            _leave(row, engine, slots)
        else:
            wait_queue.remove(requests, heap, row, engine)
        ledger.drop(requests, row, TIMED_OUT, request.arrival_ns + engine.timeout_ns, engine)
        row = ledger.overdue(requests, arrivals, engine)


@inlined
def _release(this, engine):
    engine.free_blocks += this.blocks
    engine.held_tokens -= this.computed_tokens


@inlined
def _leave(row, engine, slots):
    kept = 0
    for i in range(engine.running):
        if slots[i].request == row:
            _release(slots[i], engine)
        else:
            slots[kept] = slots[i]
            kept += 1
    engine.running = kept
