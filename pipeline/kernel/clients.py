"""Clients that wait for answers: the fleet under arrivals that depend on ends.

At any moment the replica goes on whose next event is the earliest, and no further than to the next event of
another one, or the next arrival: so it cannot miss a request that an end elsewhere sends it. Events of one moment
come in this order: ends of steps, arrivals by row, decisions by replica. A replica alone runs to its next end.
"""

from pipeline.kernel import engine, fleet, release
from pipeline.kernel.compile import compiled, inlined
from pipeline.kernel.layout import DONE, ENDED, FOREVER, NEED_TRACE, NONE, STALLED, TRACE_DONE


@compiled
def advance(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engines, parts, fleet_,
    released,
):  # fmt: skip
    """Replay until there is a reason to stop, and return it, as `fleet.advance` does.

    released : int64[window], heap of rows on their way (see `release`)
    NEED_TRACE: sessions need the whole trace, since a turn may come earlier than it was logged; a closed loop
    needs the next rows.
    """
    if not fleet_.closed and fleet_.horizon_ns != FOREVER:
        return NEED_TRACE
    while release.send_owed(requests, released, fleet_):
        row = release.next_row(requests, released, fleet_)
        arrival_ns = FOREVER if row == NONE else requests[row & fleet_.window_mask].arrival_ns
        r, other_ns = _first(flights, engines)
        event_ns = _next_event_ns(flights[r], engines[r])
        if arrival_ns < event_ns or (arrival_ns == event_ns and not engines[r].collect_due):
            if row == NONE:
                _note_stalled(engines)
                return TRACE_DONE if fleet_.horizon_ns == FOREVER else NEED_TRACE
            release.take(requests, released, row, fleet_)
            _send(requests, arrivals, row, released, engines, fleet_)
            continue
        this = engines[r]
        this.horizon_ns = min(arrival_ns, other_ns)
        this.stepwise = not this.collect_due and this.horizon_ns == event_ns and event_ns != FOREVER
        reason = engine.run(
            requests, hashes, lengths, arrivals[r], heap[r], flights[r], steps[r], gaps[r], decisions[r], g_ns, cost,
            this, parts, r,
        )  # fmt: skip
        release.answer(requests, released, this, fleet_)
        if reason not in (NEED_TRACE, ENDED, TRACE_DONE, STALLED):
            fleet_.stopped = r
            return reason
    return NEED_TRACE


@compiled
def link(requests, first_row, end_row, window_mask):
    """Enter loaded rows as followers of the rows that they name in `after`."""
    for row in range(first_row, end_row):
        request = requests[row & window_mask]
        if request.after != NONE:
            former = requests[request.after & window_mask]
            request.next_follower = former.first_follower
            former.first_follower = row


@inlined
def _send(requests, arrivals, row, released, engines, fleet_):
    """A request arrives; one that is not replayed ends at once."""
    request = requests[row & fleet_.window_mask]
    if request.life == DONE:
        fleet_.now_ns = request.arrival_ns
        release.send_followers(requests, released, row, fleet_)
        return
    if request.replica == NONE:
        request.replica = fleet.least_outstanding(engines)
    chosen = engines[request.replica]
    arrivals[request.replica, chosen.routed & fleet_.window_mask] = row
    chosen.routed += 1
    chosen.wake_ns = min(chosen.wake_ns, request.arrival_ns)


@inlined
def _first(flights, engines):
    """Return the replica whose event is the next, and when the next one of the others is."""
    best, other_ns = 0, FOREVER
    best_ns = _next_event_ns(flights[0], engines[0])
    for r in range(1, len(engines)):
        when_ns = _next_event_ns(flights[r], engines[r])
        if when_ns < best_ns or (when_ns == best_ns and engines[r].collect_due and not engines[best].collect_due):
            other_ns = best_ns
            best, best_ns = r, when_ns
        else:
            other_ns = min(other_ns, when_ns)
    return best, other_ns


@inlined
def _next_event_ns(flights, this):
    """Return when a replica's next step ends or its next decision is due, FOREVER if it has nothing to do."""
    if this.collect_due:
        return flights[(this.steps - this.in_flight) & 1].end_ns
    return max(this.now_ns, this.wake_ns)


@inlined
def _note_stalled(engines):
    for r in range(len(engines)):
        engines[r].stalled = engines[r].unfinished > 0
