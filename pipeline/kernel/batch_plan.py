"""Batch plan: running requests first, in order of admission, while the token budget lasts.

This is vLLM's loop as it stands, one visit per running request; `shortcut` does without the visits where
the outcome is the same. Two passes: the first serves and preempts, the second counts what was served,
because a request served early in the pass may still lose everything to a more urgent one.
Source: vLLM 0.33, Scheduler.schedule (running part).
"""

from pipeline.kernel import commit, decoders, preemption, seats, step_time
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import CONTINUED, DECODE, ENDING, NONE, PREFILL


@compiled
def serve(
    requests, hashes, heap, slots, tables, cached, runs, index, idle, phases, calendar, flights, promoted, decisions,
    gaps, cost, engine, step,
):  # fmt: skip
    """Plan the running requests; `step` receives their counts."""
    engine.budget = engine.max_num_batched_tokens
    slot = engine.running_head
    while slot != NONE and engine.budget > 0:
        this = slots[slot]
        new_tokens = _wanted(this, engine)
        if new_tokens == 0:
            slot = this.later
            continue
        computed_tokens = _computed(this, engine)
        lost = False
        while seats.blocks_short(this, computed_tokens + new_tokens, engine) > engine.free_blocks:
            loser = preemption.victim(requests, slots, engine)
            lost = loser == slot
            following = this.later
            preemption.preempt(
                requests,
                hashes,
                heap,
                slots,
                tables,
                cached,
                runs,
                index,
                idle,
                phases,
                calendar,
                decisions,
                loser,
                engine,
                step,
            )
            if lost:
                break
        if lost:
            slot = following
            continue
        seats.extend(slots, tables, cached, runs, index, idle, slot, computed_tokens + new_tokens, engine, step)
        # The newest token of a decode is in flight under asynchronous scheduling: its identity is unknown.
        in_flight = 1 if this.state == DECODE and engine.depth == 2 and not this.fresh else 0
        full = seats.full_blocks(computed_tokens + new_tokens - in_flight, engine)
        seats.register(slots, tables, cached, runs, index, hashes, slot, full, engine)
        if this.state == PREFILL:
            engine.carried_prefill = 1
        this.served_step = engine.steps
        this.served_tokens = new_tokens
        engine.budget -= new_tokens
        slot = this.later
    _count(requests, slots, phases, calendar, flights, promoted, decisions, gaps, cost, engine, step)


@inlined
def wanted_prefill(this, budget, engine):
    """Return how many known tokens a request computes next, within threshold and budget."""
    new_tokens = this.known_tokens - this.computed_tokens
    if 0 < engine.step_threshold < new_tokens:
        new_tokens = engine.step_threshold
    return min(new_tokens, budget)


@inlined
def _wanted(this, engine):
    if this.state == DECODE:
        return 1
    if this.state == ENDING or engine.held:
        return 0
    return wanted_prefill(this, engine.budget, engine)


@inlined
def _computed(this, engine):
    return this.origin + engine.ticks if this.state == DECODE else this.computed_tokens


@inlined
def _count(requests, slots, phases, calendar, flights, promoted, decisions, gaps, cost, engine, step):
    passed_over = 0
    slot = engine.running_head
    while slot != NONE:
        this = slots[slot]
        computed_tokens = _computed(this, engine)
        if this.served_step == engine.steps:
            new_tokens = this.served_tokens
            known_tokens = computed_tokens + 1 if this.state == DECODE else this.known_tokens
            commit.note_decision(
                decisions, engine, step, this.request, CONTINUED, new_tokens, computed_tokens, known_tokens,
                this.input_tokens, 0,
            )  # fmt: skip
            step_time.add_chunk(step, known_tokens, this.input_tokens, new_tokens, computed_tokens, cost, engine)
            if this.state == PREFILL:
                commit.advance_prefill(requests, slots, promoted, slot, new_tokens, engine, step)
            else:
                step.sampled += 1
                engine.fresh -= this.fresh
                this.fresh = 0
                if this.gap_step != NONE:
                    commit.note_gap(gaps, this, engine)
        elif this.state == DECODE:
            passed_over += 1
            _pass_over(requests, flights, this, engine)
        slot = this.later
    if passed_over > 0:
        decoders.sort_in_again(slots, phases, calendar, engine)


@inlined
def _pass_over(requests, flights, this, engine):
    """A decoding request gets no token: its origin falls back by the tick that is about to come."""
    this.origin -= 1
    if this.gap_step == NONE:
        this.gap_step = engine.steps - 1
        this.gap_ns = engine.gpu_free_ns
    if not this.fresh:
        this.fresh = 1
        engine.fresh += 1
        if engine.depth == 2:
            commit.remember(requests, flights, this.request, (engine.steps - 1) & 1, engine)
