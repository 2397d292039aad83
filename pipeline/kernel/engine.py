"""One replica: the loop of the policy whose arrays are given.

A policy is a module with `Parts`, a NamedTuple of the arrays that only it has, and `run`. The type of the arrays
chooses the policy when the caller is compiled, so that each caller is compiled once a policy, and only for the
policies in use.
"""

import sys
from typing import Any

from numba import types
from numba.extending import overload


def run(requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica):
    """Replay until there is a reason to stop, and return it (`layout.TRACE_DONE` and following).

    All state is in the arrays, nothing is allocated, and the next call goes on. Nothing is decided at or after
    `engine.horizon_ns`, and no step collected that ends after it, so that more arrivals can be sent to this replica
    from then on. `engine.stepwise` allows one decision at the horizon.

    requests  : REQUEST[window], the loaded rows of the trace; outcomes are written here
    hashes    : uint64[power of two], prefix hashes of the loaded rows
    lengths   : int32[power of two], tokens of each sample of the loaded rows
    arrivals  : int64[window], rows routed to this replica, in order
    heap      : int64[window], waiting rows by priority
    flights   : FLIGHT[2], ends of the steps in flight
    steps, gaps, decisions : STEP[], GAP[], DECISION[] output; engine.*_used rows of each are filled
    g_ns, cost : see step_time
    engine    : ENGINE record
    parts     : arrays of the policy for all replicas
    replica   : number of this one, its place in `parts`
    """
    policy = sys.modules[type(parts).__module__]
    return policy.run(
        requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
    )  # fmt: skip


_OPTIONS: Any = {"error_model": "numpy", "_nrt": False}


@overload(run, jit_options=_OPTIONS)
def _run(
    requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
):  # fmt: skip
    assert isinstance(parts, types.NamedTuple | types.NamedUniTuple), parts
    run_policy = sys.modules[parts.instance_class.__module__].run

    def chosen(
        requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts, replica
    ):  # fmt: skip
        return run_policy(
            requests, hashes, lengths, arrivals, heap, flights, steps, gaps, decisions, g_ns, cost, engine, parts,
            replica,
        )  # fmt: skip

    return chosen
