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

`coast` goes on from there: as long as nobody arrives, waits, computes a prompt, needs or completes a block
or ends, the next step is the last one with every context one token longer. It writes such steps one after
the other; the first tick at which the groupings name somebody goes back to the loop.
"""

from pipeline.kernel import batch_plan, block_pool, commit, seats, step_time
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import NONE


@inlined
def plan(requests, hashes, slots, tables, blocks, keys, index, idle, phases, promoted, cost, engine, step):
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
    _visit(requests, hashes, slots, tables, blocks, keys, index, idle, phases, promoted, cost, engine, step)
    engine.budget = budget
    decode_contexts = engine.origin_sum + engine.decoding * (engine.ticks + 1)
    step.scheduled += engine.decoding
    step.sampled += engine.decoding
    step.decode_tokens += engine.decoding
    step.decode_context_tokens += decode_contexts
    step.context_tokens += decode_contexts
    return True


@inlined
def coast(phases, calendar, flights, steps, g_ns, cost, engine, until_ns):
    """Write steps in which nothing happens but decoding, before `until_ns`; there may be none."""
    decoding = engine.decoding
    fixed_ns = step_time.batch_ns(decoding, decoding, False, g_ns, cost)
    while (
        engine.now_ns < until_ns
        and engine.steps_used < len(steps)
        and engine.steps + 1 != engine.max_steps
        and not engine.collect_due
        and _is_quiet(phases, calendar, engine)
        and (engine.in_flight == 0 or flights[(engine.steps - 1) & 1].collect == NONE)
    ):
        step = steps[engine.steps_used]
        contexts = engine.origin_sum + decoding * (engine.ticks + 1)
        step_ns = fixed_ns + step_time.decode_ns(decoding, contexts, cost)
        step.step = engine.steps
        step.scheduled_ns = engine.now_ns
        step.start_ns = max(engine.now_ns, engine.gpu_free_ns)
        step.duration_ns = step_time.whole_ns(step_ns, decoding, contexts, cost)
        step.context_tokens = contexts
        step.decode_context_tokens = contexts
        step.prefill_area2 = 0
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
        step.evicted_blocks = 0
        step.new_blocks = 0
        step.new_blocks_crc = 0
        engine.gpu_free_ns = step.start_ns + step.duration_ns
        commit.begin(flights, engine.gpu_free_ns, engine)
        commit.count(engine)
        engine.busy_steps += 1
        if engine.in_flight == engine.depth:
            end_ns = flights[(engine.steps - engine.in_flight) & 1].end_ns
            engine.collect_due = end_ns > engine.horizon_ns
            if not engine.collect_due:
                engine.in_flight -= 1
                engine.now_ns = max(engine.now_ns, end_ns)


@inlined
def _is_quiet(phases, calendar, engine):
    if phases[engine.phase].count > 0 or calendar[engine.ticks & engine.calendar_mask] != NONE:
        return False
    if not engine.prefix_caching or engine.depth == 2:
        return True
    return phases[0 if engine.phase + 1 == engine.block_size else engine.phase + 1].count == 0


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
def _visit(requests, hashes, slots, tables, blocks, keys, index, idle, phases, promoted, cost, engine, step):
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
            _next_block(slots, tables, blocks, keys, index, idle, hashes, full, engine, step)
            full = slots[full].group_later
        elif _first(slots, filling, full, prefill):
            seats.register(slots, tables, blocks, keys, index, hashes, filling, slots[filling].blocks, engine)
            filling = slots[filling].group_later
        else:
            slot, prefill = prefill, slots[prefill].group_later
            spare -= _serve_prefill(
                requests, hashes, slots, tables, blocks, keys, index, idle, promoted, slot, spare, cost, engine, step
            )


@inlined
def _next_block(slots, tables, blocks, keys, index, idle, hashes, slot, engine, step):
    """Give a decoding request whose blocks are all full one more; the full ones have names now."""
    this = slots[slot]
    full = this.blocks
    block_pool.take(blocks, keys, index, idle, tables, slot, full, 1, engine, step)
    this.blocks = full + 1
    if engine.block_size == 1 and engine.depth == 1:
        full += 1  # that one token fills the new block as well
    seats.register(slots, tables, blocks, keys, index, hashes, slot, full, engine)


@inlined
def _first(slots, slot, other, another):
    if slot == NONE:
        return False
    seat = slots[slot].seat
    return (other == NONE or seat < slots[other].seat) and (another == NONE or seat < slots[another].seat)


@inlined
def _serve_prefill(
    requests, hashes, slots, tables, blocks, keys, index, idle, promoted, slot, spare, cost, engine, step
):
    this = slots[slot]
    new_tokens = batch_plan.wanted_prefill(this, spare, engine)
    if new_tokens == 0:
        return 0
    computed_tokens = this.computed_tokens
    seats.extend(slots, tables, blocks, keys, index, idle, slot, computed_tokens + new_tokens, engine, step)
    full = seats.full_blocks(computed_tokens + new_tokens, engine)
    seats.register(slots, tables, blocks, keys, index, hashes, slot, full, engine)
    step_time.add_chunk(step, this.known_tokens, this.input_tokens, new_tokens, computed_tokens, cost, engine)
    engine.carried_prefill = 1
    commit.advance_prefill(requests, slots, promoted, slot, new_tokens, engine, step)
    return new_tokens
