"""vLLM 0.33's scheduler under a virtual clock."""

from typing import Any, NamedTuple

from pipeline.kernel import admission, batch_plan, commit, ledger, shortcut, wait_queue
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import (
    ENDED,
    FOREVER,
    MAX_STEPS,
    NEED_TRACE,
    NONE,
    STALLED,
    TRACE_DONE,
)


class Parts(NamedTuple):
    """Arrays of this policy alone; the first axis is the replica."""

    slots: Any  # SLOT[most running requests]
    tables: Any  # int32[slots + 1, blocks of one request], the last row for the head of the queue
    cached: Any  # CACHED[runs * RUN_BLOCKS], blocks that the prefix index lists
    runs: Any  # RUN[num_gpu_blocks]
    index: Any  # int32[power of two], heads of the prefix index
    idle: Any  # int32[power of two], at least twice num_gpu_blocks, queue of idle blocks
    phases: Any  # GROUP[block_size]
    calendar: Any  # int32[power of two], more than a request can generate
    promoted: Any  # int32[slots], scratch


@compiled
def run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    """Replay until there is a reason to stop, and return it; see `engine.run`."""
    slots, tables, cached, runs = (
        parts.slots[replica],
        parts.tables[replica],
        parts.cached[replica],
        parts.runs[replica],
    )
    index, idle, phases = parts.index[replica], parts.idle[replica], parts.phases[replica]
    calendar, promoted = parts.calendar[replica], parts.promoted[replica]
    while True:
        if engine.collect_due:
            if flights[(engine.steps - engine.in_flight) & 1].end_ns > engine.horizon_ns:
                return NEED_TRACE
            engine.collect_due = 0
            commit.collect(requests, hashes, heap, slots, tables, cached, runs, index, idle, flights, engine)
        if engine.now_ns >= engine.horizon_ns + engine.stepwise:
            return NEED_TRACE
        if engine.timeout_ns != NONE:
            commit.give_up(
                requests, arrivals, heap, slots, tables, cached, idle, phases, calendar, flights, gaps, engine
            )
        wait_queue.arrive(requests, arrivals, heap, engine)
        if engine.ended != NONE:
            return ENDED
        if engine.unfinished == 0:
            if engine.in_flight > 0:
                engine.collect_due = 1  # the clients of a step in flight have all given up
            elif not ledger.jump(requests, arrivals, engine):
                return TRACE_DONE if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        reason = ledger.full(steps, gaps, decisions, engine)
        if reason != ledger.ROOM:
            return reason
        if engine.shortcut and engine.waiting == 0 and engine.running == engine.decoding and engine.fresh == 0:
            before = engine.steps_used
            until_ns = wait_queue.next_event_ns(requests, arrivals, engine)
            until_ns = engine.horizon_ns if until_ns == NONE else min(until_ns, engine.horizon_ns)
            shortcut.coast(
                hashes, slots, tables, cached, runs, index, idle, phases, calendar, flights, steps, g_ns, cost, engine,
                until_ns,
            )  # fmt: skip
            if engine.steps_used > before:
                continue
        step = steps[engine.steps_used]
        start_ns = max(engine.now_ns, engine.gpu_free_ns)
        _open(engine, step)
        if not engine.shortcut or not shortcut.plan(
            requests, hashes, slots, tables, cached, runs, index, idle, phases, promoted, cost, engine, step
        ):
            batch_plan.serve(
                requests, hashes, heap, slots, tables, cached, runs, index, idle, phases, calendar, flights, promoted,
                decisions, gaps, cost, engine, step,
            )  # fmt: skip
        if step.preempted == 0:
            admission.admit(
                requests,
                hashes,
                heap,
                slots,
                tables,
                cached,
                runs,
                index,
                idle,
                promoted,
                decisions,
                cost,
                engine,
                step,
                start_ns,
            )
            if not engine.held:
                engine.bound = engine.waiting > 0
        if step.scheduled == 0 and step.preempted == 0:
            if engine.in_flight > 0:
                engine.collect_due = 1
            elif not ledger.jump(requests, arrivals, engine):
                return STALLED if engine.horizon_ns == FOREVER else NEED_TRACE
            continue
        _keep_cadence(engine, step)
        commit.log(requests, slots, phases, calendar, flights, promoted, gaps, g_ns, cost, engine, step, start_ns)
        if engine.steps == engine.max_steps:
            return MAX_STEPS
        engine.collect_due = engine.in_flight == engine.depth
        if engine.stepwise:
            return NEED_TRACE


@inlined
def _open(engine, step):
    """Begin a decision: settle threshold and cadence."""
    ledger.open_step(engine, step)
    engine.carried_prefill = 0
    engine.gap_mark = engine.gaps_used
    present = engine.running + engine.waiting
    engine.step_threshold = 0
    if engine.threshold > 0 and present > 1:
        engine.step_threshold = engine.threshold
        if engine.adaptive_threshold:
            engine.step_threshold = max(engine.threshold, engine.max_num_batched_tokens // present)
    since = engine.busy_steps + 1 - engine.last_prefill_step
    others = engine.running > engine.prefilling
    engine.held = since < engine.prefill_interval and others and not engine.bound


@inlined
def _keep_cadence(engine, step):
    if step.scheduled > 0:
        if engine.carried_prefill:
            engine.last_prefill_step = engine.busy_steps + 1
        engine.busy_steps += 1
