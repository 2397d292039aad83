"""Fleet: replicas under one clock, and who gets the next request.

A request whose replica was chosen beforehand is just sent there. For one that goes to the replica with the
fewest requests in flight, all replicas are first brought to the moment of its arrival; ties go to the lowest
number. What a replica does depends on its own arrivals alone, so it does not matter how often it is stopped.
"""

from pipeline.kernel import engine
from pipeline.kernel.compile import compiled
from pipeline.kernel.layout import DONE, NEED_TRACE, NONE, STALLED, TRACE_DONE


@compiled
def advance(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engines, parts, fleet
):  # fmt: skip
    """Route the loaded rows and bring every replica to `fleet.horizon_ns`.

    Returns NEED_TRACE there, TRACE_DONE when all replicas have come to their end, or the reason for which
    replica `fleet.stopped` must be served first. Arrays are those of `engine.run`, one row per replica, but
    for the shared `requests`, `hashes`, `lengths`, `g_ns` and `cost`.
    """
    while fleet.next_row < fleet.loaded_rows:
        row = fleet.next_row
        request = requests[row & fleet.window_mask]
        if request.life != DONE:
            if request.replica == NONE:
                for r in range(len(engines)):
                    engines[r].horizon_ns = request.arrival_ns
                    reason = engine.run(
                        requests, hashes, lengths, arrivals[r], heap[r], flights[r], steps[r], gaps[r], decisions[r],
                        g_ns, cost, engines[r], parts, r,
                    )  # fmt: skip
                    if reason != NEED_TRACE:
                        fleet.stopped = r
                        return reason
                request.replica = least_outstanding(engines)
            chosen = engines[request.replica]
            arrivals[request.replica, chosen.routed & fleet.window_mask] = row
            chosen.routed += 1
        fleet.next_row += 1
    all_done = True
    for r in range(len(engines)):
        engines[r].horizon_ns = fleet.horizon_ns
        reason = engine.run(
            requests, hashes, lengths, arrivals[r], heap[r], flights[r], steps[r], gaps[r], decisions[r], g_ns, cost,
            engines[r], parts, r,
        )  # fmt: skip
        if reason == NEED_TRACE:
            all_done = False
        elif reason != TRACE_DONE and reason != STALLED:
            fleet.stopped = r
            return reason
        engines[r].stalled = reason == STALLED
    return TRACE_DONE if all_done else NEED_TRACE


@compiled
def least_outstanding(engines):
    """Return the replica with the fewest requests in flight, the lowest number on ties."""
    best = 0
    for r in range(1, len(engines)):
        if _outstanding(engines[r]) < _outstanding(engines[best]):
            best = r
    return best


@compiled
def _outstanding(this):
    """Return how many requests a replica has that are not at their end."""
    return this.routed - this.arrived + this.unfinished
