"""Admission: what a waiting request needs to start.

Strictly in queue order: a head that does not fit blocks all behind it. Source: vLLM 0.33,
Scheduler.schedule (waiting part) and KVCacheManager.allocate_slots.
"""

from pipeline.kernel import block_pool, commit, prefix_index, seats, step_time, wait_queue
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import ADMITTED, NONE, RESUMED


@inlined
def admit(
    requests, hashes, heap, slots, tables, cached, runs, index, idle, promoted, decisions, cost, engine, step, start_ns
):
    """Start waiting requests while budget, seats and blocks last."""
    while engine.budget > 0 and engine.running < engine.max_active:
        row = wait_queue.head(heap, engine)
        if row == NONE:
            return
        request = requests[row & engine.window_mask]
        known_tokens = request.known_tokens
        if row != engine.watched_row or engine.watch_stale:
            _look_up(hashes, tables, cached, runs, index, request, row, engine)
        hits, idle_hits = engine.watch_hits, engine.watch_idle
        hit_tokens = hits * engine.block_size
        new_tokens = known_tokens - hit_tokens
        is_long = new_tokens > 1
        if engine.held and is_long:
            return
        if 0 < engine.step_threshold < new_tokens:
            new_tokens = engine.step_threshold
        if new_tokens > engine.budget:
            if not engine.chunked_prefill:
                return
            new_tokens = engine.budget
        room = engine.free_blocks - idle_hits
        if engine.running > 0:
            room -= engine.watermark_blocks
        needed = hit_tokens + new_tokens
        if engine.reserve_full_sequence:
            needed = known_tokens
        if _blocks(needed, engine) - hits > room:
            if row != engine.watched_row:
                _watch(hashes, tables, cached, request, row, engine)
            return
        engine.watched_row = NONE
        wait_queue.remove(requests, heap, row, engine)
        for i in range(hits):
            number = tables[-1, i]
            tables[engine.idle_slot, i] = number
            block_pool.share(cached, idle, number, engine)
        slot = seats.take(requests, slots, row, hits, engine)
        seats.extend(slots, tables, cached, runs, index, idle, slot, hit_tokens + new_tokens, engine, step)
        full = seats.full_blocks(hit_tokens + new_tokens, engine)
        seats.register(slots, tables, cached, runs, index, hashes, slot, full, engine)
        if is_long:
            engine.carried_prefill = 1
        event = _note(request, hit_tokens, start_ns, step)
        commit.note_decision(
            decisions, engine, step, row, event, new_tokens, hit_tokens, known_tokens, request.input_tokens, hit_tokens
        )
        step_time.add_chunk(step, known_tokens, request.input_tokens, new_tokens, hit_tokens, cost, engine)
        commit.advance_prefill(requests, slots, promoted, slot, new_tokens, engine, step)
        engine.budget -= new_tokens


@inlined
def _look_up(hashes, tables, cached, runs, index, request, row, engine):
    """Find the cached leading blocks of a request; the last row of `tables` receives them.

    At least one token is always left to compute.
    """
    engine.watched_row = NONE
    hits = 0
    idle_hits = 0
    if engine.prefix_caching:
        most = (request.known_tokens - 1) // engine.block_size
        found = True
        while hits < most and found:
            key, place, count = prefix_index.stretch(hashes, request, row, hits, engine)
            run = prefix_index.first_run(runs, index, key, engine)
            for i in range(min(count, most - hits)):
                number = prefix_index.find(runs, run, place + i)
                if number == NONE:
                    found = False
                    break
                tables[-1, hits] = number
                if cached[number].refs == 0:
                    idle_hits += 1
                hits += 1
    engine.watch_hits = hits
    engine.watch_idle = idle_hits


@inlined
def _watch(hashes, tables, cached, request, row, engine):
    """Remember the look-up of a head that does not fit: it is tried again in every step.

    The result stays what it is until one of its blocks is evicted, taken into use or given back, or until the
    first block it missed is registered. Whoever does that sees the number of the watch, or the key.
    """
    engine.watch += 1
    engine.watched_row = row
    engine.watch_stale = 0
    for i in range(engine.watch_hits):
        cached[tables[-1, i]].watch = engine.watch
    engine.watch_key, engine.watch_place, _ = prefix_index.stretch(hashes, request, row, engine.watch_hits, engine)


@inlined
def _note(request, hit_tokens, start_ns, step):
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
def _blocks(tokens, engine):
    return (tokens + engine.block_size - 1) // engine.block_size
