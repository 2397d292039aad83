"""Wait queue: who is admitted next, and how requests come in and give up.

First come, first served is a doubly linked list through the request records: new requests at the back,
preempted ones at the front. By priority it is a binary heap on (priority, arrival, row) in `heap`, and
`earlier` of a request is its place there.
"""

from pipeline.kernel import release
from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import (
    DONE,
    NONE,
    PREEMPTED,
    QUEUE_FULL,
    REJECTED,
    TIMED_OUT,
    WAITING,
)


@inlined
def push_back(requests, heap, row, engine):
    """Add a new request."""
    request = requests[row & engine.window_mask]
    request.life = WAITING
    engine.waiting += 1
    if engine.by_priority:
        engine.heap_size += 1
        _sift_up(requests, heap, row, engine.heap_size - 1, engine)
        return
    request.later = NONE
    request.earlier = engine.queue_tail
    if engine.queue_tail == NONE:
        engine.queue_head = row
    else:
        requests[engine.queue_tail & engine.window_mask].later = row
    engine.queue_tail = row


@inlined
def push_front(requests, heap, row, engine):
    """Add a preempted request: at the front, or in its place by priority."""
    request = requests[row & engine.window_mask]
    request.life = PREEMPTED
    engine.waiting += 1
    if engine.by_priority:
        engine.heap_size += 1
        _sift_up(requests, heap, row, engine.heap_size - 1, engine)
        return
    request.earlier = NONE
    request.later = engine.queue_head
    if engine.queue_head == NONE:
        engine.queue_tail = row
    else:
        requests[engine.queue_head & engine.window_mask].earlier = row
    engine.queue_head = row


@inlined
def head(heap, engine):
    """Return the row that is next, or NONE if nobody waits."""
    if engine.waiting == 0:
        return NONE
    return heap[0] if engine.by_priority else engine.queue_head


@inlined
def remove(requests, heap, row, engine):
    """Take a waiting request out, wherever it stands."""
    engine.waiting -= 1
    request = requests[row & engine.window_mask]
    if engine.by_priority:
        engine.heap_size -= 1
        last = heap[engine.heap_size]
        if last != row:
            _sift_up(requests, heap, last, _sift_down(requests, heap, last, request.earlier, engine), engine)
        return
    if request.earlier == NONE:
        engine.queue_head = request.later
    else:
        requests[request.earlier & engine.window_mask].later = request.later
    if request.later == NONE:
        engine.queue_tail = request.earlier
    else:
        requests[request.later & engine.window_mask].earlier = request.earlier


@inlined
def arrive(requests, arrivals, heap, engine):
    """Hand over every request of this replica that has arrived by now, in order of arrival.

    A prompt that reaches the context limit is refused by vLLM's front end; a full queue answers 429; a
    client may have left before anybody looked.
    """
    while engine.arrived < engine.routed:
        row = arrivals[engine.arrived & engine.window_mask]
        request = requests[row & engine.window_mask]
        if request.arrival_ns > engine.now_ns:
            return
        engine.arrived += 1
        if request.input_tokens >= engine.max_model_len:
            _leave(requests, row, REJECTED, NONE, engine)
        elif engine.queue_limit != NONE and engine.waiting >= engine.queue_limit:
            _leave(requests, row, QUEUE_FULL, request.arrival_ns, engine)
        elif engine.timeout_ns != NONE and request.arrival_ns + engine.timeout_ns <= engine.now_ns:
            _leave(requests, row, TIMED_OUT, request.arrival_ns + engine.timeout_ns, engine)
        else:
            engine.unfinished += 1
            push_back(requests, heap, row, engine)


@inlined
def next_event_ns(requests, arrivals, engine):
    """Return when the next request arrives or the next client gives up, as far as is known, else NONE."""
    when = NONE
    if engine.arrived < engine.routed:
        when = requests[arrivals[engine.arrived & engine.window_mask] & engine.window_mask].arrival_ns
    if engine.timeout_ns != NONE and engine.unfinished > 0:
        row = next_deadline(requests, arrivals, engine)
        deadline = requests[row & engine.window_mask].arrival_ns + engine.timeout_ns
        if when == NONE or deadline < when:
            when = deadline
    return when


@inlined
def next_deadline(requests, arrivals, engine):
    """Return the first unfinished row that the scheduler has seen, NONE if there is none."""
    engine.deadline = max(engine.deadline, engine.routed - engine.window_mask - 1)
    while engine.deadline < engine.arrived:
        row = arrivals[engine.deadline & engine.window_mask]
        if row >= engine.first_row and requests[row & engine.window_mask].life != DONE:
            return row
        engine.deadline += 1
    return NONE


@inlined
def _leave(requests, row, outcome, when_ns, engine):
    request = requests[row & engine.window_mask]
    request.life = DONE
    request.outcome = outcome
    request.finish_ns = when_ns
    release.note_end(requests, row, engine)


@inlined
def _before(requests, a, b, engine):
    one, two = requests[a & engine.window_mask], requests[b & engine.window_mask]
    if one.priority != two.priority:
        return one.priority < two.priority
    if one.arrival_ns != two.arrival_ns:
        return one.arrival_ns < two.arrival_ns
    return a < b


@inlined
def _set(requests, heap, place, row, engine):
    heap[place] = row
    requests[row & engine.window_mask].earlier = place


@inlined
def _sift_up(requests, heap, row, place, engine):
    while place > 0:
        parent = (place - 1) >> 1
        if not _before(requests, row, heap[parent], engine):
            break
        _set(requests, heap, place, heap[parent], engine)
        place = parent
    _set(requests, heap, place, row, engine)


@inlined
def _sift_down(requests, heap, row, place, engine):
    """Move the hole at `place` down until `row` may fill it, and return where that is."""
    while True:
        child = 2 * place + 1
        if child >= engine.heap_size:
            return place
        if child + 1 < engine.heap_size and _before(requests, heap[child + 1], heap[child], engine):
            child += 1
        if not _before(requests, heap[child], row, engine):
            return place
        _set(requests, heap, place, heap[child], engine)
        place = child
