"""The five schedulers of sarathi-serve: stall-free, its baselines prefill-first and simple chunking, Orca, static.

They differ in when prompts are computed, and in what memory a request takes (`settings.scheduler`):

    SARATHI        every running request decodes, and chunks of prompts fill what is left of the chunk budget
    PREFILL_FIRST  whole new prompts while any fit, else everybody decodes (vLLM as it began, without swapping)
    ALTERNATING    a step of chunks, then a step of decodes, and so on
    ORCA           everybody decodes, and whole new prompts join in the same step; a slot of the longest sequence each
    STATIC         as ORCA, but a batch is decoded to its end before the next one starts

The first three take blocks for the prompt at admission and one at a time while decoding, put out the last of the
running requests where none is free, and compute anew what it had; running requests stand in order of arrival.
Two things of the released code are settings that are off by default, since no server would keep them: the count of
tokens that starts anew after a restart (`restart_counts_anew`), and answers that outgrow max_model_len.
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
    TIMED_OUT,
    TRACE_DONE,
)

SARATHI, PREFILL_FIRST, ALTERNATING, ORCA, STATIC = range(5)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("arrival_ns", np.int64),
        ("prompt_tokens", np.int32),  # to compute before it samples: what it generated before it was put out included
        ("computed_tokens", np.int32),
        ("blocks", np.int32),
        ("tokens", np.int32),  # in the step being decided
        ("event", np.int32),
    ],
    align=True,
)

SETTINGS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "scheduler",
            "longest",  # tokens of the longest sequence that is taken from the queue
            "slot_blocks",  # blocks that every request takes; 0: as many as its tokens need
            "watermark_blocks",
            "chunk_size",
            "stage_tokens",  # progress after which the next chunk size holds; 0: always chunk_size
            "token_limit",  # PREFILL_FIRST: most tokens of prompts in a step
            "restart_counts_anew",  # a request put out after k tokens generates k too many
            "empty_turn_waits",  # ALTERNATING: a turn of decodes without any waits for the next arrival
            "prefill_turn",  # ALTERNATING: whether the next step is one of chunks
            "victims",  # of this decision, not admitted again yet
        )
    ],
    align=True,
)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    slots: Any  # SLOT[most running requests], the first engine.running
    aside: Any  # SLOT[most running requests + 1], scratch
    victims: Any  # SLOT[most running requests], as they were when they were put out in this decision
    chunk_sizes: Any  # int64[stages]
    settings: Any  # SETTINGS
    own_columns: Any  # OWN[step rows]


OWN = np.dtype([("ignored", np.int32)], align=True)


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    slots, aside, victims = parts.slots[replica], parts.aside[replica], parts.victims[replica]
    chunk_sizes, own = parts.chunk_sizes, parts.settings[replica]
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
            own.prefill_turn = True
            if not ledger.jump(requests, arrivals, engine):
                return TRACE_DONE if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        reason = ledger.full(steps, gaps, decisions, engine)
        if reason != ledger.ROOM:
            return reason
        step = steps[engine.steps_used]
        beside = parts.own_columns[replica, engine.steps_used]
        beside.ignored = 0
        start_ns = max(engine.now_ns, engine.gpu_free_ns)
        ledger.open_step(engine, step)
        own.victims = 0
        again = own.scheduler == ALTERNATING and not own.prefill_turn and not own.empty_turn_waits
        _decide(requests, heap, decisions, engine, step, beside, slots, aside, victims, chunk_sizes, own, start_ns)
        _write(requests, decisions, cost, engine, step, slots)
        if step.scheduled == 0 and step.preempted == 0 and beside.ignored == 0:
            if not again and not ledger.jump(requests, arrivals, engine):
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
def _decide(requests, heap, decisions, engine, step, beside, slots, aside, victims, chunk_sizes, own, start_ns):
    for i in range(engine.running):
        slots[i].tokens = 0
    engine.budget = 0  # tokens given out
    admitting = True
    if own.scheduler == SARATHI:
        _decode(requests, heap, decisions, engine, step, slots, aside, victims, own)
        for i in range(engine.running):
            _continue_prompt(slots[i], engine, chunk_sizes, own)
    elif own.scheduler == ALTERNATING:
        admitting = False
        if own.prefill_turn:
            _sort(slots, aside, engine)
            for i in range(engine.running):
                _continue_prompt(slots[i], engine, chunk_sizes, own)
            admitting = engine.budget == 0
    elif own.scheduler == ORCA or (own.scheduler == STATIC and engine.running > 0):
        for i in range(engine.running):
            slots[i].tokens = 1
            slots[i].event = CONTINUED
        admitting = own.scheduler == ORCA
    if admitting:
        _admit(requests, heap, decisions, engine, step, beside, slots, victims, chunk_sizes, own, start_ns)
    if own.scheduler == ALTERNATING:
        own.prefill_turn = engine.budget == 0
        if own.prefill_turn:
            _decode(requests, heap, decisions, engine, step, slots, aside, victims, own)
    elif own.scheduler == PREFILL_FIRST and engine.budget == 0 and beside.ignored == 0:
        _decode(requests, heap, decisions, engine, step, slots, aside, victims, own)


@inlined
def _decode(requests, heap, decisions, engine, step, slots, aside, victims, own):
    """Everybody behind its prompt gets a token, by arrival; where no block is free the last one not yet seen goes.

    Those in mid-prompt keep their place, behind the others where chunks follow in the same step.
    """
    _sort(slots, aside, engine)
    move = own.scheduler == SARATHI
    at, end, kept, waiting = 0, engine.running, 0, 0
    while at < end:
        this = slots[at]
        at += 1
        if this.computed_tokens < this.prompt_tokens:
            if move:
                aside[waiting] = this
                waiting += 1
                continue
        else:
            while engine.free_blocks < 1 and at < end:
                end -= 1
                _put_out(requests, heap, decisions, engine, step, slots[end], victims, own)
            if engine.free_blocks < 1:
                _put_out(requests, heap, decisions, engine, step, this, victims, own)
                continue
            if this.computed_tokens == this.blocks * engine.block_size:
                this.blocks += 1
                engine.free_blocks -= 1
            this.tokens = 1
            this.event = CONTINUED
            engine.budget += 1
        if kept != at - 1:
            slots[kept] = this
        kept += 1
    for i in range(waiting):
        slots[kept + i] = aside[i]


@inlined
def _sort(slots, aside, engine):
    """Bring running requests into order of arrival, stably; they mostly are."""
    for i in range(1, engine.running):
        if slots[i].arrival_ns < slots[i - 1].arrival_ns:
            _insert(slots, aside, i)


@compiled
def _insert(slots, aside, at):
    spare = aside[len(aside) - 1]
    aside[len(aside) - 1] = slots[at]
    while at > 0 and spare.arrival_ns < slots[at - 1].arrival_ns:
        slots[at] = slots[at - 1]
        at -= 1
    slots[at] = spare


@inlined
def _put_out(requests, heap, decisions, engine, step, this, victims, own):
    """Take a running request's memory; it waits at the front and starts anew."""
    request = requests[this.request & engine.window_mask]
    commit.write_decision(
        decisions, engine, this.request, LOST, step.preempted, 0, this.computed_tokens, False, False, 0
    )
    step.preempted += 1
    request.preemptions += 1
    if own.restart_counts_anew:
        request.target_tokens += request.known_tokens - this.prompt_tokens
    engine.free_blocks += this.blocks
    victims[own.victims] = this
    own.victims += 1
    wait_queue.push_front(requests, heap, this.request, engine)
    engine.running -= 1


@inlined
def _continue_prompt(this, engine, chunk_sizes, own):
    """Give a request in mid-prompt its next chunk."""
    if this.computed_tokens < this.prompt_tokens:
        rest = this.prompt_tokens - this.computed_tokens
        this.tokens = max(_chunk(rest, this.computed_tokens, engine, chunk_sizes, own), 0)
        this.event = CONTINUED
        engine.budget += this.tokens


@inlined
def _chunk(rest, computed_tokens, engine, chunk_sizes, own):
    """Return how much of the rest of a prompt may be computed, 0 or less for nothing."""
    size = own.chunk_size
    if own.stage_tokens > 0:
        size = chunk_sizes[min(computed_tokens // own.stage_tokens, len(chunk_sizes) - 1)]
    return min(rest, size - engine.budget)


@inlined
def _admit(requests, heap, decisions, engine, step, beside, slots, victims, chunk_sizes, own, start_ns):
    """Take requests from the queue in order, until one finds no place, no blocks or no tokens left."""
    while True:
        row = wait_queue.head(heap, engine)
        if row == NONE:
            return
        request = requests[row & engine.window_mask]
        length = request.known_tokens
        if length > own.longest:
            wait_queue.remove(requests, heap, row, engine)
            ledger.drop(requests, row, REJECTED, NONE, engine)
            commit.write_decision(decisions, engine, row, DROPPED, beside.ignored, 0, 0, False, False, 0)
            beside.ignored += 1
            own.victims = max(own.victims - 1, 0)  # they are the first in the queue
            continue
        blocks = own.slot_blocks
        if blocks == 0:
            blocks = (length + engine.block_size - 1) // engine.block_size
        if engine.free_blocks - blocks < own.watermark_blocks or engine.running >= engine.max_active:
            return
        tokens = length  # to compute now
        if own.scheduler == SARATHI or own.scheduler == ALTERNATING:
            rest, computed = length, 0
            if own.victims > 0 and victims[own.victims - 1].request == row:
                # Put out in this very decision: the real engine still sees how far it had come.
                computed = victims[own.victims - 1].computed_tokens
                rest = max(victims[own.victims - 1].prompt_tokens - computed, 0)
            tokens = _chunk(rest, computed, engine, chunk_sizes, own)
            if tokens <= 0:
                return
            own.victims = max(own.victims - 1, 0)
        elif own.scheduler == PREFILL_FIRST and engine.budget + length > own.token_limit:
            return
        wait_queue.remove(requests, heap, row, engine)
        this = slots[engine.running]
        this.request = row
        this.arrival_ns = request.arrival_ns
        this.prompt_tokens = length
        this.computed_tokens = 0
        this.blocks = blocks
        this.tokens = tokens
        engine.free_blocks -= blocks
        engine.budget += tokens
        this.event = ledger.start(request, 0, start_ns, engine, step)


@inlined
def _write(requests, decisions, cost, engine, step, slots):
    """Count what the step computes; rows of decisions name prompts first, as the batch has them."""
    engine.held_tokens = 0
    for prompts in range(1, -1, -1):
        for i in range(engine.running):
            this = slots[i]
            if prompts:
                engine.held_tokens += this.computed_tokens + this.tokens
            if this.tokens == 0:
                continue
            prompt = this.computed_tokens < this.prompt_tokens
            samples = this.computed_tokens + this.tokens >= this.prompt_tokens
            if len(decisions) > 0:
                if prompt != (prompts == 1):
                    continue
                commit.write_decision(
                    decisions, engine, this.request, this.event, step.scheduled, this.tokens, this.computed_tokens,
                    prompt, samples, 0,
                )  # fmt: skip
            step_time.add_chunk(
                step, this.prompt_tokens + 1, this.prompt_tokens, this.tokens, this.computed_tokens, cost, engine
            )
            step.sampled += samples
        if len(decisions) == 0:
            return


@inlined
def _collect(requests, flights, gaps, engine, slots):
    """The step has ended: who computed the last of what it knew gets a token, and who has the last one leaves."""
    number, end_ns = ledger.take_oldest(flights, engine)
    kept = 0
    for i in range(engine.running):
        this = slots[i]
        ends = False
        if this.tokens > 0:
            request = requests[this.request & engine.window_mask]
            request.computed_tokens += this.tokens
            this.computed_tokens += this.tokens
            if this.computed_tokens >= this.prompt_tokens:
                ends = ledger.deliver(requests, gaps, this.request, number, end_ns, engine)
        if ends:
            engine.free_blocks += this.blocks
            ledger.finish(requests, this.request, end_ns, engine)
        else:
            if kept != i:
                slots[kept] = this
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
def _leave(row, engine, slots):
    kept = 0
    for i in range(engine.running):
        if slots[i].request == row:
            engine.free_blocks += slots[i].blocks
        else:
            slots[kept] = slots[i]
            kept += 1
    engine.running = kept
