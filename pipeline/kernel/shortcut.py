"""Shortcut: plan a step without visiting the requests that just decode.

Why it is exact. In vLLM's loop a decoding request takes one token of budget and, when its blocks are
full, one block. If budget and blocks suffice for all, the visits have no effect on each other but for
the order in which blocks are handed out and registered. So it is enough to

1. know that they suffice: the decoding requests are counted, their needs at this tick are counted by
   phase (`decoders`), and the prefills in progress, which are few, are added up one by one;
2. visit, in order of admission, those who take or complete a block at this tick, and the prefills.

The budget may run out within the last prefill in progress, if nobody sits behind it: vLLM would cut its
chunk at the same token. In every other case (budget or blocks short, a prefill cut with others behind,
requests that the last step passed over) `plan` answers no before changing anything, and `batch_plan`
makes the visits.

`coast` goes on from there: as long as nobody arrives, waits, computes a prompt or ends, the next step is the
last one with every context one token longer, and blocks for those whom the tick names. It writes such steps
one after the other, and goes back to the loop for everything else.
"""

from pipeline.kernel import batch_plan, block_pool, commit, seats, step_time
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import NONE


@inlined
def plan(requests, hashes, slots, tables, cached, runs, index, idle, phases, promoted, cost, engine, step):
    """Plan the running requests if all of them get what they want; return whether that was so."""
    if engine.fresh > 0:
        return False
    budget = engine.max_num_batched_tokens - engine.decoding
    if budget < 0:
        return False
    if engine.prefilling > 0 and not engine.held:
        budget = _prefills_fit(slots, budget, phases[engine.phase].count, engine)
        if budget < 0:
            return False
    elif phases[engine.phase].count > engine.free_blocks:
        return False
    engine.budget = engine.max_num_batched_tokens
    _visit(requests, hashes, slots, tables, cached, runs, index, idle, phases, promoted, cost, engine, step)
    engine.budget = budget
    decode_contexts = engine.origin_sum + engine.decoding * (engine.ticks + 1)
    step.scheduled += engine.decoding
    step.sampled += engine.decoding
    step.decode_tokens += engine.decoding
    step.decode_context_tokens += decode_contexts
    step.context_tokens += decode_contexts
    return True


@inlined
def coast(
    hashes, slots, tables, cached, runs, index, idle, phases, calendar, flights, steps, g_ns, cost, engine, until_ns
):  # fmt: skip
    """Write steps in which everybody decodes and nobody ends, before `until_ns`; there may be none.

    Nobody is ending, so no step in flight has anything to collect. The last step reached all, so the budget does.
    """
    decoding = engine.decoding
    # A row takes a few dozen instructions if clock and counts need not go through memory.
    now_ns, gpu_free_ns, in_flight = engine.now_ns, engine.gpu_free_ns, engine.in_flight
    ticks, phase, number, row = engine.ticks, engine.phase, engine.steps, engine.steps_used
    contexts = engine.origin_sum + decoding * (ticks + 1)
    fixed_ns = step_time.batch_ns(decoding, decoding, False, g_ns, cost)
    while now_ns < until_ns and row < len(steps) and number + 1 != engine.max_steps:
        if calendar[ticks & engine.calendar_mask] != NONE or not _blocks_suffice(phases, phase, engine):
            break
        step = steps[row]
        step.evicted_blocks = 0
        step.new_blocks = 0
        step.new_blocks_crc = 0
        slot = phases[phase].head
        while slot != NONE:
            _next_block(slots, tables, cached, runs, index, idle, hashes, slot, engine, step)
            slot = slots[slot].group_later
        start_ns = max(now_ns, gpu_free_ns)
        step_ns = fixed_ns + step_time.decode_ns(decoding, contexts, cost)
        duration_ns = step_time.whole_ns(step_ns, decoding, contexts, cost)
        _write(step, number, now_ns, start_ns, duration_ns, contexts, decoding, engine)
        gpu_free_ns = start_ns + duration_ns
        flights[number & 1].end_ns = gpu_free_ns
        flights[number & 1].collect = NONE
        ticks += 1
        phase = 0 if phase + 1 == engine.block_size else phase + 1
        contexts += decoding
        number += 1
        row += 1
        in_flight += 1
        if in_flight == engine.depth:
            now_ns = max(now_ns, flights[(number - in_flight) & 1].end_ns)
            in_flight -= 1
    engine.busy_steps += number - engine.steps
    engine.now_ns, engine.gpu_free_ns, engine.in_flight = now_ns, gpu_free_ns, in_flight
    engine.ticks, engine.phase, engine.steps, engine.steps_used = ticks, phase, number, row


@inlined
def _blocks_suffice(phases, phase, engine):
    """Return whether all who need a block now can have one; no where one that is being filled is to be named."""
    needed = phases[phase].count
    if engine.prefix_caching and engine.depth == 1:
        filling = phases[0 if phase + 1 == engine.block_size else phase + 1].count
        return needed == 0 and filling == 0
    return needed <= engine.free_blocks


@inlined
def _write(step, number, now_ns, start_ns, duration_ns, contexts, decoding, engine):
    """Fill the row of a step in which all decode, but for what concerns new blocks."""
    step.step = number
    step.scheduled_ns = now_ns
    step.start_ns = start_ns
    step.duration_ns = duration_ns
    step.context_tokens = contexts
    step.decode_context_tokens = contexts
    step.prefill_area2 = 0
    step.held_tokens = contexts
    step.running = decoding
    step.waiting = 0
    step.scheduled = decoding
    step.sampled = decoding
    step.prefill_tokens = 0
    step.decode_tokens = decoding
    step.admitted = 0
    step.resumed = 0
    step.preempted = 0
    step.hit_tokens = 0
    step.free_blocks = engine.free_blocks
    step.cached_blocks = engine.cached_blocks


@inlined
def _prefills_fit(slots, budget, blocks_needed, engine):
    """Return the budget left when every prefill in progress has its chunk, or NONE if that is not so plain."""
    slot = engine.prefill_head
    while slot != NONE:
        this = slots[slot]
        new_tokens = batch_plan.wanted_prefill(this, engine.max_num_batched_tokens, engine)
        if new_tokens > budget:
            if slot != engine.running_tail:
                return NONE
            new_tokens = budget
        budget -= new_tokens
        if new_tokens > 0:
            blocks_needed += seats.blocks_short(this, this.computed_tokens + new_tokens, engine)
        slot = this.group_later
    return budget if blocks_needed <= engine.free_blocks else NONE


@inlined
def _visit(requests, hashes, slots, tables, cached, runs, index, idle, phases, promoted, cost, engine, step):
    """Serve those who take or complete a block, and the prefills, in order of admission."""
    full = phases[engine.phase].head
    filling = NONE
    if engine.prefix_caching and engine.depth == 1 and engine.block_size > 1:
        # Synchronously a block has a name as soon as its last token is scheduled, one tick before the next block.
        filling = phases[0 if engine.phase + 1 == engine.block_size else engine.phase + 1].head
    prefill = NONE if engine.held else engine.prefill_head
    spare = engine.max_num_batched_tokens - engine.decoding
    while full != NONE or filling != NONE or prefill != NONE:
        if _first(slots, full, filling, prefill):
            _next_block(slots, tables, cached, runs, index, idle, hashes, full, engine, step)
            full = slots[full].group_later
        elif _first(slots, filling, full, prefill):
            seats.register(slots, tables, cached, runs, index, hashes, filling, slots[filling].blocks, engine)
            filling = slots[filling].group_later
        else:
            slot, prefill = prefill, slots[prefill].group_later
            spare -= _serve_prefill(
                requests, hashes, slots, tables, cached, runs, index, idle, promoted, slot, spare, cost, engine, step
            )


@inlined
def _next_block(slots, tables, cached, runs, index, idle, hashes, slot, engine, step):
    """Give a decoding request whose blocks are all full one more; the full ones have names now."""
    this = slots[slot]
    full = this.blocks
    block_pool.take(cached, runs, index, idle, tables, slot, full, 1, engine, step)
    this.blocks = full + 1
    if engine.block_size == 1 and engine.depth == 1:
        full += 1  # that one token fills the new block as well
    seats.register(slots, tables, cached, runs, index, hashes, slot, full, engine)


@inlined
def _first(slots, slot, other, another):
    if slot == NONE:
        return False
    seat = slots[slot].seat
    return (other == NONE or seat < slots[other].seat) and (another == NONE or seat < slots[another].seat)


@inlined
def _serve_prefill(
    requests, hashes, slots, tables, cached, runs, index, idle, promoted, slot, spare, cost, engine, step
):
    this = slots[slot]
    new_tokens = batch_plan.wanted_prefill(this, spare, engine)
    if new_tokens == 0:
        return 0
    computed_tokens = this.computed_tokens
    seats.extend(slots, tables, cached, runs, index, idle, slot, computed_tokens + new_tokens, engine, step)
    full = seats.full_blocks(computed_tokens + new_tokens, engine)
    seats.register(slots, tables, cached, runs, index, hashes, slot, full, engine)
    step_time.add_chunk(step, this.known_tokens, this.input_tokens, new_tokens, computed_tokens, cost, engine)
    engine.carried_prefill = 1
    commit.advance_prefill(requests, slots, promoted, slot, new_tokens, engine, step)
    return new_tokens
