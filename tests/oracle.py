"""The vLLM 0.33 scheduler again, slow and obvious: the twin that the fast engine is compared with.

Lists, dicts, deques and a heap; every running request is touched in every step, as vLLM itself does.
`run` takes requests and settings and returns four tables (requests, steps, decisions, gaps) whose columns
are those of `pipeline/schema.py`, plus `new_blocks` and `new_blocks_crc` in the steps: how many block ids
the step took from the free queue, and the crc32 of those ids as little-endian int32.

Some rules are ours, not vLLM's. A client gives up `timeout_ns` after its request arrived, and the engine
notices at its next decision. A server with a `queue_limit` turns an arrival away when so many already wait.
With `concurrency` so many requests are under way: the first ones arrive at 0, another one whenever one ends. A
request that is `after` another one arrives `think_ns` after its end, but not before the engine noticed that end.
Who is sent by a decision comes after all who had arrived by then.
"""

import struct
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

NONE = -1
RUNNING, ADMITTED, RESUMED, PREEMPTED = 0, 1, 2, 3

Key = Hashable


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the engine sees it; its row number in the list is its id.

    `key(b)` names the content of its engine block b: equal keys, equal content up to and including that block.
    `cancel_after`: the client leaves once it has so many tokens.
    `after`: row of the request that this one waits for, with `think_ns` in between.
    """

    arrival_ns: int
    prompt_len: int
    max_tokens: int
    priority: int = 0
    key: Callable[[int], Key] | None = None
    cancel_after: int | None = None
    after: int | None = None
    think_ns: int = 0


@dataclass(frozen=True, slots=True)
class Engine:
    """Engine settings, under the names of a recorded case's config.json."""

    block_size: int
    num_gpu_blocks: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_active_seqs: int | None = None
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    prefill_schedule_interval: int = 1
    async_scheduling: bool = True
    max_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What the duration of a step may depend on."""

    tokens: int  # T: tokens scheduled
    context_tokens: int  # C: sum over scheduled requests of tokens in KV after the step
    decodes: int  # requests that decode, one token each
    decode_context_tokens: int  # the same sum over those alone
    chunks: tuple[tuple[int, int], ...]  # prefill chunks (c new tokens, p tokens in KV before), in order
    sampled: int  # requests that sample a token


@dataclass(slots=True)
class Result:
    """The four tables, each a dict of columns; NONE in an integer column means no value."""

    requests: dict[str, Any]
    steps: dict[str, Any]
    decisions: dict[str, Any]
    gaps: dict[str, Any]
    stalled: bool = False


REQUEST_COLUMNS = (
    "outcome",
    "arrival_ns",
    "first_scheduled_ns",
    "first_scheduled_step",
    "first_token_ns",
    "finish_ns",
    "first_token_step",
    "finish_step",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "resumed_cached_tokens",
    "computed_tokens",
    "preemptions",
)
STEP_COLUMNS = (
    "step",
    "scheduled_ns",
    "start_ns",
    "duration_ns",
    "running",
    "waiting",
    "scheduled",
    "sampled",
    "prefill_tokens",
    "decode_tokens",
    "context_tokens",
    "decode_context_tokens",
    "prefill_area",
    "held_tokens",
    "admitted",
    "resumed",
    "preempted",
    "hit_tokens",
    "free_blocks",
    "cached_blocks",
    "evicted_blocks",
    "new_blocks",
    "new_blocks_crc",
)
DECISION_COLUMNS = (
    "step",
    "position",
    "request",
    "event",
    "scheduled_tokens",
    "computed_tokens",
    "is_prefill",
    "samples",
    "hit_tokens",
)
GAP_COLUMNS = ("request", "step", "previous_step", "gap_ns")


def run(
    requests: Sequence[Request],
    engine: Engine,
    duration_ns: Callable[[Shape], int],
    timeout_ns: int | None = None,
    queue_limit: int | None = None,
    check: bool = False,
    concurrency: int | None = None,
) -> Result:
    """Replay all requests and return the result tables; with `check` assert the twin's own invariants at each step."""
    return _Run(requests, engine, duration_ns, timeout_ns, queue_limit, check, concurrency).loop()


def linear_duration(a_ns: int, b_ns: int, c_ns: int) -> Callable[[Shape], int]:
    """Return the step time of the recorded cases: a + b * tokens + c * context tokens."""
    return lambda shape: a_ns + b_ns * shape.tokens + c_ns * shape.context_tokens


def trace_key(
    request: int, block_size: int, prefix_hashes: Sequence[int], prefix_block_tokens: int, prefix_tokens: int
) -> Callable[[int], Key]:
    """Return the key function of a trace row, by the rule of trace/1.

    Engine block [s, e) is (hash of the trace block that holds token e-1, offset of e in that block) while
    e <= prefix_tokens; beyond that it is the request's own.
    """

    def key(block: int) -> Key:
        end = (block + 1) * block_size
        if end > prefix_tokens:
            return ("own", request, block)
        holder = (end - 1) // prefix_block_tokens
        return (int(prefix_hashes[holder]), end - holder * prefix_block_tokens)

    return key


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request inside the engine."""

    row: int
    request: Request
    tokens: int  # known tokens: prompt and those delivered
    computed: int = 0
    in_flight: int = 0  # tokens sampled by steps not collected yet
    blocks: list[int] = field(default_factory=list)
    registered: int = 0  # leading blocks that carry their hash
    mid_prefill: bool = False
    status: str = "unborn"  # unborn, waiting, preempted, running, gone
    outcome: str = "never_finished"
    first_scheduled_step: int = NONE
    first_scheduled_ns: int = NONE
    first_token_ns: int = NONE
    first_token_step: int = NONE
    last_token_ns: int = NONE
    last_token_step: int = NONE
    finish_ns: int = NONE
    cached: int = NONE
    resumed_cached: int = 0
    total_computed: int = 0
    preemptions: int = 0

    @property
    def known(self) -> int:
        """Tokens known or surely coming."""
        return self.tokens + self.in_flight

    @property
    def generated(self) -> int:
        return self.tokens - self.request.prompt_len

    @property
    def limit(self) -> int:
        """Most tokens it will generate, the context limit aside."""
        if self.request.cancel_after is None:
            return self.request.max_tokens
        return min(self.request.max_tokens, self.request.cancel_after)

    @property
    def order(self) -> tuple[int, int, int]:
        """Place in a priority queue."""
        return (self.request.priority, self.request.arrival_ns, self.row)


@dataclass(slots=True)
class _Served:
    """One request in one step."""

    seq: _Sequence
    tokens: int
    computed: int
    event: int
    is_prefill: bool
    samples: bool
    hit: int = 0


@dataclass(slots=True)
class _Step:
    """A step that was scheduled and not collected yet."""

    number: int
    end_ns: int
    served: list[_Served]


class _Pool:
    """KV blocks: references, the free queue, and which block holds which content."""

    def __init__(self, blocks: int, caching: bool) -> None:
        self.blocks = blocks
        self.caching = caching
        self.references = [0] * blocks
        self.free: OrderedDict[int, None] = OrderedDict((block, None) for block in range(1, blocks))
        self.key_of: dict[int, Key] = {}
        self.holders: dict[Key, dict[int, None]] = {}  # content -> its blocks, first registered first
        self.taken: list[int] = []  # ids handed out since the decision began
        self.evicted = 0

    def lookup(self, key: Key) -> int:
        """Return the block that holds this content, first registered first, or NONE."""
        holders = self.holders.get(key)
        return next(iter(holders)) if holders else NONE

    def touch(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.free.pop(block, None)
            self.references[block] += 1

    def take(self, count: int) -> list[int]:
        """Hand out the first blocks of the free queue; what they held is forgotten."""
        out = []
        for _ in range(count):
            block, _ = self.free.popitem(last=False)
            if block in self.key_of:
                self._forget(block)
                self.evicted += 1
            self.references[block] = 1
            out.append(block)
        self.taken += out
        return out

    def register(self, block: int, key: Key) -> None:
        self.key_of[block] = key
        self.holders.setdefault(key, {})[block] = None

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one reference of each, last block first; bare blocks go to the front of the queue, others back."""
        bare, keyed = [], []
        for block in reversed(blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                (keyed if block in self.key_of else bare).append(block)
        for block in keyed:
            self.free[block] = None
        for block in reversed(bare):
            self.free[block] = None
            self.free.move_to_end(block, last=False)

    def check(self, sequences: Sequence[_Sequence]) -> None:
        """Assert that every block but the null block is either free or referenced as often as it is used."""
        used = [0] * self.blocks
        for seq in sequences:
            for block in seq.blocks:
                used[block] += 1
        assert used == self.references, "references differ from the blocks that requests hold"
        assert all((block in self.free) == (used[block] == 0) for block in range(1, self.blocks))
        assert 0 not in self.free
        assert used[0] == 0, "the null block was handed out"
        held = {block: key for key, blocks in self.holders.items() for block in blocks}
        assert held == self.key_of, "the two directions of the prefix cache disagree"
        assert all(self.holders.values()), "a content without a block"

    def _forget(self, block: int) -> None:
        key = self.key_of.pop(block)
        del self.holders[key][block]
        if not self.holders[key]:
            del self.holders[key]


class _Fcfs:
    """Waiting requests in order of arrival; a preempted one goes to the front."""

    def __init__(self) -> None:
        self.queue: deque[_Sequence] = deque()

    def __len__(self) -> int:
        return len(self.queue)

    def add(self, seq: _Sequence) -> None:
        self.queue.append(seq)

    def put_back(self, seq: _Sequence) -> None:
        self.queue.appendleft(seq)

    def head(self) -> _Sequence:
        return self.queue[0]

    def pop(self) -> _Sequence:
        return self.queue.popleft()

    def remove(self, seq: _Sequence) -> None:
        self.queue.remove(seq)


class _Priority:
    """Waiting requests by priority, arrival and id, preempted ones as well."""

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[int, int, int], _Sequence]] = []

    def __len__(self) -> int:
        return len(self.heap)

    def add(self, seq: _Sequence) -> None:
        heappush(self.heap, (seq.order, seq))

    put_back = add

    def head(self) -> _Sequence:
        return self.heap[0][1]

    def pop(self) -> _Sequence:
        return heappop(self.heap)[1]

    def remove(self, seq: _Sequence) -> None:
        self.heap.remove((seq.order, seq))
        heapify(self.heap)


class _Run:
    """One replay."""

    def __init__(
        self,
        requests: Sequence[Request],
        engine: Engine,
        duration_ns: Callable[[Shape], int],
        timeout_ns: int | None,
        queue_limit: int | None,
        check: bool,
        concurrency: int | None,
    ) -> None:
        self.engine = engine
        self.duration_ns = duration_ns
        self.timeout_ns = timeout_ns
        self.queue_limit = queue_limit
        self.checking = check
        self.sequences = [_Sequence(row, request, request.prompt_len) for row, request in enumerate(requests)]
        self.concurrency = concurrency
        self.held = deque(seq for seq in self.sequences if concurrency is not None or seq.request.after is not None)
        self.coming = deque(seq for seq in self.sequences if seq not in self.held)
        self.coming = deque(sorted(self.coming, key=lambda seq: (seq.request.arrival_ns, seq.row)))
        self.ended: list[_Sequence] = []  # gone, and nobody has arrived for it yet
        for _ in range(min(concurrency or 0, len(self.held))):
            self.send(self.held.popleft(), 0)
        self.waiting: _Fcfs | _Priority = _Priority() if engine.policy == "priority" else _Fcfs()
        self.running: list[_Sequence] = []
        self.unfinished: dict[int, _Sequence] = {}  # handed over and not gone, in order of arrival
        self.pool = _Pool(engine.num_gpu_blocks, engine.enable_prefix_caching)
        self.clock = 0
        self.gpu_free = 0
        self.flying: deque[_Step] = deque()
        self.busy_steps = 0  # steps with tokens so far
        self.last_prefill = -engine.prefill_schedule_interval
        self.bound = False
        self.stalled = False
        self.steps: list[tuple] = []
        self.decisions: list[tuple] = []
        self.gaps: list[tuple] = []

    # The loop and the clock

    def loop(self) -> Result:
        while True:
            self.hand_over()
            if not self.unfinished:
                if self.flying:  # every request of the step was taken out by its client
                    self.collect()
                elif not self.jump():
                    break
                continue
            step = self.schedule()
            if step is None:
                if self.flying:
                    self.collect()
                elif not self.jump():
                    self.stalled = True
                    break
                continue
            self.flying.append(step)
            if self.engine.max_steps is not None and len(self.steps) >= self.engine.max_steps:
                break
            if not (self.engine.async_scheduling and len(self.flying) < 2):
                self.collect()
        return self.result()

    def jump(self) -> bool:
        """Move the clock to the next arrival or deadline; false where there is none."""
        moments = [self.coming[0].request.arrival_ns] if self.coming else []
        if self.timeout_ns is not None:
            moments += [seq.request.arrival_ns + self.timeout_ns for seq in self.unfinished.values()]
        if moments:
            self.clock = min(moments)
        return bool(moments)

    def hand_over(self) -> None:
        """Take out whose client gave up, then bring in what has arrived."""
        self.release()
        for seq in list(self.unfinished.values()):
            if self.is_late(seq):
                self.give_up(seq)
        self.take_arrived()
        while self.ended:  # somebody gave up or was turned away in this very decision
            self.release()
            self.take_arrived()

    def take_arrived(self) -> None:
        while self.coming and self.coming[0].request.arrival_ns <= self.clock:
            seq = self.coming.popleft()
            if seq.request.prompt_len >= self.engine.max_model_len:
                self.turn_away(seq, "rejected", NONE)
            elif self.queue_limit is not None and len(self.waiting) >= self.queue_limit:
                self.turn_away(seq, "queue_full", seq.request.arrival_ns)
            elif self.is_late(seq):
                self.turn_away(seq, "timed_out", seq.request.arrival_ns + self.timeout_ns)
            else:
                seq.status = "waiting"
                self.waiting.add(seq)
                self.unfinished[seq.row] = seq

    def release(self) -> None:
        """Send those who waited for an end that has been noticed."""
        ended, self.ended = self.ended, []
        for former in ended:
            if self.concurrency is not None:
                chosen = [(seq, self.clock) for seq in list(self.held)[:1]]
            else:
                end_ns = self.clock if former.finish_ns == NONE else former.finish_ns
                chosen = [
                    (seq, max(end_ns + seq.request.think_ns, self.clock))
                    for seq in self.held
                    if seq.request.after == former.row
                ]
            for seq, arrival_ns in chosen:
                self.held.remove(seq)
                self.send(seq, arrival_ns)

    def send(self, seq: _Sequence, arrival_ns: int) -> None:
        seq.request = replace(seq.request, arrival_ns=arrival_ns)
        self.coming = deque(sorted([*self.coming, seq], key=lambda seq: (seq.request.arrival_ns, seq.row)))

    def is_late(self, seq: _Sequence) -> bool:
        return self.timeout_ns is not None and seq.request.arrival_ns + self.timeout_ns <= self.clock

    def give_up(self, seq: _Sequence) -> None:
        (self.running if seq.status == "running" else self.waiting).remove(seq)
        self.leave(seq, "timed_out", seq.request.arrival_ns + self.timeout_ns)

    def turn_away(self, seq: _Sequence, outcome: str, when_ns: int) -> None:
        seq.status, seq.outcome, seq.finish_ns = "gone", outcome, when_ns
        self.ended.append(seq)

    def leave(self, seq: _Sequence, outcome: str, when_ns: int) -> None:
        """Release what it held; the caller has taken it out of its queue."""
        self.pool.release(seq.blocks)
        seq.blocks = []
        seq.in_flight = 0
        seq.status, seq.outcome, seq.finish_ns = "gone", outcome, when_ns
        del self.unfinished[seq.row]
        self.ended.append(seq)

    # One decision

    def schedule(self) -> _Step | None:
        """Decide one step and log it; None where it would do nothing at all."""
        self.pool.taken, self.pool.evicted = [], 0
        self.budget = self.engine.max_num_batched_tokens
        self.served: dict[int, _Served] = {}
        self.victims: list[tuple[_Sequence, int]] = []
        self.threshold = self.threshold_now()
        self.carries_prefill = False
        held = self.prefills_held()
        self.serve_running(held)
        if not self.victims:
            self.admit_waiting(held)
            if not held:
                self.bound = len(self.waiting) > 0
        if not self.served and not self.victims:
            return None
        return self.launch()

    def threshold_now(self) -> int:
        """Most tokens one request may get in this step; 0 is no limit."""
        present = len(self.running) + len(self.waiting)
        threshold = self.engine.long_prefill_token_threshold
        if threshold == 0 or present <= 1:
            return 0
        if self.engine.long_prefill_token_threshold_adaptive:
            return max(threshold, self.engine.max_num_batched_tokens // present)
        return threshold

    def cut(self, tokens: int) -> int:
        return min(tokens, self.threshold) if self.threshold > 0 else tokens

    def prefills_held(self) -> bool:
        recently = self.busy_steps + 1 - self.last_prefill < self.engine.prefill_schedule_interval
        return recently and not self.bound and any(not seq.mid_prefill for seq in self.running)

    def serve_running(self, held: bool) -> None:
        at = 0
        while at < len(self.running) and self.budget > 0:
            seq = self.running[at]
            tokens = self.running_tokens(seq, held)
            if tokens == 0:
                at += 1
                continue
            needed = _blocks_for(seq.computed + tokens, self.engine.block_size) - len(seq.blocks)
            fits = True
            while needed > len(self.pool.free):
                victim = self.pick_victim()
                place = self.running.index(victim)
                self.preempt(victim)
                if victim is seq:
                    fits = False
                    break
                if place < at:
                    at -= 1
            if not fits:
                continue  # fcfs: it was the last one, so this ends the loop
            self.carries_prefill = self.carries_prefill or seq.mid_prefill
            self.serve(seq, tokens, max(needed, 0), RUNNING)
            at += 1

    def running_tokens(self, seq: _Sequence, held: bool) -> int:
        """Tokens to give to a running request before memory is asked; 0 passes it over."""
        if seq.in_flight > 0 and seq.generated + seq.in_flight >= seq.limit:
            return 0  # its last token is on the way
        if held and seq.mid_prefill:
            return 0
        room = self.engine.max_model_len - seq.computed - 1
        return min(self.cut(seq.known - seq.computed), self.budget, room)

    def pick_victim(self) -> _Sequence:
        if self.engine.policy == "priority":
            return max(self.running, key=lambda seq: (seq.request.priority, seq.request.arrival_ns))
        return self.running[-1]

    def preempt(self, seq: _Sequence) -> None:
        """Take everything from a running request, what it got in this step included, and let it wait again."""
        self.running.remove(seq)
        undone = self.served.pop(seq.row, None)
        if undone is not None:
            self.budget += undone.tokens
        self.victims.append((seq, seq.computed))
        self.pool.release(seq.blocks)
        seq.blocks = []
        seq.registered = 0
        seq.computed = 0
        seq.mid_prefill = False
        seq.preemptions += 1
        seq.status = "preempted"
        self.waiting.put_back(seq)

    def admit_waiting(self, held: bool) -> None:
        engine = self.engine
        most = engine.max_num_seqs if engine.max_num_active_seqs is None else engine.max_num_active_seqs
        while len(self.waiting) > 0 and self.budget > 0 and len(self.running) < most:
            seq = self.waiting.head()
            hits = self.find_hits(seq)
            hit_tokens = len(hits) * engine.block_size
            left = seq.known - hit_tokens
            tokens = self.cut(left)
            if held and left > 1:
                break
            if not engine.enable_chunked_prefill and tokens > self.budget:
                break
            tokens = min(tokens, self.budget)
            if not self.fits(seq, hits, hit_tokens + tokens):
                break
            self.waiting.pop()
            self.running.append(seq)
            self.carries_prefill = self.carries_prefill or left > 1
            event = RESUMED if seq.status == "preempted" else ADMITTED
            self.start(seq, hits, event)
            new = _blocks_for(hit_tokens + tokens, engine.block_size) - len(hits)
            self.serve(seq, tokens, new, event, hit_tokens)

    def find_hits(self, seq: _Sequence) -> list[int]:
        """Return the cached blocks that its known tokens begin with; one token at least stays to be computed."""
        hits: list[int] = []
        if not self.engine.enable_prefix_caching:
            return hits
        for block in range((seq.known - 1) // self.engine.block_size):
            found = self.pool.lookup(seq.request.key(block))
            if found == NONE:
                break
            hits.append(found)
        return hits

    def fits(self, seq: _Sequence, hits: list[int], tokens: int) -> bool:
        idle_hits = sum(block in self.pool.free for block in hits)
        watermark = int(self.engine.watermark * self.engine.num_gpu_blocks) if self.running else 0
        room = len(self.pool.free) - idle_hits - watermark + len(hits)
        if self.engine.scheduler_reserve_full_isl and _blocks_for(seq.known, self.engine.block_size) > room:
            return False
        return _blocks_for(tokens, self.engine.block_size) <= room

    def start(self, seq: _Sequence, hits: list[int], event: int) -> None:
        self.pool.touch(hits)
        seq.blocks = list(hits)
        seq.registered = len(hits)
        seq.computed = len(hits) * self.engine.block_size
        seq.status = "running"
        if event == ADMITTED:
            seq.cached = seq.computed
        else:
            seq.resumed_cached += seq.computed

    def serve(self, seq: _Sequence, tokens: int, new_blocks: int, event: int, hit: int = 0) -> None:
        """Give it tokens and blocks, and enter the blocks it completes into the prefix cache."""
        seq.blocks += self.pool.take(new_blocks)
        after = seq.computed + tokens
        self.register(seq, min(after, seq.tokens))
        is_prefill = seq.computed < max(seq.request.prompt_len, seq.known - 1)
        self.served[seq.row] = _Served(seq, tokens, seq.computed, event, is_prefill, after == seq.known, hit)
        self.budget -= tokens

    def register(self, seq: _Sequence, tokens: int) -> None:
        if not self.engine.enable_prefix_caching:
            return
        full = tokens // self.engine.block_size
        for block in range(seq.registered, full):
            self.pool.register(seq.blocks[block], seq.request.key(block))
        seq.registered = max(seq.registered, full)

    # A step runs

    def launch(self) -> _Step:
        """Log the decided step, move its requests forward, and start it when the GPU is free."""
        served = list(self.served.values())
        number = len(self.steps)
        shape = _shape(served)
        start_ns, duration_ns = self.clock, 0  # a step without tokens never reaches the GPU
        if shape.tokens > 0:
            start_ns, duration_ns = max(self.clock, self.gpu_free), int(self.duration_ns(shape))
            self.gpu_free = start_ns + duration_ns
        self.log(number, start_ns, duration_ns, served, shape)
        self.busy_steps += shape.tokens > 0
        if self.carries_prefill:
            self.last_prefill = self.busy_steps
        for entry in served:
            seq = entry.seq
            seq.computed += entry.tokens
            seq.total_computed += entry.tokens
            seq.in_flight += entry.samples
            seq.mid_prefill = not entry.samples
            if seq.first_scheduled_step == NONE:
                seq.first_scheduled_step, seq.first_scheduled_ns = number, start_ns
        if self.checking:
            self.check()
        return _Step(number, start_ns + duration_ns, served)

    def log(self, number: int, start_ns: int, duration_ns: int, served: list[_Served], shape: Shape) -> None:
        events = [entry.event for entry in served]
        taken = self.pool.taken
        row = {
            "step": number,
            "scheduled_ns": self.clock,
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "running": len(self.running),
            "waiting": len(self.waiting),
            "scheduled": len(served),
            "sampled": shape.sampled,
            "prefill_tokens": sum(c for c, _ in shape.chunks),
            "decode_tokens": shape.decodes,
            "context_tokens": shape.context_tokens,
            "decode_context_tokens": shape.decode_context_tokens,
            "prefill_area": sum(c * (p + c / 2) for c, p in shape.chunks),
            "held_tokens": sum(seq.computed for seq in self.running) + sum(entry.tokens for entry in served),
            "admitted": events.count(ADMITTED),
            "resumed": events.count(RESUMED),
            "preempted": len(self.victims),
            "hit_tokens": sum(entry.hit for entry in served),
            "free_blocks": len(self.pool.free),
            "cached_blocks": len(self.pool.holders),
            "evicted_blocks": self.pool.evicted,
            "new_blocks": len(taken),
            "new_blocks_crc": zlib.crc32(struct.pack(f"<{len(taken)}i", *taken)),
        }
        self.steps.append(tuple(row[name] for name in STEP_COLUMNS))
        for position, e in enumerate(served):
            self.decisions.append(
                (number, position, e.seq.row, e.event, e.tokens, e.computed, e.is_prefill, e.samples, e.hit)
            )
        for position, (seq, lost) in enumerate(self.victims):
            self.decisions.append((number, position, seq.row, PREEMPTED, 0, lost, False, False, 0))

    def collect(self) -> None:
        """Wait for the oldest step: its tokens are delivered, finished requests leave."""
        step = self.flying.popleft()
        self.clock = max(self.clock, step.end_ns)
        for entry in step.served:
            seq = entry.seq
            if entry.samples and seq.status != "gone":
                self.deliver(seq, step)

    def deliver(self, seq: _Sequence, step: _Step) -> None:
        seq.tokens += 1
        seq.in_flight -= 1
        if seq.first_token_step == NONE:
            seq.first_token_ns, seq.first_token_step = step.end_ns, step.number
        elif step.number != seq.last_token_step + 1:
            self.gaps.append((seq.row, step.number, seq.last_token_step, step.end_ns - seq.last_token_ns))
        seq.last_token_ns, seq.last_token_step = step.end_ns, step.number
        if self.engine.async_scheduling and seq.status == "running":
            self.register(seq, seq.computed - seq.in_flight)
        if seq.generated >= seq.limit:
            outcome = "finished" if seq.request.cancel_after != seq.limit else "cancelled"
        elif seq.tokens >= self.engine.max_model_len:
            outcome = "max_model_len"
        else:
            return
        when_ns = step.end_ns
        if self.timeout_ns is not None and when_ns > seq.request.arrival_ns + self.timeout_ns:
            outcome, when_ns = "timed_out", seq.request.arrival_ns + self.timeout_ns  # it left while the step ran
        (self.running if seq.status == "running" else self.waiting).remove(seq)
        self.leave(seq, outcome, when_ns)

    # What comes out

    def check(self) -> None:
        self.pool.check([seq for seq in self.sequences if seq.blocks])
        assert len(self.running) + len(self.waiting) == len(self.unfinished)
        assert self.budget >= 0
        for seq in self.running:
            assert len(seq.blocks) == _blocks_for(seq.computed, self.engine.block_size)
            assert seq.computed <= seq.known
            assert seq.in_flight <= (2 if self.engine.async_scheduling else 1)

    def result(self) -> Result:
        rows = [
            (
                seq.outcome,
                seq.request.arrival_ns,
                seq.first_scheduled_ns,
                seq.first_scheduled_step,
                seq.first_token_ns,
                seq.finish_ns,
                seq.first_token_step,
                seq.last_token_step,
                seq.request.prompt_len,
                seq.generated,
                seq.cached,
                seq.resumed_cached,
                seq.total_computed,
                seq.preemptions,
            )
            for seq in self.sequences
        ]
        return Result(
            _columns(REQUEST_COLUMNS, rows),
            _columns(STEP_COLUMNS, self.steps),
            _columns(DECISION_COLUMNS, self.decisions),
            _columns(GAP_COLUMNS, self.gaps),
            self.stalled,
        )


def _blocks_for(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def _shape(served: list[_Served]) -> Shape:
    decodes = [entry for entry in served if not entry.is_prefill]
    return Shape(
        tokens=sum(entry.tokens for entry in served),
        context_tokens=sum(entry.computed + entry.tokens for entry in served),
        decodes=len(decodes),
        decode_context_tokens=sum(entry.computed + entry.tokens for entry in decodes),
        chunks=tuple((entry.tokens, entry.computed) for entry in served if entry.is_prefill),
        sampled=sum(entry.samples for entry in served),
    )


def _columns(names: Sequence[str], rows: list[tuple]) -> dict[str, list]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}
