"""Preemption: who gives way when a running request finds no block, and what it loses.

The victim loses all its blocks, not its tokens: prompt and generated tokens are one sequence to compute
when it starts again, less what the prefix cache still holds. Source: vLLM 0.33, Scheduler.schedule.
"""

from pipeline.kernel import commit, decoders, seats, wait_queue
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import DECODE, LOST, NONE, PREFILL


@inlined
def victim(requests, slots, engine):
    """Return the slot that gives way: the last seated, or the least urgent (the first such in the list)."""
    if not engine.by_priority:
        return engine.running_tail
    worst = engine.running_head
    slot = slots[worst].later
    while slot != NONE:
        one = requests[slots[slot].request & engine.window_mask]
        two = requests[slots[worst].request & engine.window_mask]
        later = one.arrival_ns > two.arrival_ns
        if one.priority > two.priority or (one.priority == two.priority and later):
            worst = slot
        slot = slots[slot].later
    return worst


@inlined
def preempt(
    requests, hashes, heap, slots, tables, cached, runs, index, idle, phases, calendar, decisions, slot, engine, step
):
    """Send a running request back to the queue."""
    this = slots[slot]
    row = this.request
    request = requests[row & engine.window_mask]
    computed_tokens = this.computed_tokens
    if this.state == PREFILL:
        seats.leave_prefills(slots, slot, engine)
    elif this.state == DECODE:
        gap_step = this.gap_step
        request.gap_step = engine.steps - 1 if gap_step == NONE else gap_step
        request.gap_ns = engine.gpu_free_ns if gap_step == NONE else this.gap_ns
        computed_tokens = decoders.leave(slots, phases, calendar, slot, engine)
        request.computed_tokens += computed_tokens - this.entry_tokens
        request.known_tokens = computed_tokens + 1
    if this.served_step == engine.steps:
        engine.budget += this.served_tokens
    seats.list_blocks(slots, tables, cached, runs, index, hashes, slot, engine)
    seats.leave(slots, tables, cached, idle, slot, computed_tokens, engine)
    request.preemptions += 1
    commit.note_decision(decisions, engine, step, row, LOST, 0, computed_tokens, 0, 0, 0)
    wait_queue.push_front(requests, heap, row, engine)
    step.preempted += 1
