"""The engine's arrays: allocated here, filled from the trace, changed only by the kernel.

The trace goes through a window that grows when an unfinished request keeps it from moving on, so memory
follows the requests alive, not the length of the trace.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.kernel import clients, fleet, layout
from pipeline.kernel.layout import NONE
from pipeline.replay.policies.base import PolicySettings
from pipeline.replay.ring import Ring, power_of_two, put, take


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
    max_tokens  : most tokens of the answer, as the request states it, NONE where it does not
    tenant      : number of its tenant
    ignore_eos  : whether it states that only max_tokens ends it
    hashes      : uint64, those of row i are hashes[hash_offsets[i]:hash_offsets[i + 1]]
    lengths     : int32, tokens of each sample, as hashes with length_offsets; None: one sample of output_tokens
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
    max_tokens: np.ndarray | int = NONE
    tenant: np.ndarray | int = 0
    ignore_eos: np.ndarray | int = 0
    lengths: np.ndarray | None = None
    length_offsets: np.ndarray | None = None
    replica: np.ndarray | int = NONE

    def __len__(self) -> int:
        return len(self.arrival_ns)


@dataclass(slots=True)
class State:
    """Replicas of one engine: settings in, arrays inside; the first axis of an array is the replica.

    `requests`, `hashes` and `lengths` are the window of the trace, which all share; `parts` are the policy's.
    """

    settings: PolicySettings
    cost: StepCost
    replicas: int = 1
    step_rows: int = 16_384  # two megabytes, which stay in the cache until they are taken out
    gap_rows: int = 65_536
    decision_rows: int = 1 << 20
    window: int = 1 << 10
    hashes: Ring = field(init=False)
    lengths: Ring = field(init=False)
    requests: Any = field(init=False)
    arrivals: Any = field(init=False)
    heap: Any = field(init=False)
    released: Any = field(init=False)
    flights: Any = field(init=False)
    steps: Any = field(init=False)
    gaps: Any = field(init=False)
    decisions: Any = field(init=False)
    costs: Any = field(init=False)
    engines: Any = field(init=False)
    parts: Any = field(init=False)
    fleets: Any = field(init=False)

    def __post_init__(self) -> None:
        s, n = self.settings, self.replicas
        self.window = power_of_two(self.window)
        self.requests = layout.records(layout.REQUEST, self.window)
        self.hashes = Ring(np.uint64, self.window)
        self.lengths = Ring(np.int32, self.window)
        self.arrivals = np.zeros((n, self.window), np.int64)
        self.heap = np.zeros((n, self.window), np.int64)
        self.released = np.zeros(self.window, np.int64)
        self.flights = layout.records(layout.FLIGHT, n, 2)
        self.flights.collect[:] = NONE
        self.steps = layout.records(layout.STEP, n, self.step_rows)
        self.gaps = layout.records(layout.GAP, n, max(self.gap_rows, 2 * s.most_running))
        decision_rows = max(self.decision_rows, 4 * s.most_running) if s.decisions else 0
        self.decisions = layout.records(layout.DECISION, n, decision_rows)
        self.costs = layout.records(layout.COST, 1)
        for name, value in {"mu": 1.0, **self.cost.terms}.items():
            self.costs[name] = value
        self.engines = layout.records(layout.ENGINE, n)
        self._set_up_engines()
        self.parts = s.parts(self.engines, self.step_rows)
        self.fleets = layout.records(layout.FLEET, 1)
        self.fleet.window_mask = self.window - 1
        self.fleet.closed = s.concurrency is not None
        self.fleet.owed = s.concurrency or 0

    def _set_up_engines(self) -> None:
        s, e = self.settings, self.engines
        e.max_model_len = s.max_model_len
        e.max_active = s.most_running
        e.depth = 1
        e.timeout_ns = NONE if s.timeout_ns is None else s.timeout_ns
        e.queue_limit = NONE if s.queue_limit is None else s.queue_limit
        e.max_steps = NONE if s.max_steps is None else s.max_steps
        e.feedback = self.feedback
        e.ended = NONE
        e.window_mask = self.window - 1
        e.hash_mask = self.hashes.mask
        e.length_mask = self.lengths.mask
        for name in ("queue_head", "queue_tail", "running_head", "running_tail"):
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
            self.hashes.array,
            self.lengths.array,
            self.arrivals,
            self.heap,
            self.flights,
            self.steps,
            self.gaps,
            self.decisions,
            self.cost.g_ns,
            self.costs[0],
            self.engines,
            self.parts,
            self.fleets[0],
        )
        return clients.advance(*arrays, self.released) if self.feedback else fleet.advance(*arrays)

    def drain(self, table: str, replica: int) -> np.ndarray:
        """Take the rows that a replica has written to `steps`, `gaps` or `decisions` and return a copy."""
        used = int(self.engines[f"{table}_used"][replica])
        self.engines[f"{table}_used"][replica] = 0
        return take(getattr(self, table)[replica], 0, used)

    def own_columns(self, replica: int) -> np.ndarray:
        """Return a copy of what the policy notes beside each row of `steps`; call it before those are drained."""
        return take(self.parts.own_columns[replica], 0, int(self.engines.steps_used[replica]))

    def load(self, batch: TraceBatch) -> None:
        """Append trace rows to the window, which grows if it must; the engines may go on to the last arrival."""
        f, n = self.fleet, len(batch)
        first, last = int(f.loaded_rows), int(f.loaded_rows) + n
        self._make_room(last - self.done_rows)
        rows = layout.records(layout.REQUEST, n)
        rows.arrival_ns = batch.arrival_ns
        rows.prefix_start = self._append(self.hashes, "prefix_start", batch.hashes) + batch.hash_offsets[:-1]
        if batch.lengths is not None and batch.length_offsets is not None:
            rows.sample_start = self._append(self.lengths, "sample_start", batch.lengths) + batch.length_offsets[:-1]
            rows.samples = np.diff(batch.length_offsets)
            answer = np.maximum.reduceat(batch.lengths, batch.length_offsets[:-1]) if n else batch.output_tokens
        else:
            rows.sample_start = self._append(self.lengths, "sample_start", batch.output_tokens) + np.arange(n)
            rows.samples = 1
            answer = batch.output_tokens
        rows.prefix_tokens = batch.prefix_tokens
        rows.prefix_block_tokens = np.maximum(batch.prefix_block_tokens, 1)
        rows.input_tokens = batch.input_tokens
        rows.known_tokens = batch.input_tokens
        whole = batch.input_tokens.astype(np.int64) + answer
        rows.target_tokens = np.minimum(whole, self.settings.max_model_len)
        for name in ("priority", "max_tokens", "tenant", "ignore_eos"):
            rows[name] = getattr(batch, name)
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
        put(self.requests, first, rows)
        f.loaded_rows = last
        if self.settings.sessions:
            clients.link(self.requests, first, last, self.window - 1)
        if n:
            f.horizon_ns = batch.arrival_ns[-1]

    def complete(self) -> None:
        """State that the whole trace is loaded."""
        self.fleet.horizon_ns = layout.FOREVER

    def _make_room(self, rows: int) -> None:
        f, e = self.fleet, self.engines
        if rows <= self.window:
            return
        old, alive = self.window, np.arange(self.done_rows, int(f.loaded_rows))
        self.window = power_of_two(rows)
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

    def _append(self, ring: Ring, start: str, values: np.ndarray) -> int:
        """Append values of the rows being loaded and return their first number; `start` is the rows' column of it."""
        first = ring.end
        if self.fleet.loaded_rows > self.done_rows:
            first = int(self.requests[start][self.done_rows & (self.window - 1)])
        number = ring.append(values, first)
        self.engines.hash_mask, self.engines.length_mask = self.hashes.mask, self.lengths.mask
        return number

    def take_done(self, everything: bool = False) -> np.ndarray:
        """Take the leading rows that are done (or all loaded ones) out of the window and return a copy."""
        first, last = self.done_rows, int(self.fleet.loaded_rows if everything else self.fleet.next_row)
        if not everything:
            open_rows = self._open_rows(first, last)
            last = open_rows[0] if len(open_rows) else last
        self.engines.first_row[:] = last
        return take(self.requests, first, last)

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
                self.settings.settle_running(self.parts, request, self.engines[request.replica], ends.get(row, NONE))
            else:
                request.known_tokens -= request.ending
                request.finish_step = request.gap_step
            if request.known_tokens <= request.input_tokens:
                request.first_token_step = request.first_token_ns = request.finish_step = NONE
            request.outcome = layout.NEVER_FINISHED
            request.life = layout.DONE
