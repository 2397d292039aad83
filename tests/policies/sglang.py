"""SGLang's scheduler and its radix tree, re-stated plainly; the cases that drive the tree alone, too."""

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.kernel import layout, radix_tree
from pipeline.kernel.prefix_index import mix
from pipeline.replay.policies.sglang import UNLIMITED, Settings
from pipeline.replay.state import StepCost, TraceBatch
from tests.policies import base, running
from tests.policies.base import read

__all__ = ["RECOGNISES", "kernel", "read", "twin"]

CONTINUED, FIRST, AGAIN, RETRACTED, PREEMPTED, ABORTED = range(6)
PREFILL, DECODE, MIXED, NOTHING = range(4)
GENERATED = 2**40  # streams from here on are answers of requests
LONGEST_COUNTED = 4096  # of an answer, in estimates of memory
AHEAD = 20  # decode steps that a retraction makes room for
SAME_PREFIX = 32  # tokens in common for which lpm holds a request back
MOST_MATCHED = 128  # waiting requests that are matched in a sort


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return config.get("oracle") in ("sglang scheduler", "sglang RadixCache")


def twin(case: base.Case) -> base.Result:
    if case.config.get("oracle") == "sglang RadixCache":
        return cache_only(case)
    return Server(case).run()


def names(case: base.Case, answers: bool) -> list[np.ndarray]:
    """Return each request's tokens, prompt and answer, as numbers that are equal for equal tokens."""
    streams: dict[int, int] = {}
    found = []
    for row in range(base.rows(case.requests)):
        segments = [case.requests[f"seg_{name}"][row] for name in ("stream", "start", "len")]
        parts = list(zip(*segments, strict=True))
        if answers:
            parts.append((GENERATED + row, 0, int(case.requests["max_tokens"][row]) + 1))
        numbers = [
            (streams.setdefault(stream, len(streams)) << 32) + np.arange(start, start + count, dtype=np.int64)
            for stream, start, count in parts
        ]
        found.append(np.concatenate(numbers) if numbers else np.zeros(0, np.int64))
    return found


def common(one: np.ndarray, two: np.ndarray) -> int:
    """Return how many leading tokens are the same."""
    count = min(len(one), len(two))
    unequal = one[:count] != two[:count]
    return int(np.argmax(unequal)) if unequal.any() else count


@dataclass(eq=False)
class Node:
    """A run of tokens; `born` and `used` are stamps of one counter."""

    run: np.ndarray
    parent: "Node | None" = None
    children: dict[bytes, "Node"] = field(default_factory=dict)
    locks: int = 0
    hits: int = 0
    used: int = 0
    born: int = 0


class Tree:
    """The radix tree and the slots that it shares with requests: free + evictable + protected + theirs = capacity."""

    def __init__(self, capacity: int, page: int, policy: str):
        self.page, self.policy = page, policy
        self.free, self.evictable, self.protected = capacity, 0, 0
        self.counter = itertools.count(1)
        self.root = Node(np.zeros(0, np.int64))
        self.evicted_tokens = self.evicted_nodes = 0

    def down(self, tokens: int) -> int:
        return tokens // self.page * self.page

    def step_down(self, node: Node, rest: np.ndarray) -> tuple[Node | None, int]:
        """Return the child that agrees with the next page, and how many tokens of it agree in whole pages."""
        child = node.children.get(rest[: self.page].tobytes())
        return (child, self.down(common(child.run, rest))) if child else (None, 0)

    def split(self, node: Node, at: int) -> Node:
        """Cut a node; return its new upper part."""
        parent = node.parent
        assert parent is not None
        head = Node(node.run[:at], parent, {}, node.locks, node.hits, 0, node.born)
        parent.children[node.run[: self.page].tobytes()] = head
        node.run, node.parent = node.run[at:], head
        head.children[node.run[: self.page].tobytes()] = node
        return head

    def match(self, key: np.ndarray) -> tuple[Node, int]:
        """Return the node where the key's known beginning ends, and its tokens."""
        key = key[: self.down(len(key))]
        if not len(key):
            return self.root, 0
        node, found = self.root, 0
        while found < len(key):
            child, same = self.step_down(node, key[found:])
            if child is None:
                break
            found += same
            if same < len(child.run):
                child.used = next(self.counter)
                node = self.split(child, same)
                break
            node = child
        stamp, last = next(self.counter), node
        above: Node | None = node
        while above is not None:
            above.used = stamp
            above = above.parent
        return last, found

    def insert(self, key: np.ndarray, before: int) -> tuple[Node, int]:
        """Put a key of whole pages in; return the node where it ends and how many tokens were there already.

        before: tokens that the same request inserted earlier, which count no more hits
        """
        node, found = self.root, 0
        node.used = next(self.counter)
        while found < len(key):
            child, same = self.step_down(node, key[found:])
            if child is None:
                break
            child.used = next(self.counter)
            found += same
            if same < len(child.run):
                node = self.split(child, same)
                node.used, child.used = next(self.counter), next(self.counter)
            else:
                node = child
            node.hits += found > before
        if found < len(key):
            stamp = next(self.counter)
            leaf = Node(key[found:], node, {}, 0, int(len(key) > before), stamp, stamp)
            node.children[leaf.run[: self.page].tobytes()] = leaf
            self.evictable += len(leaf.run)
            node = leaf
        return node, found

    def lock(self, node: Node, by: int) -> None:
        while node.parent is not None:
            node.locks += by
            if node.locks == (by > 0):
                self.protected += by * len(node.run)
                self.evictable -= by * len(node.run)
            node = node.parent

    def evict(self, wanted: int) -> None:
        """Drop leaves until so many slots are free."""
        if self.free >= wanted:
            return
        order = itertools.count()
        heap: list[tuple[Any, int, Node]] = []
        stack = [self.root]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and not node.locks and node.parent is not None:
                heap.append((self.rank(node), next(order), node))
        heapq.heapify(heap)
        while self.free < wanted and heap:
            node = heapq.heappop(heap)[2]
            parent = node.parent
            assert parent is not None
            del parent.children[node.run[: self.page].tobytes()]
            self.free += len(node.run)
            self.evictable -= len(node.run)
            self.evicted_tokens += len(node.run)
            self.evicted_nodes += 1
            if not parent.children and not parent.locks and parent.parent is not None:
                heapq.heappush(heap, (self.rank(parent), next(order), parent))

    def rank(self, node: Node) -> tuple[int, ...]:
        ranks = {
            "lru": (node.used,),
            "lfu": (node.hits, node.used),
            "fifo": (node.born,),
            "slru": (node.hits >= 2, node.used),
        }
        return ranks[self.policy]


def cache_only(case: base.Case) -> base.Result:
    """Drive the tree alone, as RADIX_ONLY.md says: no more than in_flight requests hold a lock."""
    config = case.config
    tree = Tree(config["capacity_tokens"], config["page_size"], config["eviction_policy"])
    held: list[Node] = []
    rows = []
    for tokens in names(case, answers=False):
        if len(held) == config["in_flight"]:
            tree.lock(held.pop(0), -1)
        first, hit = tree.match(tokens[:-1])
        tree.lock(first, 1)
        tree.evicted_tokens = tree.evicted_nodes = stored = 0
        needed = tree.down(len(tokens)) - hit
        tree.evict(needed)
        skipped = tree.free < needed
        last = tree.root
        if not skipped:
            key = tokens[: tree.down(len(tokens))]
            stored = len(key) - tree.insert(key, -1)[1]
            tree.free -= stored
            last = tree.match(tokens)[0]
            tree.lock(last, 1)
        tree.lock(first, -1)
        held.append(last)
        rows.append({
            "out_hit_tokens": hit, "out_evicted_tokens": tree.evicted_tokens, "out_evicted_nodes": tree.evicted_nodes,
            "out_stored_tokens": stored, "out_free_tokens": tree.free, "out_evictable_tokens": tree.evictable,
            "out_protected_tokens": tree.protected, "out_skipped": skipped,
        })  # fmt: skip
    return {"requests": base.by_column(rows)}


@dataclass(eq=False)
class Request:
    """A request; times are None until known."""

    row: int
    arrival_ns: int
    prompt: int
    max_tokens: int
    out_len: int
    ignore_eos: bool
    priority: int
    tokens: np.ndarray
    node: Node
    max_new: int = base.NONE
    g: int = 0  # tokens generated, as far as processed
    kv: int = 0  # tokens with slots
    own: int = 0  # from here on the slots are its own
    inserted: int = 0  # tokens that it has put into the tree, for hits
    in_flight: int = 0  # tokens being computed
    entry: int = 0  # number of its entry into the queue
    looked_at: tuple[int, int] = (0, 0)  # known tokens and prefix, when the queue was last gone through
    prefix: int = 0
    seated: bool = False
    done: bool = False
    status: str = "never_finished"
    retractions: int = 0
    preemptions: int = 0
    cached: int = base.NONE
    cached_again: int = 0
    work: int = 0
    first_sched: tuple[int, int] = (base.NONE, base.NONE)
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)

    @property
    def known(self) -> int:
        return self.prompt + self.g


@dataclass
class Row:
    """A request's part of a step."""

    request: Request
    tokens: int
    computed: int
    event: int
    prefill: bool
    ends: bool  # its last known token is computed
    hit: int = 0
    log: dict = field(default_factory=dict)


class CrashedError(Exception):
    """The scheduler's process dies."""


class Server:
    """One replica and its clock."""

    def __init__(self, case: base.Case):
        self.engine = e = case.engine
        self.page = e["page_size"]
        self.pool = e["pool_tokens"] // self.page * self.page
        self.tree = Tree(self.pool, self.page, e["radix_eviction_policy"])
        self.released_defects = e.get("released_defects", True)
        self.cached = not e["disable_radix_cache"]
        table = case.requests
        columns = ("arrival_ns", "prompt_len", "max_tokens", "out_len", "ignore_eos", "priority")
        lists = [table[name].tolist() for name in columns]
        texts = names(case, answers=True)
        self.requests = [
            Request(row, *values, tokens=texts[row], node=self.tree.root)
            for row, values in enumerate(zip(*lists, strict=True))
        ]
        self.coming = sorted(self.requests, key=lambda request: (request.arrival_ns, request.row))
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.chunk: Request | None = None
        self.last: list[Request] | None = None  # the last batch, if it was a prefill
        self.full = False
        self.chunked = e["chunked_prefill_size"] is not None and e["chunked_prefill_size"] > 0
        self.mixes = e["enable_mixed_chunk"] and self.chunked
        self.preempts = e["enable_priority_scheduling"] and not e["disable_priority_preemption"]
        self.first_ratio = min(0.7 * e["schedule_conservativeness"], 1.0)
        self.least_ratio = 0.14 * self.first_ratio
        self.decay = (self.first_ratio - self.least_ratio) / 600
        self.ratio = self.first_ratio
        self.policy = e["schedule_policy"]
        if not self.cached and self.policy in ("lpm", "dfs-weight"):
            self.policy = "fcfs"
        self.entries = self.sorts = self.pause = 0
        self.now = self.gpu_free = 0
        self.ends: dict[int, int] = {}
        self.steps: list[dict] = []
        self.rows: list[dict] = []

    def up(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    # The loop

    def run(self) -> base.Result:
        crashed = False
        try:
            self.loop()
        except CrashedError:
            crashed = True
        return self.result(crashed)

    def loop(self) -> None:
        overlap = not self.engine["disable_overlap_schedule"]
        outstanding: list[Row] | None = None
        busy = False
        while True:
            if not self.hand_over() and not busy:
                if not self.coming:
                    return
                self.now = max(self.now, self.coming[0].arrival_ns)
                self.hand_over()
            self.lost: list[tuple[Request, int, int]] = []
            self.counted_down = False
            batch = self.choose()
            if batch or self.lost:
                self.launch(batch)
            busy = bool(batch or self.lost or self.counted_down or outstanding)
            before, outstanding = outstanding, batch or None
            if not overlap:
                before, outstanding = outstanding, None
            if before:
                self.process(before)
            elif not batch and not self.queue and not self.running and self.chunk is None:
                self.ratio = self.first_ratio
            if len(self.steps) == self.engine["max_steps"]:
                return

    def hand_over(self) -> bool:
        some = False
        while self.coming and self.coming[0].arrival_ns <= self.now:
            some = True
            request = self.coming.pop(0)
            longest = min(self.engine["context_len"], self.pool) - 1
            room = min(longest - request.prompt, self.pool - self.up(request.prompt) - self.page) - 1
            request.max_new = max(0, min(request.max_tokens, room))
            if request.prompt >= longest - 5:
                request.status = "rejected"
            else:
                self.enter(request)
        return some

    def enter(self, request: Request) -> None:
        self.entries += 1
        request.entry = self.entries
        self.queue.append(request)

    # The choice of a batch

    def choose(self) -> list[Row]:
        if self.chunk is not None:
            self.checkpoint(self.chunk, self.chunk.kv)
        if self.last is not None:
            joining = [request for request in self.last if request is not self.chunk and not request.done]
            if len(joining) < len(self.last):
                self.full = False
            if joining and not self.running:
                self.full = False
            self.running = self.running + joining
            self.last = None
        self.drop_from_running(lambda request: request.done)
        if not self.running or self.preempts:
            self.full = False
        if self.pause > 0:
            self.pause -= 1
            self.counted_down = True
            batch = None
        else:
            batch = self.prefill()
        if batch:
            self.last = [row.request for row in batch]
            self.pause = self.engine["prefill_decode_interval"] or 0
            return batch
        return self.decode()

    def drop_from_running(self, leaves) -> bool:
        kept = [request for request in self.running if not leaves(request)]
        some = len(kept) < len(self.running)
        if some:
            self.full = False
        self.running = kept
        return some

    def estimate(self, request: Request) -> float:
        ratio = 1.0 if request.ignore_eos else self.ratio
        return min(request.max_new - request.g, LONGEST_COUNTED) * ratio

    @property
    def capacity(self) -> int:
        return self.tree.free + self.tree.evictable

    def prefill(self) -> list[Row] | None:
        most = self.engine["max_running_requests"]
        if (self.full or not self.queue) and self.chunk is None:
            return None
        if min(most - len(self.running), self.free_rows()) <= 0 and self.chunk is None and not self.preempts:
            self.full = True
            return None
        self.sort()
        mixed = len(self.running) if self.mixes else 0
        self.chunk_left = self.engine["chunked_prefill_size"] - mixed if self.chunked else None
        self.input_left = self.engine["max_prefill_tokens"] - mixed
        self.total = mixed + sum([self.estimate(request) for request in self.running])
        self.current = mixed
        self.admitted: list[Row] = []
        self.states: list[tuple[float, int]] | None = None
        self.next_chunk: Request | None = None
        self.evictees: list[Request] = []
        if self.chunk is not None:
            request = self.chunk
            assert self.chunk_left is not None
            limit = min(self.chunk_left, int(self.capacity - self.total))
            limit = self.chunk_left if limit <= 0 else limit
            if not self.released_defects:
                limit = min(limit, self.capacity + self.up(request.kv) - request.kv)
            if limit > 0:
                self.admit(request, min(request.known - request.kv, limit), CONTINUED)
            else:  # what others decode leaves it nothing: it goes on in a later step
                self.next_chunk = request
        for request in list(self.queue):
            if not self.consider(request):
                break
        self.queue = [request for request in self.queue if not request.seated]
        for request in self.evictees:
            self.enter(request)
        self.chunk = self.next_chunk
        for row in self.admitted:  # of two whose prompt was cut, the first is taken for complete
            row.ends = row.request is not self.chunk
        if not self.admitted:
            return None
        self.allocate(self.admitted)
        return self.admitted + self.mix_in()

    def free_rows(self) -> int:
        return self.engine["max_running_requests"] - sum(request.seated for request in self.requests)

    def spent(self) -> str:
        if self.capacity - self.total <= 0 or self.capacity - self.current <= 0:
            return "NO_TOKEN"
        over = self.input_left <= 0 or (self.chunk_left is not None and self.chunk_left <= 0)
        return "OTHER" if over else ""

    def admit(self, request: Request, tokens: int, event: int) -> None:
        ends = request.kv + tokens == request.known
        counted = min(request.max_new, LONGEST_COUNTED) if ends else 0
        self.admitted.append(Row(request, tokens, request.kv, event, True, ends))
        if not ends:
            self.next_chunk = request
        self.total += self.up(tokens) + self.page + counted
        self.current += self.up(tokens) + self.page
        self.input_left -= self.up(tokens)
        if self.chunk_left is not None:
            self.chunk_left -= self.up(tokens)

    def consider(self, request: Request) -> bool:
        """Try to admit a waiting request; return whether to go on to the next."""
        if self.spent() == "OTHER":
            return False
        most = self.engine["max_running_requests"]
        held = sum(row.request.seated for row in self.admitted)
        if len(self.admitted) >= min(most - len(self.running), self.free_rows() + held):
            self.full = True
        if self.full and not (self.preempts and self.preempt(request)):
            return False
        node, prefix = self.tree.match(request.tokens[: request.known - 1]) if self.cached else (self.tree.root, 0)
        request.looked_at = (request.known, prefix)
        limit = self.engine["prefill_max_requests"]
        if limit is not None and len(self.admitted) >= limit:
            return False
        rest = request.known - prefix
        answer = self.plays_through(request, rest) if request.ignore_eos and not self.cached else None
        if answer is None:
            self.tree.lock(node, 1)
            wanted = rest + min(request.max_new - request.g, LONGEST_COUNTED) + self.page
            if wanted >= self.capacity - self.total:
                self.tree.lock(node, -1)
                return self.no_token()
        elif not answer:
            return self.no_token()
        tokens = rest
        if self.chunk_left is None:
            if answer is None and self.up(rest) >= self.input_left and self.admitted:
                self.tree.lock(node, -1)
                return False
        elif answer is None and self.up(rest) > self.chunk_left:
            tokens = self.tree.down(prefix + self.tree.down(self.chunk_left)) - prefix
        elif answer is not None and rest > self.chunk_left:
            tokens = self.chunk_left
        second = tokens < rest and self.next_chunk is not None and not self.released_defects
        if tokens <= 0 or second:
            self.tree.lock(node, -1)
            return False
        request.node, request.own, request.kv, request.inserted = node, prefix, prefix, 0
        self.admit(request, tokens, FIRST if request.cached == base.NONE else AGAIN)
        self.admitted[-1].hit = prefix
        if request.cached == base.NONE:
            request.cached = prefix
        else:
            request.cached_again += prefix
        request.seated = True
        why = self.spent()
        if why == "NO_TOKEN":
            self.no_token()
        return not why

    def no_token(self) -> bool:
        self.full = bool(self.admitted or self.running)
        return False

    def plays_through(self, request: Request, rest: int) -> bool:
        needed = self.up(rest) + self.page
        if needed > self.capacity - self.current or needed > self.capacity - self.total:
            return False

        def state(one: Request) -> tuple[float, int]:
            return one.max_new * (1.0 if one.ignore_eos else self.ratio) - one.g, one.known

        if self.states is None:
            everybody = [request, *self.running, *(row.request for row in self.admitted)]
            self.states = sorted((state(one) for one in everybody if state(one)[0] > 0), key=lambda one: one[0])
        elif state(request)[0] > 0:
            at = [i for i, one in enumerate(self.states) if one[0] >= state(request)[0]]
            self.states.insert(at[0] if at else max(len(self.states) - 1, 0), state(request))
        freed = 0
        for i, (left, held) in enumerate(self.states):
            count = len(self.states) - i
            if self.capacity - self.current - needed + freed - left * count <= count:
                return False
            freed += held
        return True

    def preempt(self, request: Request) -> bool:
        sign = -1 if self.engine["schedule_low_priority_values_first"] else 1
        victims = []
        known, prefix = request.looked_at
        needed = known - prefix + min(request.max_new, LONGEST_COUNTED) - (self.capacity - self.total)
        for one in sorted(self.running, key=lambda one: (sign * one.priority, -one.entry)):
            if sign * (request.priority - one.priority) <= self.engine["priority_scheduling_preemption_threshold"]:
                break
            victims.append(one)
            needed -= self.estimate(one)
            if needed <= 0:
                break
        if not victims or needed > 0:
            return False
        left = len(self.running)
        for one in [one for one in self.running if one in victims]:
            left -= 1
            self.total -= self.estimate(one)
            one.preemptions += 1
            self.lose(one, PREEMPTED, left)
            self.evictees.append(one)
        self.running = [one for one in self.running if one not in victims]
        return True

    def allocate(self, rows: list[Row]) -> None:
        wanted = sum(row.tokens for row in rows)
        if self.page > 1:
            wanted += self.page * len(rows)
        self.tree.evict(wanted)
        for row in rows:
            end = row.request.kv + row.tokens
            self.tree.free -= self.up(end) - self.up(row.request.kv)
            row.request.kv = end
        if self.tree.free < 0:
            raise CrashedError

    def mix_in(self) -> list[Row]:
        if not self.mixes or not self.running:
            return []
        self.drop_from_running(self.known_to_end)
        if not self.running or not self.fits(self.running):
            return []
        return self.decode_all(empty=True)

    def decode_all(self, empty: bool) -> list[Row]:
        self.tree.evict(self.page * len(self.running))
        rows = []
        for request in self.running:
            rows.append(Row(request, 1, request.kv, CONTINUED, False, True))
            self.tree.free -= self.page * (request.kv % self.page == 0)
            request.kv += 1
        if self.tree.free < 0:
            raise CrashedError
        if empty:
            self.running = []
        return rows

    def known_to_end(self, request: Request) -> bool:
        return request.in_flight > 0 and request.g + request.in_flight >= request.max_new

    def fits(self, requests: list[Request]) -> bool:
        wanted = self.page * sum(request.kv % self.page == 0 for request in requests)
        self.tree.evict(wanted)
        return self.tree.free >= wanted

    def decode(self) -> list[Row]:
        left = self.drop_from_running(self.known_to_end)
        if not self.running:
            self.full = False
            return []
        if self.fits(self.running):
            self.ratio = max(self.ratio - self.decay, self.least_ratio)
        elif left:
            return []
        else:
            self.retract()
        return self.decode_all(empty=False) if self.running else []

    def retract(self) -> None:
        sign = -1 if self.engine["schedule_low_priority_values_first"] else 1
        by_priority = self.engine["retraction_policy"] == "priority"
        self.running.sort(key=lambda one: (sign * one.priority if by_priority else 0, one.g, -one.prompt), reverse=True)
        again = True
        while len(self.running) > 1 and (again or not self.fits(self.running)):
            again = False
            victim = self.running.pop()
            victim.retractions += 1
            self.lose(victim, RETRACTED, len(self.running))
            self.enter(victim)
        if len(self.running) == 1 and not self.fits(self.running):
            victim = self.running.pop()
            self.lose(victim, ABORTED, 0)
            victim.done, victim.status, victim.finished = True, "aborted_oom", (len(self.steps), self.now)
        self.full = False
        generated = sum(one.g for one in self.running) + AHEAD * len(self.running)
        self.ratio = min(1.0, generated / (sum(one.max_new for one in self.running) + 1))

    def lose(self, request: Request, event: int, left: int) -> None:
        """Free all that a request holds, and make room for those who are left."""
        self.lost.append((request, event, request.kv))
        self.release(request)
        self.tree.evict(AHEAD * left)

    def release(self, request: Request) -> None:
        self.tree.free += self.up(request.kv) - request.own
        self.tree.lock(request.node, -1)
        request.node = self.tree.root
        request.kv = request.own = request.in_flight = 0
        request.seated = False

    def checkpoint(self, request: Request, upto: int) -> None:
        """Put a request's first tokens into the tree."""
        if not self.cached:
            return
        upto, prompt = self.tree.down(upto), self.tree.down(request.prompt)
        node, found = self.tree.insert(request.tokens[:upto], request.inserted)
        self.tree.free += max(0, found - request.own)
        request.inserted = max(upto, request.inserted)
        if upto > prompt:
            self.tree.insert(request.tokens[:prompt], request.inserted)
        self.tree.lock(node, 1)
        self.tree.lock(request.node, -1)
        request.node, request.own = node, upto

    # Order of the queue

    def sort(self) -> None:
        if not self.queue:
            return
        policy, sign = self.policy, 1 if self.engine["schedule_low_priority_values_first"] else -1
        if policy == "lpm" and len(self.queue) > MOST_MATCHED:
            policy = "fcfs"
            keep = True
        else:
            keep = False
        if policy in ("fcfs", "lof") and self.cached and self.engine["radix_eviction_policy"] == "lru":
            if self.sorts % 32 == 0:
                for request in reversed(self.queue[:MOST_MATCHED]):
                    self.tree.match(request.tokens[: request.known])
            self.sorts += 1
        if keep:
            return
        by_priority = self.engine["enable_priority_scheduling"]
        if policy == "fcfs" and by_priority:
            self.queue.sort(key=lambda one: (sign * one.priority, one.entry))
        elif policy == "lof":
            self.queue.sort(key=lambda one: (sign * one.priority if by_priority else 0, -one.max_new))
        elif policy == "lpm":
            self.by_match()
        elif policy == "dfs-weight":
            self.by_weight()

    def by_match(self) -> None:
        treated: list[np.ndarray] = []
        held: set[int] = set()
        lengths: dict[int, int] = {}
        for request in self.queue:
            text = request.tokens[: request.known]
            found = self.tree.match(text)[1]
            lengths[request.row] = min(found, request.known - 1)
            if found <= SAME_PREFIX:
                if max((common(text, other) for other in treated), default=0) >= SAME_PREFIX:
                    held.add(request.row)
                else:
                    treated.append(text)
        self.queue.sort(key=lambda one: (one.row in held, -lengths[one.row] if one.row not in held else 0))

    def by_weight(self) -> None:
        here: dict[int, list[Request]] = {}
        for request in self.queue:
            here.setdefault(id(self.tree.match(request.tokens[: request.known])[0]), []).append(request)

        def weigh(node: Node) -> int:
            weights[id(node)] = len(here.get(id(node), ())) + sum(weigh(child) for child in node.children.values())
            return weights[id(node)]

        def visit(node: Node) -> None:
            for child in sorted(node.children.values(), key=lambda child: -weights[id(child)]):
                visit(child)
            order.extend(here.get(id(node), ()))

        weights: dict[int, int] = {}
        order: list[Request] = []
        weigh(self.tree.root)
        visit(self.tree.root)
        self.queue = order

    # The step

    def launch(self, batch: list[Row]) -> None:
        number, engine, tree = len(self.steps), self.engine, self.tree
        tokens = sum(row.tokens for row in batch)
        context = sum(row.tokens + row.computed for row in batch)
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context if batch else 0
        start = max(self.now, self.gpu_free) if batch else self.now
        if batch:
            self.gpu_free = start + duration
        prefill = sum(row.tokens for row in batch if row.prefill)
        kind = NOTHING if not batch else DECODE if not prefill else PREFILL if prefill == tokens else MIXED
        if kind == PREFILL and not all(row.prefill for row in batch):
            kind = MIXED
        for position, row in enumerate(batch):
            request = row.request
            if request.first_sched[0] == base.NONE:
                request.first_sched = (number, start)
            request.work += row.tokens
            request.in_flight += row.ends
            row.log = self.log(number, position, request, row.tokens, row.computed, row.event, row.prefill, row.hit)
        events = [event for _, event, _ in self.lost]
        order = sorted(range(len(self.lost)), key=lambda i: self.lost[i][1])
        for position, i in enumerate(order):
            request, event, computed = self.lost[i]
            self.log(number, position, request, 0, computed, event, False, 0)
        started = [row.event for row in batch]
        self.steps.append({
            "step": number, "kind": kind, "t_sched_ns": self.now, "t_start_ns": start, "dur_ns": duration,
            "n_reqs": len(batch), "n_tokens": tokens, "prefill_tokens": prefill, "decode_tokens": tokens - prefill,
            "ctx_tokens": context, "n_running": len(self.running), "n_waiting": len(self.queue),
            "n_admitted": started.count(FIRST), "n_resumed": started.count(AGAIN),
            "n_retracted": events.count(RETRACTED), "n_preempted": events.count(PREEMPTED),
            "n_aborted": events.count(ABORTED), "hit_tokens": sum(row.hit for row in batch),
            "free_tokens": tree.free, "evictable_tokens": tree.evictable, "protected_tokens": tree.protected,
            "evicted_tokens": tree.evicted_tokens, "evicted_nodes": tree.evicted_nodes, "new_token_ratio": self.ratio,
        })  # fmt: skip
        tree.evicted_tokens = tree.evicted_nodes = 0
        self.ends[number] = start + duration

    def log(self, step, position, request, tokens, computed, event, prefill, hit) -> dict:
        self.rows.append({
            "step": step, "pos": position, "req": request.row, "n_sched": tokens, "n_computed": computed,
            "event": event, "is_prefill": prefill, "samples": False, "hit_tokens": hit,
        })  # fmt: skip
        return self.rows[-1]

    def process(self, batch: list[Row]) -> None:
        number = batch[0].log["step"]
        self.now = max(self.now, self.ends[number])
        for row in batch:
            request = row.request
            if not row.ends or request.done or not request.seated:
                continue
            row.log["samples"] = True
            request.in_flight -= 1
            request.g += 1
            if request.first_token_ns == base.NONE:
                request.first_token_ns = self.now
            stops = request.g == request.out_len and request.out_len < request.max_tokens and not request.ignore_eos
            if request.g >= request.max_new or stops:
                request.status = "length" if request.g >= request.max_new else "stop"
                request.done, request.finished = True, (number, self.now)
                self.checkpoint(request, request.kv)
                self.release(request)
            elif row.prefill:
                self.checkpoint(request, row.computed + row.tokens)

    def result(self, crashed: bool) -> base.Result:
        stalled = not crashed and bool(self.queue) and len(self.steps) != self.engine["max_steps"]
        all_of = self.requests
        outcomes = {
            "out_status": [one.status for one in all_of],
            "out_first_sched_step": [one.first_sched[0] for one in all_of],
            "out_first_sched_ns": [one.first_sched[1] for one in all_of],
            "out_first_token_ns": [one.first_token_ns for one in all_of],
            "out_finish_step": [one.finished[0] for one in all_of],
            "out_finish_ns": [one.finished[1] for one in all_of],
            "out_max_new": [one.max_new for one in all_of],
            "out_cached_tokens": [one.cached for one in all_of],
            "out_n_output": [one.g for one in all_of],
            "out_n_retract": [one.retractions for one in all_of],
            "out_n_preempt": [one.preemptions for one in all_of],
            "out_cached_tokens_resume": [one.cached_again for one in all_of],
            "out_computed_tokens": [one.work for one in all_of],
        }
        return {
            "requests": outcomes,
            "steps": base.by_column(self.steps),
            "schedule": base.by_column(self.rows),
            "summary": {"stalled": stalled, "crashed": crashed},
        }


STATUSES = {layout.FINISHED: "length", layout.MAX_MODEL_LEN: "length", layout.REJECTED: "rejected"}
STATUSES |= {layout.NEVER_FINISHED: "never_finished"}
EVENTS = {layout.CONTINUED: CONTINUED, layout.ADMITTED: FIRST, layout.RESUMED: AGAIN, layout.LOST: RETRACTED}
EVENTS |= {layout.DROPPED: ABORTED}
SETTINGS = Settings.__dataclass_fields__.keys()


def kernel(case: base.Case) -> base.Result:
    """Replay a case with the compiled engine."""
    if case.config.get("oracle") == "sglang RadixCache":
        return kernel_cache_only(case)
    return recorded_form(case, running.replay(settings(case.engine, decisions=True), cost(case), [batch(case)]))


def cost(case: base.Case) -> StepCost:
    """Return a case's step time, for as many tokens as its steps can ever hold."""
    most_tokens = int(case.requests["prompt_len"].sum() + case.requests["max_tokens"].sum())
    most_tokens = min(most_tokens + case.engine["max_running_requests"], 1 << 20)
    return StepCost.whole(*(case.engine[name] for name in ("a_ns", "b_ns", "c_ns")), most_tokens)


def kernel_cache_only(case: base.Case) -> base.Result:
    """Drive the compiled tree alone, as `cache_only` does the plain one."""
    config = case.config
    made = Settings(
        max_model_len=UNLIMITED, context_len=UNLIMITED, pool_tokens=config["capacity_tokens"],
        page_size=config["page_size"], max_running_requests=1, radix_eviction_policy=config["eviction_policy"],
    )  # fmt: skip
    engine = layout.records(layout.ENGINE, 1)
    parts = made.parts(engine, 1)
    counts = parts.counts[0]
    tree = radix_tree.Tree(parts.nodes[0], parts.pieces[0], parts.index[0], parts.heap[0], counts)
    texts = names(case, answers=False)
    engine[0].hash_mask = (1 << (max(map(len, texts)) - 1).bit_length()) - 1
    hashes = np.zeros(engine[0].hash_mask + 1, np.uint64)
    request = layout.records(layout.REQUEST, 1)[0]
    request.prefix_block_tokens = 1
    held: list[int] = []
    rows = []
    for row, text in enumerate(texts):
        request.prefix_tokens = len(text)
        hashes[: len(text)] = chained(text)
        if len(held) == config["in_flight"]:
            radix_tree.lock(tree, held.pop(0), -1)
        first, hit = radix_tree.match(tree, hashes, request, row, len(text) - 1, engine[0])
        radix_tree.lock(tree, first, 1)
        counts.evicted_tokens = counts.evicted_nodes = stored = 0
        whole = len(text) // counts.page * counts.page
        radix_tree.evict(tree, whole - hit)
        skipped, last = bool(counts.free < whole - hit), radix_tree.ROOT
        if not skipped:
            stored = whole - radix_tree.insert(tree, hashes, request, row, whole, -1, engine[0])[1]
            counts.free -= stored
            last = radix_tree.match(tree, hashes, request, row, len(text), engine[0])[0]
            radix_tree.lock(tree, last, 1)
        radix_tree.lock(tree, first, -1)
        held.append(last)
        rows.append({
            "out_hit_tokens": hit, "out_evicted_tokens": int(counts.evicted_tokens),
            "out_evicted_nodes": int(counts.evicted_nodes), "out_stored_tokens": stored,
            "out_free_tokens": int(counts.free), "out_evictable_tokens": int(counts.evictable),
            "out_protected_tokens": int(counts.protected), "out_skipped": skipped,
        })  # fmt: skip
    return {"requests": base.by_column(rows)}


def settings(engine: dict, **more: Any) -> Settings:
    """Return a case's settings as the compiled engine takes them."""
    same = {name: engine[name] for name in SETTINGS if name in engine}
    if same["chunked_prefill_size"] is None:
        same["chunked_prefill_size"] = -1
    return Settings(**{"released_defects": True} | same | more, max_model_len=UNLIMITED)


def batch(case: base.Case) -> TraceBatch:
    """Return a case's requests, each token known by a hash of all up to it."""
    table = case.requests
    texts = names(case, answers=True)
    hashes = [chained(text) for text in texts]
    lengths = np.array([len(text) for text in texts], np.int64)
    stated = table["max_tokens"]
    return TraceBatch(
        arrival_ns=table["arrival_ns"],
        input_tokens=table["prompt_len"],
        output_tokens=np.where(table["ignore_eos"], stated, np.minimum(stated, table["out_len"])),
        end_outcome=np.full(len(stated), layout.FINISHED),
        priority=table["priority"],
        prefix_tokens=lengths,
        prefix_block_tokens=np.ones(len(stated), np.int64),
        hashes=np.concatenate(hashes) if hashes else np.zeros(0, np.uint64),
        hash_offsets=np.append(0, np.cumsum(lengths)),
        max_tokens=stated,
        ignore_eos=table["ignore_eos"].astype(np.int64),
    )


def chained(text: np.ndarray) -> np.ndarray:
    """Return for each token a hash of all up to it."""
    with np.errstate(over="ignore"):
        places = np.arange(1, len(text) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return np.cumsum(mix_all(mix_all(text.astype(np.uint64)) + places))


def mix_all(words: np.ndarray) -> np.ndarray:
    """Scatter many words as `mix` does one."""
    return mix.py_func(words)


def recorded_form(case: base.Case, result: dict) -> base.Result:
    """Return what the compiled engine made in recorded names."""
    rows, own, taken = result["requests"], result["own"], result["steps"]
    asked = case.requests
    common_columns = running.steps(result)
    idle = taken["scheduled"] == 0
    kind = np.select(
        [idle, taken["prefill_tokens"] == 0, taken["decode_tokens"] == 0], [NOTHING, DECODE, PREFILL], MIXED
    )
    steps = {name: common_columns[name] for name in ("step", "t_sched_ns", "dur_ns", "n_waiting", "n_tokens")}
    steps |= {name: common_columns[name] for name in ("prefill_tokens", "decode_tokens", "ctx_tokens")}
    steps |= {
        "kind": kind, "t_start_ns": taken["start_ns"], "n_reqs": taken["scheduled"], "n_running": own["running"],
        "n_admitted": taken["admitted"], "n_resumed": taken["resumed"], "n_retracted": own["retracted"],
        "n_preempted": own["preempted"], "n_aborted": own["aborted"], "hit_tokens": taken["hit_tokens"],
    }  # fmt: skip
    steps |= {name: own[name] for name in ("free_tokens", "evictable_tokens", "protected_tokens", "new_token_ratio")}
    steps |= {name: own[name] for name in ("evicted_tokens", "evicted_nodes")}
    outcomes = running.outcomes(result, STATUSES)
    generated = outcomes["out_n_output"]
    requests = {name: outcomes[name] for name in outcomes if name not in ("out_n_preempt", "out_status")}
    schedule = scheduled(result, outcomes["out_finish_step"])
    lost = [np.bincount(schedule["req"][schedule["event"] == event], minlength=len(rows)) for event in (3, 4)]
    pool = settings(case.engine).pool
    page = case.engine["page_size"]
    longest = min(case.engine["context_len"], pool) - 1
    room = np.minimum(longest - asked["prompt_len"], pool - -(-asked["prompt_len"] // page) * page - page) - 1
    most = np.maximum(0, np.minimum(asked["max_tokens"], room))
    status = outcomes["out_status"]
    early = (generated < most) & (status == "length")
    status[early] = "stop"
    status[schedule["req"][schedule["event"] == ABORTED]] = "aborted_oom"
    requests |= {
        "out_status": status, "out_max_new": most, "out_cached_tokens": rows["cached_tokens"],
        "out_n_retract": lost[0], "out_n_preempt": lost[1],
        "out_cached_tokens_resume": rows["resumed_cached_tokens"],
    }  # fmt: skip
    dead = bool(result["state"].parts.settings["dead"][0])
    return {
        "requests": requests,
        "steps": steps,
        "schedule": schedule,
        "summary": {"stalled": bool(result["state"].stalled) and not dead, "crashed": dead},
    }


def scheduled(result: dict, finish_step: np.ndarray) -> base.Table:
    """Return the decisions; a row samples in vain if its request has ended, or lost its place, by its end."""
    table, taken, own = running.schedule(result, EVENTS), result["steps"], result["own"]
    late = table["event"] == RETRACTED
    table["event"][late & (table["pos"] < own["preempted"][table["step"]])] = PREEMPTED
    ended = finish_step[table["req"]]
    table["samples"] &= (ended == base.NONE) | (table["step"] <= ended)
    ends = taken["start_ns"] + taken["duration_ns"]
    gone = {
        (int(step) - 1, int(request))
        for step, request in zip(table["step"][table["n_sched"] == 0], table["req"][table["n_sched"] == 0], strict=True)
        if step > 0 and taken["scheduled_ns"][step] < ends[step - 1]
    }
    vain = [(int(step), int(request)) in gone for step, request in zip(table["step"], table["req"], strict=True)]
    table["samples"] &= ~np.array(vain, bool)
    return table
