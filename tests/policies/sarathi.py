"""The five schedulers of sarathi-serve, re-stated plainly: sarathi, vllm, simple_chunking, orca, faster_transformer."""

from dataclasses import dataclass

import numpy as np

from pipeline.kernel import layout
from pipeline.replay.policies import orca, static
from pipeline.replay.policies.sarathi import UNLIMITED, SlotSettings
from pipeline.replay.policies.sarathi import Settings as SarathiSettings
from pipeline.replay.state import StepCost
from tests.policies import base, running
from tests.policies.base import read

__all__ = ["RECOGNISES", "kernel", "read", "twin"]

RUNNING, FIRST, AGAIN, PREEMPTED, IGNORED = 0, 1, 2, 3, 6
NEVER = "never_finished"


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return config.get("oracle") == "microsoft/sarathi-serve"


def twin(case: base.Case) -> base.Result:
    return Server(case).run()


@dataclass
class Request:
    """A request; `prompt` grows by what was generated when it is preempted."""

    row: int
    arrival_ns: int
    prompt: int
    max_tokens: int
    since_start: int = 0  # tokens generated since it was last taken in
    computed: int = 0  # tokens of the prompt that have been computed
    blocks: int = 0
    output: int = 0
    preemptions: int = 0
    work: int = 0  # tokens computed over its life
    status: str = NEVER
    first_scheduled: tuple[int, int] = (base.NONE, base.NONE)  # step, ns
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)

    @property
    def length(self) -> int:
        return self.prompt + self.since_start

    @property
    def rest(self) -> int:
        """Tokens of the prompt that have not been computed."""
        return self.prompt - self.computed

    @property
    def in_memory(self) -> int:
        return self.computed + max(self.since_start - 1, 0)


class Server:
    """One replica: its clock, its memory, and the decision of each of the five schedulers."""

    def __init__(self, case: base.Case):
        self.engine = engine = case.engine
        columns = [case.requests[name].tolist() for name in ("arrival_ns", "prompt_len", "max_tokens")]
        self.requests = [Request(row, *values) for row, values in enumerate(zip(*columns, strict=True))]
        self.coming = sorted(self.requests, key=lambda request: (request.arrival_ns, request.row))
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.free = engine["num_gpu_blocks"]
        self.watermark = int(0.01 * engine["num_gpu_blocks"])
        self.limit = engine["max_model_len"]
        self.whole_slots = engine["scheduler"] in ("orca", "faster_transformer")
        if self.whole_slots:
            self.watermark = 0
        if engine["scheduler"] == "vllm":
            self.limit = min(self.limit, engine["max_batched_tokens"] or self.limit)
        self.prefill_turn = True  # of simple_chunking
        self.sizes = self.chunk_sizes() if engine["dynamic_chunking"] else []
        self.now = 0
        self.steps: list[dict] = []
        self.rows: list[dict] = []

    def run(self) -> base.Result:
        stalled = False
        decide = getattr(self, self.engine["scheduler"])
        while True:
            while self.coming and self.coming[0].arrival_ns <= self.now:
                self.waiting.append(self.coming.pop(0))
            self.batch: list[tuple[Request, int, int]] = []  # request, tokens, event
            self.victims: list[Request] = []
            self.ignored: list[Request] = []
            decide()
            if self.batch or self.victims or self.ignored:
                self.step()
                if len(self.steps) == self.engine["max_steps"]:
                    break
            elif self.coming:
                self.now = self.coming[0].arrival_ns
            else:
                stalled = bool(self.waiting or self.running)
                break
        return self.result(stalled)

    # Decisions

    def sarathi(self) -> None:
        kept, prefilling = [], []
        queue = sorted(self.running, key=lambda request: request.arrival_ns)
        while queue:
            request = queue.pop(0)
            if request.rest > 0:
                prefilling.append(request)
            elif self.room(request, queue):
                kept.append(request)
        for request in prefilling:
            self.chunk(request)
        self.running = kept + prefilling
        self.admit_chunks()

    def simple_chunking(self) -> None:
        if self.prefill_turn:
            self.running.sort(key=lambda request: request.arrival_ns)
            for request in self.running:
                if request.rest > 0:
                    self.chunk(request)
            if not self.batch:
                self.admit_chunks()
            if self.batch:
                self.prefill_turn = False
                return
        self.decode()
        self.prefill_turn = True

    def vllm(self) -> None:
        used = 0
        while self.waiting:
            if self.ignore_head():
                continue
            length = self.waiting[0].length
            if not self.head_fits() or used + length > self.limit:
                break
            used += length
            self.admit(length)
        if not self.batch and not self.ignored:
            self.decode()

    def orca(self) -> None:
        self.decode()
        while self.waiting:
            if self.ignore_head():
                continue
            if not self.head_fits():
                break
            self.admit(self.waiting[0].length)

    def faster_transformer(self) -> None:
        if self.running:
            self.decode()
            return
        self.orca()

    def decode(self) -> None:
        """Every running request takes one token, in order of arrival; those that find no room are put out."""
        kept, queue = [], self.running
        if not self.whole_slots:
            queue = sorted(queue, key=lambda request: request.arrival_ns)
        while queue:
            request = queue.pop(0)
            if request.rest > 0 or self.room(request, queue):
                kept.append(request)
        self.running = kept

    # Parts of a decision

    def room(self, request: Request, behind: list[Request]) -> bool:
        """Decode once a block is free, putting out the last of those behind for it; false if it went itself."""
        if not self.whole_slots:
            while self.free < 1:
                victim = behind.pop() if behind else request
                self.put_out(victim)
                if victim is request:
                    return False
            if blocks_of(request.length, self.engine) > request.blocks:
                request.blocks += 1
                self.free -= 1
        self.batch.append((request, 1, RUNNING))
        return True

    def put_out(self, victim: Request) -> None:
        self.free += victim.blocks
        victim.blocks = 0
        self.victims.append(victim)
        self.waiting.insert(0, victim)

    def chunk(self, request: Request) -> None:
        if self.next_chunk(request) > 0:
            self.batch.append((request, self.next_chunk(request), RUNNING))

    def next_chunk(self, request: Request) -> int:
        size = self.engine["chunk_size"]
        if self.sizes:
            stages = len(self.sizes)
            stage = request.computed // -(-self.engine["chunk_schedule_max_tokens"] // stages)
            size = self.sizes[stage]
        return min(request.rest, size - sum(tokens for _, tokens, _ in self.batch))

    def chunk_sizes(self) -> list[int]:
        low, high = self.engine["low_chunk_size"], self.engine["high_chunk_size"]
        sizes = np.linspace(low, high, self.engine["chunk_schedule_stages"], dtype=np.int32)[::-1]
        step = min(32, low)
        return [int(size) for size in np.round(sizes / step) * step]

    def admit_chunks(self) -> None:
        while self.waiting:
            if self.ignore_head():
                continue
            if not self.head_fits() or self.next_chunk(self.waiting[0]) <= 0:
                break
            self.admit(self.next_chunk(self.waiting[0]))

    def ignore_head(self) -> bool:
        if self.waiting[0].length <= self.limit:
            return False
        self.ignored.append(self.waiting.pop(0))
        return True

    def needed(self, request: Request) -> int:
        return blocks_of(self.engine["max_model_len"] if self.whole_slots else request.length, self.engine)

    def head_fits(self) -> bool:
        fits = self.free - self.needed(self.waiting[0]) >= self.watermark
        return fits and len(self.running) < self.engine["max_num_seqs"]

    def admit(self, tokens: int) -> None:
        request = self.waiting.pop(0)
        request.blocks = self.needed(request)
        self.free -= request.blocks
        self.running.append(request)
        self.batch.append((request, tokens, AGAIN if request.preemptions or request in self.victims else FIRST))

    # The step

    def step(self) -> None:
        number, began = len(self.steps), self.now
        for position, victim in enumerate(self.victims):
            self.log(number, position, victim, PREEMPTED, 0, victim.in_memory)
            self.restart(victim)
        for position, request in enumerate(self.ignored):
            self.log(number, position, request, IGNORED, 0, 0)
            request.status, request.finished = "ignored", (number, began)
        rows = sorted(self.batch, key=lambda entry: entry[0].rest <= 0)
        for position, (request, tokens, event) in enumerate(rows):
            self.log(number, position, request, event, tokens, request.in_memory)
            if request.first_scheduled[0] == base.NONE:
                request.first_scheduled = (number, began)
        tokens = sum(count for _, count, _ in rows)
        prefill = sum(count for request, count, _ in rows if request.rest > 0)
        context = sum(request.in_memory + count for request, count, _ in rows)
        engine = self.engine
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context if tokens else 0
        events = [event for _, _, event in rows]
        self.steps.append({
            "step": number, "t_sched_ns": began, "dur_ns": duration, "n_running": len(self.running),
            "n_waiting": len(self.waiting), "n_sched": len(rows), "n_tokens": tokens, "prefill_tokens": prefill,
            "decode_tokens": tokens - prefill, "ctx_tokens": context, "n_admitted": events.count(FIRST),
            "n_resumed": events.count(AGAIN), "n_preempted": len(self.victims), "n_ignored": len(self.ignored),
            "free_blocks": self.free,
        })  # fmt: skip
        if number + 1 == engine["max_steps"]:
            return
        self.now += duration
        for request, count, _ in rows:
            self.deliver(request, count, number)

    def restart(self, victim: Request) -> None:
        victim.preemptions += 1
        victim.computed = 0
        victim.prompt += victim.since_start
        if self.engine["correct_restart_count"]:
            victim.max_tokens -= victim.since_start
        victim.since_start = 0

    def deliver(self, request: Request, count: int, step: int) -> None:
        request.work += count
        if request.rest > 0:
            request.computed += count
        if request.rest > 0:
            return
        request.since_start += 1
        request.output += 1
        if request.first_token_ns == base.NONE:
            request.first_token_ns = self.now
        if request.since_start >= request.max_tokens:
            request.status, request.finished = "length", (step, self.now)
            self.running.remove(request)
            self.free += request.blocks
            request.blocks = 0

    def log(self, step: int, position: int, request: Request, event: int, tokens: int, computed: int) -> None:
        prefill = tokens > 0 and request.rest > 0
        samples = tokens > 0 and request.rest <= (tokens if prefill else 0)
        self.rows.append({
            "step": step, "pos": position, "req": request.row, "event": event, "n_sched": tokens,
            "n_computed": computed, "is_prefill": prefill, "samples": samples,
        })  # fmt: skip

    def result(self, stalled: bool) -> base.Result:
        outcomes = {
            "out_first_sched_step": [request.first_scheduled[0] for request in self.requests],
            "out_first_sched_ns": [request.first_scheduled[1] for request in self.requests],
            "out_first_token_ns": [request.first_token_ns for request in self.requests],
            "out_finish_step": [request.finished[0] for request in self.requests],
            "out_finish_ns": [request.finished[1] for request in self.requests],
            "out_n_output": [request.output for request in self.requests],
            "out_n_preempt": [request.preemptions for request in self.requests],
            "out_computed_tokens": [request.work for request in self.requests],
            "out_status": [request.status for request in self.requests],
        }
        return {
            "steps": base.by_column(self.steps),
            "schedule": base.by_column(self.rows),
            "requests": outcomes,
            "summary": {"stalled": stalled},
        }


def blocks_of(tokens: int, engine: dict) -> int:
    return -(-tokens // engine["block_size"])


STATUSES = {layout.FINISHED: "length", layout.REJECTED: "ignored", layout.NEVER_FINISHED: NEVER}
EVENTS = {
    layout.CONTINUED: RUNNING,
    layout.ADMITTED: FIRST,
    layout.RESUMED: AGAIN,
    layout.LOST: PREEMPTED,
    layout.DROPPED: IGNORED,
}


def kernel(case: base.Case) -> base.Result:
    """Replay a case with the compiled engine."""
    engine = case.engine
    chosen = settings(engine, decisions=True)
    return recorded_form(running.replay(chosen, cost(engine, case.requests), [running.batch(case.requests)]))


def settings(engine: dict, **more) -> SlotSettings:
    """Return a case's settings as the compiled engine takes them."""
    more |= {name: engine[name] for name in ("block_size", "num_gpu_blocks", "max_num_seqs", "max_steps")}
    more |= {"max_model_len": UNLIMITED, "scheduler_max_model_len": engine["max_model_len"]}
    if engine["scheduler"] == "orca":
        return orca.Settings(**more)
    if engine["scheduler"] == "faster_transformer":
        return static.Settings(**more)
    same = ("chunk_size", "low_chunk_size", "high_chunk_size", "chunk_schedule_max_tokens", "chunk_schedule_stages")
    return SarathiSettings(
        **more,
        **{name: engine[name] for name in (*same, "correct_restart_count")},
        scheduler_type=engine["scheduler"],
        empty_turn_waits=True,
        max_batched_tokens=engine["max_batched_tokens"],
        enable_dynamic_chunking_schedule=engine["dynamic_chunking"],
    )


def cost(engine: dict, requests: base.Table) -> StepCost:
    """Return a case's step time, for more tokens than any step can hold."""
    longest = int((requests["prompt_len"] + requests["max_tokens"]).max())
    most = engine["max_num_seqs"] * (longest + 1)
    return StepCost.whole(engine["a_ns"], engine["b_ns"], engine["c_ns"], most)


def recorded_form(result: dict) -> base.Result:
    """Return what the compiled engine made in recorded names."""
    return {
        "steps": running.steps(result) | {"n_ignored": result["own"]["ignored"]},
        "schedule": running.schedule(result, EVENTS),
        "requests": running.outcomes(result, STATUSES),
        "summary": {"stalled": result["state"].stalled},
    }
