"""Decoding requests, kept up to date without touching them.

`engine.ticks` counts decisions. A request that decodes has `origin + ticks` tokens in KV, so a tick moves
all of them at once. Two groupings say in advance who has something to do at a tick:

* `phases[t % block_size]`: those whose tokens fill their blocks exactly at tick t, so that they need one
  more; by order of admission, as blocks are handed out in that order;
* `calendar[t]`: those whose last token is sampled at tick t (a ring of heads).

A decision that passes over some of them gives them a smaller origin and sorts them in again.
"""

from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import DECODE, NONE


@inlined
def join(slots, phases, calendar, slot, computed_tokens, engine):
    """Let a request decode from the next tick on; that tick must have begun."""
    this = slots[slot]
    this.state = DECODE
    this.fresh = 0
    this.origin = computed_tokens - engine.ticks
    this.entry_tokens = computed_tokens
    engine.decoding += 1
    engine.held_tokens -= computed_tokens
    _enter(slots, phases, calendar, slot, engine)


@inlined
def leave(slots, phases, calendar, slot, engine):
    """Take a request out of the groups and return its tokens in KV; its state is the caller's."""
    this = slots[slot]
    group = phases[(-this.origin) % engine.block_size]
    if this.group_earlier == NONE:
        group.head = this.group_later
    else:
        slots[this.group_earlier].group_later = this.group_later
    if this.group_later == NONE:
        group.tail = this.group_earlier
    else:
        slots[this.group_later].group_earlier = this.group_earlier
    group.count -= 1
    if this.end_earlier == NONE:
        calendar[this.final_tick & engine.calendar_mask] = this.end_later
    else:
        slots[this.end_earlier].end_later = this.end_later
    if this.end_later != NONE:
        slots[this.end_later].end_earlier = this.end_earlier
    engine.decoding -= 1
    engine.origin_sum -= this.origin
    engine.fresh -= this.fresh
    computed_tokens = this.origin + engine.ticks
    engine.held_tokens += computed_tokens
    return computed_tokens


@inlined
def held_tokens(engine):
    """Return the tokens in KV of all running requests."""
    return engine.held_tokens + engine.origin_sum + engine.decoding * engine.ticks


@inlined
def sort_in_again(slots, phases, calendar, engine):
    """Rebuild both groupings after some origins changed, in order of admission."""
    for phase in range(engine.block_size):
        phases[phase].head = NONE
        phases[phase].tail = NONE
        phases[phase].count = 0
    slot = engine.running_head
    while slot != NONE:
        if slots[slot].state == DECODE:
            calendar[slots[slot].final_tick & engine.calendar_mask] = NONE
        slot = slots[slot].later
    engine.origin_sum = 0
    slot = engine.running_head
    while slot != NONE:
        if slots[slot].state == DECODE:
            _enter(slots, phases, calendar, slot, engine)
        slot = slots[slot].later


@inlined
def _enter(slots, phases, calendar, slot, engine):
    this = slots[slot]
    engine.origin_sum += this.origin
    group = phases[(-this.origin) % engine.block_size]
    before = group.tail
    while before != NONE and slots[before].seat > this.seat:
        before = slots[before].group_earlier
    this.group_earlier = before
    if before == NONE:
        this.group_later = group.head
        group.head = slot
    else:
        this.group_later = slots[before].group_later
        slots[before].group_later = slot
    if this.group_later == NONE:
        group.tail = slot
    else:
        slots[this.group_later].group_earlier = slot
    group.count += 1
    # After its last step it knows target_tokens, one more than it has in KV then.
    this.final_tick = this.target_tokens - 2 - this.origin
    day = this.final_tick & engine.calendar_mask
    this.end_earlier = NONE
    this.end_later = calendar[day]
    if this.end_later != NONE:
        slots[this.end_later].end_earlier = slot
    calendar[day] = slot
