"""Admission: what a waiting request needs to start.

Strictly in queue order: a head that does not fit blocks all behind it. Source: vLLM 0.33,
Scheduler.schedule (waiting part) and KVCacheManager.allocate_slots.
"""

from pipeline.kernel import block_pool, commit, prefix_index, seats, step_time, wait_queue
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import ADMITTED, NONE, RESUMED


@inlined
def admit(
    requests, hashes, heap, slots, tables, blocks, index, idle, promoted, decisions, cost, engine, step, start_ns
):
    """Start waiting requests while budget, seats and blocks last."""
    while engine.budget > 0 and engine.running < engine.max_active:
        row = wait_queue.head(heap, engine)
        if row == NONE:
            return
        request = requests[row & engine.window_mask]
        known_tokens = request.known_tokens
        hits, idle_hits = _look_up(hashes, tables, blocks, index, request, row, engine)
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
        if engine.reserve_full_sequence and _blocks(known_tokens, engine) - hits > room:
            return
        if _blocks(hit_tokens + new_tokens, engine) - hits > room:
            return
        wait_queue.remove(requests, heap, row, engine)
        for i in range(hits):
            block_pool.share(blocks, idle, tables[engine.idle_slot, i], engine)
        slot = seats.take(requests, slots, row, hits, engine)
        seats.extend(slots, tables, blocks, index, idle, slot, hit_tokens + new_tokens, engine, step)
        full = seats.full_blocks(hit_tokens + new_tokens, engine)
        seats.register(slots, tables, blocks, index, hashes, slot, full, engine)
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
def _look_up(hashes, tables, blocks, index, request, row, engine):
    """Write the cached leading blocks of a request where its table will be; return how many, and how many are idle.

    At least one token is always left to compute.
    """
    hits = 0
    idle_hits = 0
    if not engine.prefix_caching:
        return hits, idle_hits
    most = (request.known_tokens - 1) // engine.block_size
    while hits < most:
        wanted = prefix_index.key(hashes, request, row, hits, engine)
        block = prefix_index.find(blocks, index, wanted, engine)
        if block == NONE:
            break
        tables[engine.idle_slot, hits] = block
        if blocks[block].refs == 0:
            idle_hits += 1
        hits += 1
    return hits, idle_hits


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
