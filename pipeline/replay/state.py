"""The engine's arrays: allocated here, filled from the trace, changed only by the kernel.

The trace goes through a window that grows when an unfinished request keeps it from moving on, so memory
follows the requests alive, not the length of the trace.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.kernel import block_pool, clients, fleet, layout
from pipeline.kernel.layout import NONE


@dataclass(frozen=True, slots=True)
class Settings:
    """What the kernel needs to know of engine and clients, every default resolved."""

    block_size: int  # tokens per KV block
    num_gpu_blocks: int  # KV blocks, the null block included
    max_model_len: int  # tokens
    max_num_batched_tokens: int  # most tokens in one step
    max_num_seqs: int
    max_num_active_seqs: int | None = None
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    prefill_schedule_interval: int = 1
    async_scheduling: bool = True
    timeout_ns: int | None = None
    queue_limit: int | None = None
    concurrency: int | None = None  # closed loop: requests in flight in the whole fleet
    sessions: bool = False  # rows that follow another one wait for its end; not with concurrency
    max_steps: int | None = None
    shortcut: bool = True  # plan without visiting every request where that is exact
    decisions: bool = False  # one row per step and request; every request is then visited
    audit: bool = False  # checksums of the blocks handed out


@dataclass(frozen=True, slots=True)
class StepCost:
    """Step time of a batch: terms in nanoseconds by the names of kernel.layout.COST, and the table G.

    g_ns : float64[2, tokens + 1] for mixed and decode-only steps
    """

    terms: dict[str, float]
    g_ns: np.ndarray

    @classmethod
    def whole(cls, a_ns: int, b_ns: int, c_ns: int, most_tokens: int) -> "StepCost":
        """Return the linear integer cost of the recorded cases."""
        return cls({"a_ns": a_ns, "b_ns": b_ns, "c_ns": c_ns}, np.zeros((2, most_tokens + 1)))


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """Consecutive trace rows as arrays of one length, ordered by arrival.

    end_outcome : layout.FINISHED or CANCELLED, or NOT_REPLAYED for rows that never reach the engine
    replica     : replica chosen beforehand, NONE for the one with the fewest requests in flight
    after       : row that it follows in a session, NONE: arrives by itself
    think_ns    : from the end of that one to its arrival
    hashes      : uint64, those of row i are hashes[hash_offsets[i]:hash_offsets[i + 1]]
    """

    arrival_ns: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    end_outcome: np.ndarray
    priority: np.ndarray
    prefix_tokens: np.ndarray
    prefix_block_tokens: np.ndarray
    hashes: np.ndarray
    hash_offsets: np.ndarray
    after: np.ndarray | int = NONE
    think_ns: np.ndarray | int = 0
    replica: np.ndarray | int = NONE

    def __len__(self) -> int:
        return len(self.arrival_ns)


@dataclass(slots=True)
class State:
    """Replicas of one engine: settings in, arrays inside; the first axis of an array is the replica.

    `requests` and `hashes` are the window of the trace, which all share.
    """

    settings: Settings
    cost: StepCost
    replicas: int = 1
    step_rows: int = 16_384  # two megabytes, which stay in the cache until they are taken out
    gap_rows: int = 65_536
    decision_rows: int = 1 << 20
    window: int = 1 << 10
    hash_end: int = field(init=False, default=0)
    requests: Any = field(init=False)
    hashes: Any = field(init=False)
    arrivals: Any = field(init=False)
    heap: Any = field(init=False)
    released: Any = field(init=False)
    slots: Any = field(init=False)
    tables: Any = field(init=False)
    cached: Any = field(init=False)
    runs: Any = field(init=False)
    index: Any = field(init=False)
    idle: Any = field(init=False)
    phases: Any = field(init=False)
    calendar: Any = field(init=False)
    flights: Any = field(init=False)
    promoted: Any = field(init=False)
    steps: Any = field(init=False)
    gaps: Any = field(init=False)
    decisions: Any = field(init=False)
    costs: Any = field(init=False)
    engines: Any = field(init=False)
    fleets: Any = field(init=False)

    def __post_init__(self) -> None:
        s, n = self.settings, self.replicas
        active = s.max_num_active_seqs or s.max_num_seqs
        block_columns = min(-(-s.max_model_len // s.block_size), s.num_gpu_blocks)
        self.window = _power_of_two(self.window)
        self.requests = layout.records(layout.REQUEST, self.window)
        self.hashes = np.zeros(self.window, np.uint64)
        self.arrivals = np.zeros((n, self.window), np.int64)
        self.heap = np.zeros((n, self.window), np.int64)
        self.released = np.zeros(self.window, np.int64)
        self.slots = layout.records(layout.SLOT, n, active)
        self.slots.later[:] = np.append(np.arange(1, active), NONE)
        # Rows that begin a power of two apart would all fall into the same few sets of the cache.
        self.tables = np.zeros((n, active + 1, block_columns + 16 * 17), np.int32)
        # Each run holds a block at least. Memory that is never used is never taken from the system.
        self.cached = layout.records(layout.CACHED, n, s.num_gpu_blocks * layout.RUN_BLOCKS)
        self.runs = layout.records(layout.RUN, n, s.num_gpu_blocks)
        self.runs.later[:] = np.append(np.arange(1, s.num_gpu_blocks), NONE)
        self.idle = np.zeros((n, _power_of_two(2 * s.num_gpu_blocks)), np.int32)
        for replica in range(n):
            block_pool.fill(self.idle[replica], s.num_gpu_blocks)
        self.index = np.full((n, _power_of_two(2 * s.num_gpu_blocks)), NONE, np.int32)
        self.phases = layout.records(layout.GROUP, n, s.block_size)
        self.phases.head[:] = NONE
        self.phases.tail[:] = NONE
        self.calendar = np.full((n, _power_of_two(s.max_model_len + 2)), NONE, np.int32)
        self.flights = layout.records(layout.FLIGHT, n, 2)
        self.flights.collect[:] = NONE
        self.promoted = np.zeros((n, active), np.int32)
        self.steps = layout.records(layout.STEP, n, self.step_rows)
        self.gaps = layout.records(layout.GAP, n, max(self.gap_rows, 2 * active))
        decision_rows = max(self.decision_rows, 4 * active) if s.decisions else 0
        self.decisions = layout.records(layout.DECISION, n, decision_rows)
        self.costs = layout.records(layout.COST, 1)
        for name, value in {"mu": 1.0, **self.cost.terms}.items():
            self.costs[name] = value
        self.engines = layout.records(layout.ENGINE, n)
        self._set_up_engines(active)
        self.fleets = layout.records(layout.FLEET, 1)
        self.fleet.window_mask = self.window - 1
        self.fleet.closed = s.concurrency is not None
        self.fleet.owed = s.concurrency or 0

    def _set_up_engines(self, active: int) -> None:
        s, e = self.settings, self.engines
        for name in ("block_size", "max_model_len", "max_num_batched_tokens"):
            e[name] = getattr(s, name)
        e.max_active = active
        e.chunked_prefill = s.enable_chunked_prefill
        e.prefix_caching = s.enable_prefix_caching
        e.by_priority = s.scheduling_policy == "priority"
        e.threshold = s.long_prefill_token_threshold
        e.adaptive_threshold = s.long_prefill_token_threshold_adaptive
        e.reserve_full_sequence = s.scheduler_reserve_full_isl
        e.watermark_blocks = int(s.watermark * s.num_gpu_blocks)
        e.prefill_interval = s.prefill_schedule_interval
        e.last_prefill_step = -s.prefill_schedule_interval
        e.depth = 2 if s.async_scheduling else 1
        e.timeout_ns = NONE if s.timeout_ns is None else s.timeout_ns
        e.queue_limit = NONE if s.queue_limit is None else s.queue_limit
        e.max_steps = NONE if s.max_steps is None else s.max_steps
        e.shortcut = s.shortcut and not s.decisions
        e.audit = s.audit
        e.feedback = self.feedback
        e.ended = NONE
        e.window_mask = self.window - 1
        e.hash_mask = len(self.hashes) - 1
        e.index_mask = self.index.shape[1] - 1
        e.calendar_mask = self.calendar.shape[1] - 1
        e.idle_mask = self.idle.shape[1] - 1
        e.idle_tail = s.num_gpu_blocks - 1
        e.free_blocks = s.num_gpu_blocks - 1
        e.watched_row = NONE
        e.watch = 1
        for name in ("queue_head", "queue_tail", "running_head", "running_tail", "prefill_head", "prefill_tail"):
            e[name] = NONE

    @property
    def fleet(self) -> Any:
        """The record of what the replicas share."""
        return self.fleets[0]

    @property
    def stalled(self) -> bool:
        """Whether a replica came to its end with requests that it can never run."""
        return bool(self.engines.stalled.any())

    @property
    def done_rows(self) -> int:
        """Rows of the trace that have left the window."""
        return int(self.engines[0].first_row)

    @property
    def feedback(self) -> bool:
        """Whether arrivals depend on ends."""
        return self.settings.sessions or self.settings.concurrency is not None

    def run(self) -> int:
        """Let the kernel go on; return its reason to stop (layout.TRACE_DONE and following)."""
        arrays = (
            self.requests,
            self.hashes,
            self.arrivals,
            self.heap,
            self.slots,
            self.tables,
            self.cached,
            self.runs,
            self.index,
            self.idle,
            self.phases,
            self.calendar,
            self.flights,
            self.promoted,
            self.steps,
            self.gaps,
            self.decisions,
            self.cost.g_ns,
            self.costs[0],
            self.engines,
            self.fleets[0],
        )
        return clients.advance(*arrays, self.released) if self.feedback else fleet.advance(*arrays)

    def drain(self, table: str, replica: int) -> np.ndarray:
        """Take the rows that a replica has written to `steps`, `gaps` or `decisions` and return a copy."""
        used = int(self.engines[f"{table}_used"][replica])
        self.engines[f"{table}_used"][replica] = 0
        return _take(getattr(self, table)[replica], 0, used)

    def load(self, batch: TraceBatch) -> None:
        """Append trace rows to the window, which grows if it must; the engines may go on to the last arrival."""
        f, n = self.fleet, len(batch)
        first, last = int(f.loaded_rows), int(f.loaded_rows) + n
        self._make_room(last - self.done_rows, len(batch.hashes))
        rows = layout.records(layout.REQUEST, n)
        rows.arrival_ns = batch.arrival_ns
        rows.prefix_start = self.hash_end + batch.hash_offsets[:-1]
        rows.prefix_tokens = batch.prefix_tokens
        rows.prefix_block_tokens = np.maximum(batch.prefix_block_tokens, 1)
        rows.input_tokens = batch.input_tokens
        rows.known_tokens = batch.input_tokens
        whole = batch.input_tokens.astype(np.int64) + batch.output_tokens
        rows.target_tokens = np.minimum(whole, self.settings.max_model_len)
        rows.priority = batch.priority
        rows.after = batch.after
        rows.think_ns = batch.think_ns
        rows.first_follower = NONE
        rows.next_follower = NONE
        rows.replica = 0 if self.replicas == 1 else batch.replica
        rows.end_outcome = np.where(whole > self.settings.max_model_len, layout.MAX_MODEL_LEN, batch.end_outcome)
        for name in ("cached_tokens", "first_scheduled_ns", "first_token_ns", "finish_ns", "first_token_step"):
            rows[name] = NONE
        rows.finish_step = NONE
        rows.gap_step = NONE
        out = batch.end_outcome == layout.NOT_REPLAYED
        rows.life[out] = layout.DONE
        rows.outcome[out] = layout.NOT_REPLAYED
        _put(self.requests, first, rows)
        _put(self.hashes, self.hash_end, batch.hashes)
        self.hash_end += len(batch.hashes)
        f.loaded_rows = last
        if self.settings.sessions:
            clients.link(self.requests, first, last, self.window - 1)
        if n:
            f.horizon_ns = batch.arrival_ns[-1]

    def complete(self) -> None:
        """State that the whole trace is loaded."""
        self.fleet.horizon_ns = layout.FOREVER

    def _make_room(self, rows: int, new_hashes: int) -> None:
        f, e = self.fleet, self.engines
        if rows > self.window:
            old, alive = self.window, np.arange(self.done_rows, int(f.loaded_rows))
            self.window = _power_of_two(rows)
            kept = self.requests[alive & (old - 1)]
            self.requests = layout.records(layout.REQUEST, self.window)
            self.requests[alive & (self.window - 1)] = kept
            self.released = np.pad(self.released, (0, self.window - old))
            self.heap = np.pad(self.heap, ((0, 0), (0, self.window - old)))
            arrivals = self.arrivals
            self.arrivals = np.zeros((self.replicas, self.window), np.int64)
            for replica in range(self.replicas):
                numbers = np.arange(max(0, int(e.routed[replica]) - old), int(e.routed[replica]))
                self.arrivals[replica, numbers & (self.window - 1)] = arrivals[replica, numbers & (old - 1)]
            e.window_mask = self.window - 1
            f.window_mask = self.window - 1
        first_hash = self.hash_end
        if f.loaded_rows > self.done_rows:
            first_hash = int(self.requests[self.done_rows & (self.window - 1)].prefix_start)
        if self.hash_end - first_hash + new_hashes > len(self.hashes):
            old_hashes, alive = self.hashes, np.arange(first_hash, self.hash_end)
            self.hashes = np.zeros(_power_of_two(len(alive) + new_hashes), np.uint64)
            self.hashes[alive & (len(self.hashes) - 1)] = old_hashes[alive & (len(old_hashes) - 1)]
            e.hash_mask = len(self.hashes) - 1

    def take_done(self, everything: bool = False) -> np.ndarray:
        """Take the leading rows that are done (or all loaded ones) out of the window and return a copy."""
        first, last = self.done_rows, int(self.fleet.loaded_rows if everything else self.fleet.next_row)
        if not everything:
            open_rows = self._open_rows(first, last)
            last = open_rows[0] if len(open_rows) else last
        self.engines.first_row[:] = last
        return _take(self.requests, first, last)

    def _open_rows(self, first: int, last: int) -> np.ndarray:
        rows = np.arange(first, last)
        return rows[self.requests.life[rows & (self.window - 1)] != layout.DONE]

    def settle(self) -> None:
        """After the last step: state what the requests that never finished have got.

        Where the run was cut short, tokens of steps still in flight have reached nobody.
        """
        mask, r = self.window - 1, self.requests
        ends: dict[int, int] = {}  # row -> step in flight that sampled its last token
        for replica, e in enumerate(self.engines):
            for step in range(int(e.steps - e.in_flight), int(e.steps)):
                row = int(self.flights[replica, step & 1].collect)
                while row != NONE:
                    ends[row] = step
                    row = int(r[row & mask].collect_next)
        for row in self._open_rows(self.done_rows, int(self.fleet.loaded_rows)).tolist():
            request = r[row & mask]
            if request.life == layout.RUNNING:
                slot = self.slots[request.replica, request.slot]
                _settle_running(request, slot, self.engines[request.replica], ends.get(row, NONE))
            else:
                request.known_tokens -= request.ending
                request.finish_step = request.gap_step
            if request.known_tokens <= request.input_tokens:
                request.first_token_step = request.first_token_ns = request.finish_step = NONE
            request.outcome = layout.NEVER_FINISHED
            request.life = layout.DONE


def _settle_running(request: Any, slot: Any, e: Any, end: int) -> None:
    """Count the delivered tokens of a running request; finish_step becomes the step of the last of them."""
    landed = int(e.steps - e.in_flight)
    newest = end if slot.gap_step == NONE else int(slot.gap_step)  # newest step that sampled for it
    if slot.state == layout.DECODE:
        computed = int(slot.origin) + int(e.ticks)
        request.computed_tokens += computed - int(slot.entry_tokens)
        request.known_tokens = computed + 1
        newest = int(e.steps) - 1 if slot.gap_step == NONE else newest
    if newest >= landed:
        since = max(int(request.first_token_step), int(slot.gap_after), landed)
        request.known_tokens -= newest - since + 1
        newest = int(slot.gap_before) if since == int(slot.gap_after) else since - 1
    request.finish_step = newest


def _raw(rows: Any) -> np.ndarray:
    """Return the bytes of each row: records would be copied field by field."""
    return rows.view(np.ndarray).view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def _put(ring: Any, first: int, rows: Any) -> None:
    """Copy rows into a ring whose length is a power of two, from entry number `first` on."""
    place = first & (len(ring) - 1)
    straight = min(len(rows), len(ring) - place)
    _raw(ring)[place : place + straight] = _raw(rows)[:straight]
    _raw(ring)[: len(rows) - straight] = _raw(rows)[straight:]


def _take(ring: Any, first: int, last: int) -> np.ndarray:
    """Return a copy of the entries number `first` to `last` of a ring."""
    place, count = first & (len(ring) - 1), last - first
    straight = min(count, len(ring) - place)
    rows = np.empty(count, ring.dtype)
    _raw(rows)[:straight] = _raw(ring)[place : place + straight]
    _raw(rows)[straight:] = _raw(ring)[: count - straight]
    return rows


def _power_of_two(n: int) -> int:
    return 1 << max(int(n) - 1, 1).bit_length()
