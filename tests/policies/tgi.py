"""Text Generation Inference's v3 router: queue, budgets, radix cache and batching loop, re-stated plainly."""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tests.policies import base
from tests.policies.base import read

__all__ = ["RECOGNISES", "read", "twin"]

PREFILL, DECODE = 0, 1
RUNNING, FIRST = 0, 1
NEVER = "never_finished"


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return str(config.get("oracle", "")).startswith("huggingface/text-generation-inference")


def twin(case: base.Case) -> base.Result:
    return Server(case).run()


def block_names(segments: list[tuple[int, int, int]], size: int, names: dict) -> list[int]:
    """Return a number for the content of each whole block of a prompt, given as (stream, start, length)."""
    found, piece, room = [], [], size
    for stream, start, length in segments:
        while length > 0:
            n = min(room, length)
            if piece and piece[-1][0] == stream and piece[-1][1] + piece[-1][2] == start:
                piece[-1] = (stream, piece[-1][1], piece[-1][2] + n)
            else:
                piece.append((stream, start, n))
            start, length, room = start + n, length - n, room - n
            if room == 0:
                found.append(names.setdefault(tuple(piece), len(names)))
                piece, room = [], size
    return found


@dataclass
class Request:
    row: int
    arrival_ns: int
    prompt: int
    max_tokens: int
    length: int  # tokens of its answer
    key: list[int]  # its whole blocks by content
    cached: int = 0
    computed: int = 0  # tokens in memory
    chunk: int = 0  # tokens in its next call
    blocks: int = 0  # of its allocation, shared ones included
    hit_blocks: int = 0
    node: "Node | None" = None
    output: int = 0
    work: int = 0
    status: str = NEVER
    first_scheduled: tuple[int, int] = (base.NONE, base.NONE)
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)


@dataclass
class Node:
    slot: int
    key: list[int]
    time: int
    parent: "Node | None"
    children: dict[int, "Node"] = field(default_factory=dict)
    users: int = 0  # children and requests


class Tree:
    """Prompts that were computed, by whole blocks; leaves that nobody uses can be evicted, oldest first."""

    def __init__(self) -> None:
        self.free_slots: list[int] = []
        self.slots = 1
        self.time = 0
        self.root = Node(0, [], 0, None, users=1)
        self.leaves: list[tuple[int, int, Node]] = []

    def find(self, key: list[int]) -> tuple[Node, int]:
        self.time += 1
        node, hit = self.root, 0
        while hit < len(key) and key[hit] in node.children:
            node = node.children[key[hit]]
            self.touch(node)
            shared = common(node.key, key[hit:])
            hit += shared
            if shared < len(node.key):
                break
        return node, hit

    def insert(self, key: list[int]) -> int:
        """Add a prompt; return how many of its blocks were there."""
        self.time += 1
        node, there = self.root, 0
        while there < len(key):
            child = node.children.get(key[there])
            if child is None:
                self.add(node, key[there:])
                return there
            self.touch(child)
            shared = common(child.key, key[there:])
            there += shared
            if there < len(key) and shared < len(child.key):
                child = self.split(child, shared)
            node = child
        return there

    def split(self, node: Node, at: int) -> Node:
        parent = node.parent
        assert parent is not None
        head, node.key = node.key[:at], node.key[at:]
        upper = self.add(parent, head)
        upper.children[node.key[0]] = node
        self.use(upper)
        node.parent = upper
        return upper

    def add(self, parent: Node, key: list[int]) -> Node:
        slot = self.free_slots.pop() if self.free_slots else self.slots
        self.slots += slot == self.slots
        node = Node(slot, key, self.time, parent)
        if parent.children.get(key[0]) is None:
            self.use(parent)
        parent.children[key[0]] = node
        insort(self.leaves, (node.time, node.slot, node), key=lambda one: one[:2])
        return node

    def use(self, node: Node) -> None:
        if node.users == 0:
            self.leaves.remove((node.time, node.slot, node))
        node.users += 1

    def drop(self, node: Node) -> None:
        node.users -= 1
        if node.users == 0:
            insort(self.leaves, (node.time, node.slot, node), key=lambda one: one[:2])

    def touch(self, node: Node) -> None:
        leaf = node.users == 0
        if leaf:
            self.leaves.remove((node.time, node.slot, node))
        node.time = self.time
        if leaf:
            insort(self.leaves, (node.time, node.slot, node), key=lambda one: one[:2])

    def evict(self, blocks: int) -> int:
        """Give up at most so many blocks; return how many."""
        done = 0
        while done < blocks and self.leaves:
            _, _, node = self.leaves[0]
            if blocks - done >= len(node.key):
                self.leaves.pop(0)
                done += len(node.key)
                parent = node.parent
                assert parent is not None
                del parent.children[node.key[0]]
                self.free_slots.append(node.slot)
                self.drop(parent)
            else:
                node.key = node.key[: len(node.key) - (blocks - done)]
                done = blocks
        return done


def common(one: list[int], other: list[int]) -> int:
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    return next(i for i in range(n) if one[i] != other[i])


class Server:
    """One replica."""

    def __init__(self, case: base.Case):
        self.engine = engine = case.engine
        self.size = engine["block_size"]
        self.caching = engine["prefix_caching"]
        table, names = case.requests, {}
        columns = [table[name].tolist() for name in ("arrival_ns", "prompt_len", "max_tokens", "out_len")]
        segments = [table[name].tolist() for name in ("seg_stream", "seg_start", "seg_len")]
        self.requests = [
            Request(row, arrival, prompt, most, min(most, out),
                    block_names(list(zip(*(part[row] for part in segments), strict=True)), self.size, names))
            for row, (arrival, prompt, most, out) in enumerate(zip(*columns, strict=True))
        ]  # fmt: skip
        self.coming = deque(sorted(self.requests, key=lambda r: (r.arrival_ns, r.row)))
        self.queue: deque[Request] = deque()
        self.batch: list[Request] = []
        self.free = engine["max_batch_total_tokens"] // self.size - 1
        self.tree = Tree()
        self.now = 0
        self.steps: list[dict] = []
        self.rows: list[dict] = []

    # Memory

    def allocate(self, r: Request) -> bool:
        tokens = r.prompt + r.max_tokens + self.engine["speculate"] - 1
        node, hit = self.tree.find(r.key) if self.caching else (self.tree.root, 0)
        self.tree.use(node)
        need = -(-(tokens - hit * self.size) // self.size)
        if self.free < need and self.caching:
            self.free += self.tree.evict(need - self.free)
        if self.free < need:
            self.tree.drop(node)
            return False
        self.free -= need
        r.node, r.hit_blocks, r.blocks = node, hit, hit + need
        r.cached = min(hit * self.size, r.prompt - 1)
        return True

    def release(self, r: Request) -> None:
        assert r.node is not None
        self.tree.drop(r.node)
        if not self.caching:
            self.free += r.blocks
            return
        whole = len(r.key)
        if r.prompt > r.hit_blocks * self.size and whole > 0:
            there = self.tree.insert(r.key)
            self.free += max(there - r.hit_blocks, 0)
        self.free += r.blocks - whole

    # Queue

    def arrive(self) -> None:
        while self.coming and self.coming[0].arrival_ns <= self.now:
            self.queue.append(self.coming.popleft())

    def next_batch(self, least: int | None, most: int | None, budget: int) -> list[Request]:
        self.arrive()
        # Shared blocks count for every request that has them.
        room = self.engine["max_batch_total_tokens"] - sum(r.blocks for r in self.batch) * self.size
        if budget <= 0 or room <= 0 or not self.queue or most == 0 or (least is not None and len(self.queue) < least):
            return []
        budget = -(-budget // self.size) * self.size
        taken: list[Request] = []
        used = 0
        while self.queue:
            r = self.queue[0]
            if not self.allocate(r):
                break
            post = r.prompt - r.cached
            if used + post > budget:
                chunk = budget - used
                if self.engine["prefill_chunking"] and chunk > 0:
                    r.chunk = chunk
                    taken.append(self.queue.popleft())
                else:
                    self.release(r)
                break
            r.chunk = post
            used += post
            taken.append(self.queue.popleft())
            if most is not None and len(taken) == most:
                break
        if least is not None and len(taken) < least:
            self.queue.extendleft(reversed(taken))
            for r in taken:
                self.release(r)
            return []
        for r in taken:
            r.computed = r.cached
        return taken

    # Loop

    def run(self) -> base.Result:
        stalled = False
        engine = self.engine
        most_tokens = engine["max_batch_prefill_tokens"]
        while not self.over():
            new = self.next_batch(None, engine["max_batch_size"], most_tokens)
            if not new:
                if not self.coming:
                    stalled = bool(self.queue)
                    break
                self.now = max(self.now, self.coming[0].arrival_ns)
                continue
            self.call(PREFILL, new, new)
            waited = 1
            while self.batch and not self.over():
                if engine["prefill_chunking"]:
                    current = sum(r.chunk for r in self.batch)
                    new = self.next_batch(None, None, most_tokens - current)
                    if new:
                        self.call(PREFILL, self.batch + new, new)
                else:
                    least = None
                    if waited < engine["max_waiting_tokens"]:
                        ratio = np.float32(engine["waiting_served_ratio"])
                        least = int(np.floor(np.float32(len(self.batch)) * ratio))
                    most = engine["max_batch_size"]
                    new = self.next_batch(least, None if most is None else max(most - len(self.batch), 0), most_tokens)
                    if new:
                        self.call(PREFILL, new, new)
                        waited = 1
                if self.batch and not self.over():
                    self.call(DECODE, self.batch, [])
                    waited += 1
        return self.result(stalled)

    def over(self) -> bool:
        return len(self.steps) == self.engine["max_steps"]

    def call(self, kind: int, batch: list[Request], new: list[Request]) -> None:
        if self.over():
            return
        number, began, engine = len(self.steps), self.now, self.engine
        others = [r for r in self.batch if r not in batch]
        tokens = prefill = context = hits = 0
        prompts = False
        for position, r in enumerate(batch):
            n = r.chunk
            prompt = r.computed < r.prompt
            prompts |= prompt
            if r in new:
                r.first_scheduled = (number, began)
                hits += r.cached
            tokens += n
            prefill += n if prompt else 0
            context += r.computed + n
            self.rows.append({
                "step": number, "pos": position, "req": r.row, "event": FIRST if r in new else RUNNING, "n_sched": n,
                "n_computed": r.computed, "is_prefill": prompt, "samples": r.computed + n >= r.prompt,
                "hit_tokens": r.cached if r in new else 0,
            })  # fmt: skip
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context
        self.arrive()
        queued = len(self.queue)
        self.now += duration
        done = []
        for r in batch:
            r.work += r.chunk
            r.computed += r.chunk
            r.chunk = 1
            if r.computed < r.prompt:
                continue
            r.output += 1
            if r.first_token_ns == base.NONE:
                r.first_token_ns = self.now
            if r.output == r.length:
                r.status, r.finished = "length", (number, self.now)
                done.append(r)
        if engine["prefill_chunking"] and prompts:
            budget = engine["max_batch_prefill_tokens"] - (len(batch) - 1)
            for r in reversed(batch):
                if r.computed < r.prompt:
                    r.chunk = max(1, min(r.prompt - r.computed, budget))
                    budget -= r.chunk
        for r in done:
            self.release(r)
        self.batch = others + [r for r in batch if r not in done]
        self.steps.append({
            "step": number, "t_sched_ns": began, "dur_ns": duration, "kind": kind, "n_waiting": queued,
            "n_sched": len(batch), "n_tokens": tokens, "prefill_tokens": prefill, "decode_tokens": tokens - prefill,
            "ctx_tokens": context, "n_admitted": len(new), "hit_tokens": hits,
            "blocks_admitted": sum(r.blocks for r in new), "n_finished": len(done),
        })  # fmt: skip

    def result(self, stalled: bool) -> base.Result:
        outcomes = {
            "out_first_sched_step": [r.first_scheduled[0] for r in self.requests],
            "out_first_sched_ns": [r.first_scheduled[1] for r in self.requests],
            "out_first_token_ns": [r.first_token_ns for r in self.requests],
            "out_finish_step": [r.finished[0] for r in self.requests],
            "out_finish_ns": [r.finished[1] for r in self.requests],
            "out_cached_tokens": [r.cached if r.first_scheduled[0] != base.NONE else base.NONE for r in self.requests],
            "out_n_output": [r.output for r in self.requests],
            "out_computed_tokens": [r.work for r in self.requests],
            "out_status": [r.status for r in self.requests],
        }
        steps, rows = base.by_column(self.steps), base.by_column(self.rows)
        return {"steps": steps, "schedule": rows, "requests": outcomes, "summary": {"stalled": stalled}}
