"""Release: requests that are sent because another one ended.

The engine notes every end while `engine.feedback` is set, and comes back to `clients`, which sends what the ends
release: in a closed loop the next row of the trace for each, in sessions the turns that follow the request. What is
on its way stands in `released`, a binary heap on (arrival, row).

A client learns of an end when the engine does: at the end of the step, and where it gave up or was refused, at the
decision that found that out. So nothing ever arrives before a moment that some replica has already passed, and who is
sent by a decision comes after all who had arrived by then.
"""

from pipeline.kernel.compile import inlined
from pipeline.kernel.layout import DONE, FOREVER, NONE

FAR_NS = 2**61  # no arrival is later, so that think times never add up to more than an int64 holds


@inlined
def note_end(requests, row, engine):
    """Put a request that is done on the list of ends not answered yet."""
    if engine.feedback:
        requests[row & engine.window_mask].later = engine.ended
        engine.ended = row


@inlined
def answer(requests, released, engine, fleet):
    """Send what the ends of a replica release; the clock of the fleet is that of the replica then."""
    if engine.ended == NONE:
        return
    fleet.now_ns = engine.now_ns
    row = engine.ended
    engine.ended = NONE
    while row != NONE:
        if fleet.closed:
            fleet.owed += 1
        else:
            send_followers(requests, released, row, fleet)
        row = requests[row & fleet.window_mask].later


@inlined
def send_followers(requests, released, row, fleet):
    """Send the turns that follow a request which has just ended, each after its think time."""
    former = requests[row & fleet.window_mask]
    ended_ns = fleet.now_ns if former.finish_ns == NONE else former.finish_ns
    follower = former.first_follower
    while follower != NONE:
        request = requests[follower & fleet.window_mask]
        request.arrival_ns = min(max(ended_ns + request.think_ns, fleet.now_ns), FAR_NS)
        _push(requests, released, follower, fleet)
        follower = request.next_follower


@inlined
def send_owed(requests, released, fleet):
    """Send the next rows of the trace, one for each end; return whether enough of them were loaded."""
    while fleet.owed > 0:
        if fleet.next_row == fleet.loaded_rows:
            return fleet.horizon_ns == FOREVER
        row = fleet.next_row
        fleet.next_row += 1
        request = requests[row & fleet.window_mask]
        request.arrival_ns = fleet.now_ns
        if request.life != DONE:
            _push(requests, released, row, fleet)
            fleet.owed -= 1
    return True


@inlined
def next_row(requests, released, fleet):
    """Return the row that arrives next, NONE if there is none; rows of a session come by way of the heap."""
    first = released[0] if fleet.on_the_way > 0 else NONE
    if fleet.closed:
        return first
    while fleet.next_row < fleet.loaded_rows and requests[fleet.next_row & fleet.window_mask].after != NONE:
        fleet.next_row += 1
    row = fleet.next_row
    if row < fleet.loaded_rows and (first == NONE or _before(requests, row, first, fleet)):
        return row
    return first


@inlined
def take(requests, released, row, fleet):
    """Take the row that `next_row` returned from where it stands."""
    if fleet.on_the_way == 0 or row != released[0]:
        fleet.next_row += 1
        return
    fleet.on_the_way -= 1
    last = released[fleet.on_the_way]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= fleet.on_the_way:
            break
        if child + 1 < fleet.on_the_way and _before(requests, released[child + 1], released[child], fleet):
            child += 1
        if not _before(requests, released[child], last, fleet):
            break
        released[place] = released[child]
        place = child
    released[place] = last


@inlined
def _push(requests, released, row, fleet):
    place = fleet.on_the_way
    fleet.on_the_way += 1
    while place > 0:
        parent = (place - 1) >> 1
        if not _before(requests, row, released[parent], fleet):
            break
        released[place] = released[parent]
        place = parent
    released[place] = row


@inlined
def _before(requests, a, b, fleet):
    one, two = requests[a & fleet.window_mask].arrival_ns, requests[b & fleet.window_mask].arrival_ns
    return one < two or (one == two and a < b)
