"""Shortcut: plan a step without visiting the requests that just decode.

Why it is exact. In vLLM's loop a decoding request takes one token of budget and, when its blocks are
full, one block. If budget and blocks suffice for all, the visits have no effect on each other but for
the order in which blocks are handed out and registered. So it is enough to

1. know that they suffice: the decoding requests are counted, their needs at this tick are counted by
   phase (`decoders`), and the prefills in progress, which are few, are added up one by one;
2. visit, in order of admission, those who take or complete a block at this tick, and the prefills.

The budget may run out within the last prefill in progress, if nobody sits behind it: vLLM would cut its
chunk at the same token. In every other case (budget or blocks short, a prefill cut with others behind,
requests whose tokens in flight differ) `plan` answers no before changing anything, and `batch_plan`
makes the visits.
"""

from pipeline.kernel import batch_plan, commit, seats, step_time
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import NONE


@inlined
def plan(requests, hashes, slots, tables, blocks, index, idle, phases, promoted, cost, engine, step):
    """Plan the running requests if all of them get what they want; return whether that was so."""
    if engine.fresh > 0:
        return False
    phase = engine.ticks % engine.block_size
    budget = engine.max_num_batched_tokens - engine.decoding
    if budget < 0:
        return False
    if engine.prefilling > 0 and not engine.held:
        budget = _prefills_fit(slots, budget, phases[phase].count, engine)
        if budget < 0:
            return False
    elif phases[phase].count > engine.free_blocks:
        return False
    engine.budget = engine.max_num_batched_tokens
    _visit(requests, hashes, slots, tables, blocks, index, idle, phases, promoted, phase, cost, engine, step)
    engine.budget = budget
    decode_contexts = engine.origin_sum + engine.decoding * (engine.ticks + 1)
    step.scheduled += engine.decoding
    step.sampled += engine.decoding
    step.decode_tokens += engine.decoding
    step.decode_context_tokens += decode_contexts
    step.context_tokens += decode_contexts
    return True


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
def _visit(requests, hashes, slots, tables, blocks, index, idle, phases, promoted, phase, cost, engine, step):
    """Serve those who take or complete a block, and the prefills, in order of admission."""
    full = phases[phase].head
    filling = NONE
    if engine.prefix_caching and engine.depth == 1 and engine.block_size > 1:
        # Synchronously a block has a name as soon as its last token is scheduled, one tick before the next block.
        filling = phases[(phase + 1) % engine.block_size].head
    prefill = NONE if engine.held else engine.prefill_head
    spare = engine.max_num_batched_tokens - engine.decoding
    while full != NONE or filling != NONE or prefill != NONE:
        if _first(slots, full, filling, prefill):
            slot, full = full, slots[full].group_later
        elif _first(slots, filling, full, prefill):
            slot, filling = filling, slots[filling].group_later
        else:
            slot, prefill = prefill, slots[prefill].group_later
            spare -= _serve_prefill(
                requests, hashes, slots, tables, blocks, index, idle, promoted, slot, spare, cost, engine, step
            )
            continue
        computed_tokens = slots[slot].origin + engine.ticks
        seats.extend(slots, tables, blocks, index, idle, slot, computed_tokens + 1, engine, step)
        delivered = computed_tokens + 2 - engine.depth
        seats.register(slots, tables, blocks, index, hashes, slot, delivered, engine)


@inlined
def _first(slots, slot, other, another):
    if slot == NONE:
        return False
    seat = slots[slot].seat
    return (other == NONE or seat < slots[other].seat) and (another == NONE or seat < slots[another].seat)


@inlined
def _serve_prefill(requests, hashes, slots, tables, blocks, index, idle, promoted, slot, spare, cost, engine, step):
    this = slots[slot]
    new_tokens = batch_plan.wanted_prefill(this, spare, engine)
    if new_tokens == 0:
        return 0
    computed_tokens = this.computed_tokens
    seats.extend(slots, tables, blocks, index, idle, slot, computed_tokens + new_tokens, engine, step)
    seats.register(slots, tables, blocks, index, hashes, slot, computed_tokens + new_tokens, engine)
    step_time.add_chunk(step, this.known_tokens, this.input_tokens, new_tokens, computed_tokens, cost, engine)
    engine.carried_prefill = 1
    commit.advance_prefill(requests, slots, promoted, slot, new_tokens, engine, step)
    return new_tokens
