"""What a row is: the record types of the engine's state, and the names of its states.

State is a few structured arrays, one per table, and one record of scalars. Row numbers of other tables
are plain integers, `NONE` is no row. A record is passed as `array[0]`, so a kernel changes it in place.

Requests live in a window of the trace: row `r` of the trace sits at `requests[r & engine.window_mask]`
while `engine.first_row <= r < fleet.loaded_rows`. Every replica has arrays of its own but shares the window;
the rows routed to it stand in its `arrivals`, number i at `arrivals[i & engine.window_mask]`.
"""

from typing import Any

import numpy as np

NONE = -1

# A request's place in its life. Below RUNNING it holds no blocks.
NEW, WAITING, PREEMPTED, RUNNING, DONE = 0, 1, 2, 3, 4

# What became of a request; the order is that of schema.OUTCOMES, with 0 for "not yet known".
PENDING, FINISHED, MAX_MODEL_LEN, REJECTED, TIMED_OUT, CANCELLED, QUEUE_FULL, NEVER_FINISHED, NOT_REPLAYED = range(9)

# What a running request does: compute its known tokens, generate one per step, or wait for its last
# token to be collected.
PREFILL, DECODE, ENDING = 0, 1, 2

# Why a kernel came back. NEED_TRACE: what arrives from `horizon_ns` on is not known yet. ENDED: requests ended, and
# others may arrive because of that.
TRACE_DONE, STALLED, STEPS_FULL, GAPS_FULL, DECISIONS_FULL, NEED_TRACE, MAX_STEPS, ENDED = range(8)

FOREVER = np.iinfo(np.int64).max

# Kinds of a decision row.
CONTINUED, ADMITTED, RESUMED, LOST, SWAPPED_OUT, SWAPPED_IN, DROPPED = range(7)

_i1, _i4, _i8, _u4, _u8, _f8 = np.int8, np.int32, np.int64, np.uint32, np.uint64, np.float64

REQUEST = np.dtype(
    [
        # from the trace
        ("arrival_ns", _i8),
        ("prefix_start", _i8),  # first of its hashes in the hash ring
        ("prefix_tokens", _i4),  # leading tokens the hashes cover
        ("prefix_block_tokens", _i4),
        ("input_tokens", _i4),
        ("target_tokens", _i4),  # known tokens of one sample at which it ends, the longest where there are several
        ("max_tokens", _i4),  # of the answer, as the request states it; NONE: not stated
        ("priority", _i4),
        ("tenant", _i4),  # number of its tenant, by first appearance
        ("samples", _i4),  # answers to the one prompt
        ("sample_start", _i8),  # first of their lengths in the ring of lengths
        ("ignore_eos", _i1),  # it never ends before max_tokens, and says so
        ("end_outcome", _i1),  # outcome when it gets there
        # its life
        ("life", _i1),
        ("outcome", _i1),
        ("ending", _i1),  # its last token is in flight
        ("replica", _i4),  # NONE until routed
        ("slot", _i4),  # row in `slots` while it runs
        ("known_tokens", _i4),  # prompt and tokens sampled so far, those in flight included
        ("preemptions", _i4),
        ("cached_tokens", _i4),  # NONE until first admitted
        ("resumed_cached_tokens", _i8),
        ("computed_tokens", _i8),
        ("first_scheduled_ns", _i8),
        ("first_token_ns", _i8),
        ("finish_ns", _i8),
        ("first_token_step", _i8),
        ("finish_step", _i8),
        ("gap_step", _i8),  # last step that sampled for it, while it waits preempted
        ("gap_ns", _i8),  # end of that step
        # links
        ("earlier", _i8),  # waiting queue
        ("later", _i8),  # and once it is done, the list of ends not answered yet
        ("collect_next", _i8),  # list of what to do when a step is collected
        ("seat", _i8),  # order of admission
        ("entry", _i8),  # order of entering the queue, where it counts
        ("looked_at_tokens", _i4),  # to compute, when the queue was last gone through
        ("treated", _i1),  # while a queue is sorted: others may wait for it
        # sessions
        ("after", _i8),  # row that it follows, NONE: arrives by itself
        ("think_ns", _i8),  # from the end of that one to its arrival
        ("first_follower", _i8),
        ("next_follower", _i8),
    ],
    align=True,
)

SLOT = np.dtype(
    [
        ("request", _i8),
        ("seat", _i8),
        ("prefix_start", _i8),
        ("origin", _i8),  # DECODE: tokens in KV minus engine.ticks
        ("final_tick", _i8),  # DECODE: tick whose step samples the last token
        ("entry_tokens", _i8),  # DECODE: tokens in KV when it began to decode
        ("gap_step", _i8),  # last step that sampled for it if that was not the step before, else NONE
        ("gap_ns", _i8),
        ("gap_after", _i8),  # last gap noted: the step after it and the step before it
        ("gap_before", _i8),
        ("served_step", _i8),  # slow path: step that serves it
        ("served_tokens", _i4),  # slow path: with so many tokens
        ("computed_tokens", _i4),  # PREFILL, ENDING: tokens in KV
        ("known_tokens", _i4),  # PREFILL: tokens to compute before it samples
        ("input_tokens", _i4),
        ("target_tokens", _i4),
        ("prefix_tokens", _i4),
        ("prefix_block_tokens", _i4),
        ("blocks", _i4),  # KV blocks it holds
        ("keyed", _i4),  # of those, leading ones whose content has a key
        ("shared", _i4),  # leading blocks of the request that the trace's hashes cover
        ("listed", _i4),  # leading blocks of the request that go into the prefix index at once
        ("earlier", _i4),  # running list
        ("later", _i4),
        ("group_earlier", _i4),  # PREFILL: list of prefills; DECODE: list of its phase
        ("group_later", _i4),
        ("end_earlier", _i4),  # DECODE: list of its final tick
        ("end_later", _i4),
        ("state", _i1),
        ("fresh", _i1),  # DECODE: passed over by the last step, so that none of its tokens is in flight
    ],
    align=True,
)

# A block that the prefix index lists.
CACHED = np.dtype(
    [
        ("block", _i4),
        ("refs", _i4),  # requests that hold it
        ("place", _i4),  # while idle: its entry in the queue
        ("watch", _i4),  # last watch that looked at it
    ],
    align=True,
)

# Up to RUN_BLOCKS listed blocks that follow each other in a text.
RUN = np.dtype(
    [
        ("key", _u8),
        ("home", _i4),  # chain of the prefix index
        ("later", _i4),  # next of its chain, or next of the unused runs
        ("present", _i4),  # bit i: its block i is there
    ],
    align=True,
)
RUN_BITS = 4
RUN_BLOCKS = 1 << RUN_BITS

GROUP = np.dtype([("head", _i4), ("tail", _i4), ("count", _i4)], align=True)

FLIGHT = np.dtype([("end_ns", _i8), ("collect", _i8)], align=True)

STEP = np.dtype(
    [
        ("step", _i8),
        ("scheduled_ns", _i8),
        ("start_ns", _i8),
        ("duration_ns", _i8),
        ("context_tokens", _i8),
        ("decode_context_tokens", _i8),
        ("prefill_area2", _i8),  # twice the area, to stay whole
        ("held_tokens", _i8),  # in KV of running requests when the step ends
        ("running", _i4),
        ("waiting", _i4),
        ("scheduled", _i4),
        ("sampled", _i4),
        ("prefill_tokens", _i4),
        ("decode_tokens", _i4),
        ("admitted", _i4),
        ("resumed", _i4),
        ("preempted", _i4),
        ("hit_tokens", _i4),
        ("free_blocks", _i4),
        ("cached_blocks", _i4),
        ("evicted_blocks", _i4),
        ("new_blocks", _i4),
        ("new_blocks_crc", _u4),  # only under audit
    ],
    align=True,
)

GAP = np.dtype([("request", _i8), ("step", _i8), ("previous_step", _i8), ("gap_ns", _i8)], align=True)

DECISION = np.dtype(
    [
        ("step", _i8),
        ("request", _i8),
        ("position", _i4),
        ("scheduled_tokens", _i4),
        ("computed_tokens", _i4),
        ("hit_tokens", _i4),
        ("event", _i1),
        ("is_prefill", _i1),
        ("samples", _i1),
    ],
    align=True,
)

COST = np.dtype(
    [
        # nanoseconds per unit, as in hardware/step_time.py
        *((name, _f8) for name in ("c0", "c1", "L0", "L1", "D0", "D1", "D2", "D3", "D4")),
        *((name, _f8) for name in ("P0", "P1", "P2", "P3", "P4", "P5", "mu")),
        # whole nanoseconds of the recorded cases: a + b * tokens + c * contexts
        ("a_ns", _i8),
        ("b_ns", _i8),
        ("c_ns", _i8),
    ],
    align=True,
)

ENGINE = np.dtype(
    [
        (name, _i8)
        for name in (
            # settings
            "block_size",
            "max_model_len",
            "max_num_batched_tokens",
            "max_active",
            "chunked_prefill",
            "prefix_caching",
            "by_priority",
            "threshold",
            "adaptive_threshold",
            "reserve_full_sequence",
            "watermark_blocks",
            "prefill_interval",
            "depth",  # steps in flight: 1 synchronous, 2 asynchronous
            "timeout_ns",  # NONE: clients wait for ever
            "queue_limit",  # NONE: no limit
            "max_steps",  # NONE: no limit
            "shortcut",  # use the fast plan where it is exact
            "audit",  # checksum of the blocks handed out
            "feedback",  # ends release other requests: note them, and come back
            "window_mask",
            "hash_mask",
            "length_mask",
            "index_mask",
            "calendar_mask",
            "idle_mask",
            # clock
            "now_ns",
            "gpu_free_ns",
            "steps",  # steps logged so far
            "in_flight",
            "collect_due",  # the oldest step in flight is to be collected next
            "horizon_ns",  # every arrival before this moment is known
            "stepwise",  # decide once at the horizon, then come back
            "wake_ns",  # nothing to do before this moment, where it is later than now_ns
            "ended",  # list of ends not answered yet
            # trace window
            "first_row",
            "routed",  # requests sent to this replica
            "arrived",  # of those, how many the scheduler has seen
            "deadline",  # number of the first arrival whose deadline may be ahead
            # requests
            "unfinished",
            "waiting",
            "queue_head",
            "queue_tail",
            "heap_size",
            "running",
            "running_head",
            "running_tail",
            "idle_slot",
            "seats",
            "prefilling",
            "prefill_head",
            "prefill_tail",
            # decoding requests, kept without touching them
            "ticks",
            "phase",  # ticks modulo block_size
            "decoding",
            "origin_sum",
            "held_tokens",  # in KV of running requests (vLLM: of those that do not decode)
            "fresh",
            # KV blocks
            "idle_head",
            "idle_tail",
            "most_blocks",  # KV blocks that can be handed out in all
            "free_blocks",
            "cached_blocks",
            "unused_run",
            # the head of the queue that did not fit, and what it would hit
            "watch",  # number of the watch
            "watched_row",
            "watch_hits",
            "watch_place",  # of the first block it missed, in the run that watch_key names
            "watch_idle",
            "watch_stale",
            # prefill cadence
            "busy_steps",
            "last_prefill_step",
            "bound",
            # the decision being taken
            "budget",
            "step_threshold",
            "held",
            "carried_prefill",
            "steps_used",  # rows of the output buffers filled
            "gaps_used",
            "decisions_used",
            "gap_mark",
            "promotions",
            "stalled",
        )
    ]
    + [("watch_key", _u8), ("chunk_ns", _f8)],
    align=True,
)


FLEET = np.dtype(
    [
        (name, _i8)
        for name in (
            "window_mask",
            "next_row",  # next to be routed
            "loaded_rows",
            "horizon_ns",  # every arrival before this moment is loaded
            "closed",  # each end sends the next row
            "owed",  # so many rows are to be sent now
            "on_the_way",  # rows in the heap of those sent and not arrived yet
            "now_ns",  # when the last request ended
            "stopped",  # replica whose kernel asked for something
        )
    ],
    align=True,
)


def records(dtype: np.dtype, *shape: int) -> Any:
    """Return zeroed records that also answer to attribute names in plain Python."""
    return np.zeros(shape, dtype).view(np.recarray)
