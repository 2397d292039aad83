"""TensorRT-LLM's capacity scheduler and micro-batch scheduler, re-stated plainly, and the compiled policy beside it."""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.kernel import layout
from pipeline.replay.policies.tensorrt_llm import Settings
from pipeline.replay.state import StepCost, TraceBatch
from tests.policies import base, running
from tests.policies.base import read

__all__ = ["RECOGNISES", "kernel", "read", "twin"]

RUNNING, FIRST, AGAIN, PAUSED = range(4)
NEVER = "never_finished"


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return str(config.get("oracle", "")).startswith("NVIDIA/TensorRT-LLM")


def twin(case: base.Case) -> base.Result:
    return Server(case).run()


@dataclass
class Request:
    """A request; `prompt` grows by what was generated when it is paused, and `max_new` shrinks by as much."""

    row: int
    arrival_ns: int
    prompt: int
    max_new: int
    left: int  # tokens until it ends
    priority: int
    kv: int = 0  # tokens in memory
    blocks: int = 0
    since_start: int = 0  # tokens generated since it last started
    output: int = 0
    paused: int = 0
    lost: int = 0  # tokens that the last pause cost
    work: int = 0
    status: str = NEVER
    first_scheduled: tuple[int, int] = (base.NONE, base.NONE)
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)

    @property
    def started(self) -> bool:
        return self.blocks > 0

    @property
    def generating(self) -> bool:
        return self.kv >= self.prompt

    @property
    def rest(self) -> int:
        return self.prompt - self.kv


class Server:
    """One replica."""

    def __init__(self, case: base.Case):
        self.engine = case.engine
        table = case.requests
        priorities = table["priority"].tolist() if "priority" in table else [0] * len(table["req"])
        self.requests = [
            Request(row, int(arrival), int(prompt), int(most), min(int(most), int(out)), int(priority))
            for row, (arrival, prompt, most, out, priority) in enumerate(
                zip(table["arrival_ns"], table["prompt_len"], table["max_tokens"], table["out_len"], priorities,
                    strict=True)
            )
        ]  # fmt: skip
        self.out_len = table["out_len"].tolist()
        self.coming = sorted(self.requests, key=lambda r: (r.arrival_ns, r.row))
        self.active: list[Request] = []
        self.free = self.engine["num_blocks"]
        self.now = 0
        self.steps: list[dict] = []
        self.rows: list[dict] = []

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.engine["block_size"])

    def one_step(self, r: Request) -> int:
        if r.generating:
            return self.blocks_of(r.kv + 1) - self.blocks_of(r.kv)
        return 0 if r.started else self.blocks_of(r.prompt)

    def to_end(self, r: Request) -> int:
        return self.blocks_of(min(r.prompt + r.max_new, self.engine["max_seq_len"])) - r.blocks

    def run(self) -> base.Result:
        stalled = False
        while True:
            while self.coming and self.coming[0].arrival_ns <= self.now:
                self.active.append(self.coming.pop(0))
            self.active.sort(key=lambda r: (-r.priority, r.arrival_ns, r.row))
            victims: list[Request] = []
            fitting = self.utilise(victims) if self.engine["policy"] == "MAX_UTILIZATION" else self.keep()
            for r in victims:
                self.pause(r)
            batch = self.micro_batch(fitting)
            if batch or victims:
                self.step(batch, victims, len(fitting))
                if len(self.steps) == self.engine["max_steps"]:
                    break
            elif self.coming:
                self.now = self.coming[0].arrival_ns
            else:
                stalled = bool(self.active)
                break
        return self.result(stalled)

    def keep(self) -> list[Request]:
        """GUARANTEED_NO_EVICT and STATIC_BATCH."""
        most, static = self.engine["max_batch_size"], self.engine["policy"] == "STATIC_BATCH"
        avail, fitting, pending = self.free, [], []
        for r in self.active:
            if len(fitting) >= most:
                break
            if r.generating:
                fitting.append(r)
                avail -= self.to_end(r)
            else:
                pending.append(r)
        if static and fitting:
            return fitting
        for r in pending:
            if len(fitting) >= most or self.to_end(r) > avail:
                break
            fitting.append(r)
            avail -= self.to_end(r)
        return fitting

    def utilise(self, victims: list[Request]) -> list[Request]:
        """MAX_UTILIZATION."""
        fitting: list[Request] = []
        need, free, at, end = 0, self.free, 0, len(self.active)
        while at < end:
            r = self.active[at]
            if len(fitting) < self.engine["max_batch_size"] and need + self.one_step(r) <= free:
                fitting.append(r)
                need += self.one_step(r)
                at += 1
                continue
            last = next((i for i in range(end - 1, at - 1, -1) if self.active[i].started), None)
            if last is None:
                break
            victims.append(self.active[last])
            free += self.active[last].blocks
            end = last
        return fitting

    def pause(self, r: Request) -> None:
        r.lost = r.kv
        self.free += r.blocks
        r.blocks = r.kv = 0
        r.prompt += r.since_start
        r.max_new -= r.since_start
        r.since_start = 0
        r.paused += 1

    def micro_batch(self, fitting: list[Request]) -> list[tuple[Request, int]]:
        most = self.engine["max_num_tokens"]
        generations: list[tuple[Request, int]] = []
        contexts: list[tuple[Request, int]] = []
        used = 0
        for r in fitting:
            if len(generations) + len(contexts) >= self.engine["max_batch_size"]:
                break
            if r.generating:
                if used + 1 > most:
                    break
                used += 1
                generations.append((r, 1))
            elif self.engine["chunking"] is not None:
                contexts.append((r, r.rest))
            else:
                if used + r.rest > most:
                    break
                used += r.rest
                contexts.append((r, r.rest))
        chunked = self.engine["chunking"] is not None
        if chunked and (sum(n for _, n in contexts) > most - used or any(n > most for _, n in contexts)):
            contexts = self.chunks([r for r, _ in contexts], most - used)
        return [(r, n) for r, n in contexts if n > 0] + generations

    def chunks(self, contexts: list[Request], left: int) -> list[tuple[Request, int]]:
        unit, most = self.engine["chunk_unit"], self.engine["max_num_tokens"]
        sizes = [0] * len(contexts)
        if self.engine["chunking"] == "FIRST_COME_FIRST_SERVED":
            for i, r in enumerate(contexts):
                size = min(r.rest, left, most)
                if size < r.rest:
                    size = size // unit * unit
                sizes[i] = size
                left -= size
        else:
            moved = True
            while moved and left > 0:
                moved = False
                for i, r in enumerate(contexts):
                    more = min(sizes[i] + unit, r.rest) - sizes[i]
                    if 0 < more <= left and sizes[i] + more <= most:
                        sizes[i] += more
                        left -= more
                        moved = True
        return list(zip(contexts, sizes, strict=True))

    def step(self, batch: list[tuple[Request, int]], victims: list[Request], fitting: int) -> None:
        number, began = len(self.steps), self.now
        events, prefill, context = [], 0, 0
        for position, (r, n) in enumerate(batch):
            event = RUNNING
            if not r.started:
                event = AGAIN if r.first_scheduled[0] != base.NONE else FIRST
                if event == FIRST:
                    r.first_scheduled = (number, began)
                r.blocks = self.blocks_of(r.prompt)
                self.free -= r.blocks
            elif r.generating and self.one_step(r):
                r.blocks += 1
                self.free -= 1
            events.append(event)
            prompt = not r.generating
            prefill += n if prompt else 0
            context += r.kv + n
            self.log(number, position, r, event, n, r.kv, prompt, r.kv + n >= r.prompt)
        for position, r in enumerate(victims):
            self.log(number, position, r, PAUSED, 0, r.lost, False, False)
        tokens = sum(n for _, n in batch)
        engine = self.engine
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context if tokens else 0
        self.steps.append({
            "step": number, "t_sched_ns": began, "dur_ns": duration, "n_active": sum(r.started for r in self.active),
            "n_waiting": sum(not r.started for r in self.active), "n_fitting": fitting, "n_sched": len(batch),
            "n_tokens": tokens, "prefill_tokens": prefill, "decode_tokens": tokens - prefill, "ctx_tokens": context,
            "n_admitted": events.count(FIRST), "n_resumed": events.count(AGAIN), "n_paused": len(victims),
            "free_blocks": self.free,
        })  # fmt: skip
        if number + 1 == engine["max_steps"]:
            return
        self.now += duration
        for r, n in batch:
            r.work += n
            r.kv += n
            if r.kv < r.prompt:
                continue
            r.since_start += 1
            r.output += 1
            r.left -= 1
            if r.first_token_ns == base.NONE:
                r.first_token_ns = self.now
            if r.left == 0:
                r.status = "stop" if r.output == self.out_len[r.row] else "length"
                r.finished = (number, self.now)
                self.free += r.blocks
                r.blocks = 0
                self.active.remove(r)

    def log(self, step, position, r, event, tokens, kv, prefill, samples) -> None:
        self.rows.append({
            "step": step, "pos": position, "req": r.row, "event": event, "n_sched": tokens, "n_computed": kv,
            "is_prefill": prefill, "samples": samples and tokens > 0,
        })  # fmt: skip

    def result(self, stalled: bool) -> base.Result:
        outcomes = {
            "out_first_sched_step": [r.first_scheduled[0] for r in self.requests],
            "out_first_sched_ns": [r.first_scheduled[1] for r in self.requests],
            "out_first_token_ns": [r.first_token_ns for r in self.requests],
            "out_finish_step": [r.finished[0] for r in self.requests],
            "out_finish_ns": [r.finished[1] for r in self.requests],
            "out_n_output": [r.output for r in self.requests],
            "out_n_paused": [r.paused for r in self.requests],
            "out_computed_tokens": [r.work for r in self.requests],
            "out_status": [r.status for r in self.requests],
        }
        steps, rows = base.by_column(self.steps), base.by_column(self.rows)
        return {"steps": steps, "schedule": rows, "requests": outcomes, "summary": {"stalled": stalled}}


EVENTS = {layout.CONTINUED: RUNNING, layout.ADMITTED: FIRST, layout.RESUMED: AGAIN, layout.LOST: PAUSED}
STATUSES = {layout.FINISHED: "stop", layout.NEVER_FINISHED: NEVER}


def kernel(case: base.Case) -> base.Result:
    """Replay a case with the compiled engine."""
    chosen = settings(case.engine, decisions=True)
    result = running.replay(chosen, cost(case.engine), [batch(case.requests)])
    steps, outcomes = running.steps(result), running.outcomes(result, STATUSES)
    return {
        "steps": steps | {
            "n_active": steps["n_running"], "n_paused": steps["n_preempted"], "n_fitting": result["own"]["fitting"],
        },
        "schedule": running.schedule(result, EVENTS),
        "requests": outcomes | {"out_n_paused": outcomes["out_n_preempt"]},
        "summary": {"stalled": result["state"].stalled},
    }  # fmt: skip


def settings(engine: dict, **more) -> Settings:
    """Return a case's settings as the compiled engine takes them."""
    return Settings(
        max_model_len=engine["max_seq_len"],
        tokens_per_block=engine["block_size"],
        num_blocks=engine["num_blocks"],
        max_batch_size=engine["max_batch_size"],
        max_num_tokens=engine["max_num_tokens"],
        capacity_scheduler_policy=engine["policy"],
        context_chunking_policy=engine["chunking"],
        chunk_unit_size=engine["chunk_unit"],
        max_steps=engine["max_steps"],
        **more,
    )


def cost(engine: dict) -> StepCost:
    return StepCost.whole(engine["a_ns"], engine["b_ns"], engine["c_ns"], engine["max_num_tokens"])


def batch(table: base.Table) -> TraceBatch:
    """Return requests as the compiled engine takes them: larger priorities are more urgent, as they are there."""
    shorter = table | {"max_tokens": np.minimum(table["max_tokens"], table["out_len"])}
    return replace(running.batch(shorter), max_tokens=table["max_tokens"])
