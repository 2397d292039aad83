"""S-LoRA's loop with the queues of VTC: first come first served, two kinds of counters, deficit round robin."""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from pipeline.kernel import layout
from pipeline.replay.policies.slora import Settings
from pipeline.replay.state import StepCost, TraceBatch
from tests.policies import base, running
from tests.policies.base import read

__all__ = ["RECOGNISES", "kernel", "read", "twin"]

PREFILL, DECODE = 0, 1
RUNNING, FIRST = 0, 1
NEVER = "never_finished"


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return config.get("oracle") == "Ying1123/VTC-artifact"


def twin(case: base.Case) -> base.Result:
    return Server(case).run()


@dataclass
class Request:
    row: int
    arrival_ns: int
    prompt: int
    max_tokens: int
    length: int  # tokens of its answer
    tenant: str
    stops: bool  # its answer ends before max_tokens, or with it
    output: int = 0
    status: str = NEVER
    first_scheduled: tuple[int, int] = (base.NONE, base.NONE)
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)


class Server:
    """One replica: queues by tenant, the plan of memory, and the counters."""

    def __init__(self, case: base.Case):
        self.engine = engine = case.engine
        table = case.requests
        columns = [table[name].tolist() for name in ("arrival_ns", "prompt_len", "max_tokens", "out_len", "tenant")]
        self.requests = [
            Request(row, arrival, prompt, most, min(most, out), tenant, out <= most)
            for row, (arrival, prompt, most, out, tenant) in enumerate(zip(*columns, strict=True))
        ]
        self.coming = deque(sorted(self.requests, key=lambda r: (r.arrival_ns, r.row)))
        weights = engine["fair_weights"]
        names = sorted({r.tenant for r in self.requests})
        self.weights = {name: weights[i] if i < len(weights) else 1 for i, name in enumerate(names)}
        self.fair = engine["policy"] != "fcfs"
        self.queues: dict[str, deque[Request]] = {}
        self.counters: dict[str, float] = {}
        self.ring: deque[str] = deque()
        self.blocked: str | None = None  # mdrr: the tenant whose candidate did not fit
        self.running: list[Request] = []
        self.now = 0
        self.waited = 0
        self.steps: list[dict] = []
        self.rows: list[dict] = []
        self.levels: list[dict] = []

    # Queues

    def append(self, r: Request) -> None:
        name = r.tenant if self.fair else ""
        queue = self.queues.setdefault(name, deque())
        queue.append(r)
        if not self.fair:
            return
        self.counters.setdefault(name, 0)
        if self.engine["policy"] == "mdrr_fair":
            if name not in self.ring:
                self.ring.append(name)
        elif self.engine["policy"] == "vtc_fair" and len(queue) == 1:
            others = [count for other, count in self.counters.items() if self.queues[other] and other != name]
            if others:
                self.counters[name] = max(self.counters[name], min(others))

    def charge(self, batch: list[Request]) -> None:
        sign = -1 if self.engine["policy"] == "mdrr_fair" else 1
        for r in batch:
            if self.fair:
                self.counters[r.tenant] += sign * self.engine["output_price"] / self.weights[r.tenant]

    def pick(self) -> list[Request]:
        if len(self.running) >= self.engine["running_max_req_size"]:
            return []
        self.plan = [(r.prompt + r.output, r.max_tokens - r.output - 1) for r in self.running]
        self.tokens = 0
        return self.pick_in_turn() if self.engine["policy"] == "mdrr_fair" else self.pick_least()

    def pick_least(self) -> list[Request]:
        picked: list[Request] = []
        while any(self.queues.values()):
            name = ""
            if self.fair:
                name = min((k for k in self.counters if self.queues[k]), key=lambda k: self.counters[k])
            r = self.queues[name][0]
            if not self.fits(r):
                break
            picked.append(self.queues[name].popleft())
            if self.fair:
                self.counters[name] += r.prompt * self.engine["input_price"] / self.weights[name]
        return picked

    def pick_in_turn(self) -> list[Request]:
        picked: list[Request] = []
        while self.ring:
            name = self.ring[0]
            if self.blocked == name and self.counters[name] < 0:
                self.blocked = None
                self.ring.rotate(-1)
                continue
            if self.counters[name] <= 0:
                self.counters[name] += self.engine["max_total_token_num"] / 20
            while self.counters[name] > 0 and self.queues[name]:
                r = self.queues[name][0]
                if not self.fits(r):
                    self.blocked = name
                    return picked
                picked.append(self.queues[name].popleft())
                self.counters[name] -= r.prompt * self.engine["input_price"] / self.weights[name]
            self.ring.popleft()
            if self.queues[name] or self.counters[name] < 0:
                self.ring.append(name)
        return picked

    def fits(self, r: Request) -> bool:
        """Plan memory to the end of everybody; the candidate stays in the plan, as in the real code."""
        self.plan.append((r.prompt + 1, r.max_tokens - 1))
        held, peak = 0, 0
        for place, (tokens, left) in enumerate(sorted(self.plan, key=lambda one: -one[1]), 1):
            held += tokens
            peak = max(peak, held + place * left)
        engine = self.engine
        if peak >= engine["max_total_token_num"] or len(self.plan) > engine["running_max_req_size"]:
            return False
        if self.tokens + r.prompt > engine["batch_max_tokens"]:
            return False
        self.tokens += r.prompt
        return True

    # Loop

    def run(self) -> base.Result:
        stalled = False
        while True:
            while self.coming and self.coming[0].arrival_ns <= self.now:
                self.append(self.coming.popleft())
            if not self.running or self.waited >= self.engine["max_wait_tokens"]:
                new = self.pick()
                if new:
                    self.step(PREFILL, new)
                    self.waited = 0
                elif self.running:
                    self.step(DECODE, self.running)
                elif self.coming:
                    self.now = self.coming[0].arrival_ns
                else:
                    stalled = any(self.queues.values())
                    break
            else:
                self.step(DECODE, self.running)
                self.waited += 1
            if len(self.steps) == self.engine["max_steps"]:
                break
        return self.result(stalled)

    def step(self, kind: int, batch: list[Request]) -> None:
        number, began, engine = len(self.steps), self.now, self.engine
        if kind == DECODE:
            self.charge(batch)
        tokens = context = 0
        for position, r in enumerate(batch):
            n = r.prompt if kind == PREFILL else 1
            computed = 0 if kind == PREFILL else r.prompt + r.output - 1
            tokens += n
            context += computed + n
            if kind == PREFILL:
                r.first_scheduled = (number, began)
            self.rows.append({
                "step": number, "pos": position, "req": r.row, "event": FIRST if kind == PREFILL else RUNNING,
                "n_sched": n, "n_computed": computed, "is_prefill": kind == PREFILL,
            })  # fmt: skip
        waiting = sum(len(queue) for queue in self.queues.values())
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context
        self.now += duration
        done = []
        for r in batch:
            r.output += 1
            if r.first_token_ns == base.NONE:
                r.first_token_ns = self.now
            if r.output == r.length:
                r.status, r.finished = "stop" if r.stops else "length", (number, self.now)
                done.append(r)
        if done:
            self.charge(batch)
        left = [r for r in batch if r not in done]
        self.running = self.running + left if kind == PREFILL else left
        self.steps.append({
            "step": number, "t_sched_ns": began, "dur_ns": duration, "kind": kind, "n_running": len(self.running),
            "n_waiting": waiting, "n_sched": len(batch), "n_tokens": tokens, "ctx_tokens": context,
            "n_admitted": len(batch) if kind == PREFILL else 0, "n_finished": len(done),
        })  # fmt: skip
        self.levels += [{"step": number, "tenant": name, "counter": float(n)} for name, n in self.counters.items()]

    def result(self, stalled: bool) -> base.Result:
        outcomes = {
            "out_first_sched_step": [r.first_scheduled[0] for r in self.requests],
            "out_first_sched_ns": [r.first_scheduled[1] for r in self.requests],
            "out_first_token_ns": [r.first_token_ns for r in self.requests],
            "out_finish_step": [r.finished[0] for r in self.requests],
            "out_finish_ns": [r.finished[1] for r in self.requests],
            "out_n_output": [r.output for r in self.requests],
            "out_status": [r.status for r in self.requests],
        }
        return {
            "steps": base.by_column(self.steps),
            "schedule": base.by_column(self.rows),
            "requests": outcomes,
            "counters": base.by_column(self.levels),
            "summary": {"stalled": stalled},
        }


def kernel(case: base.Case) -> base.Result:
    """Replay a case with the compiled engine."""
    names = tenants(case.requests)
    chosen = settings(case.engine, decisions=True, audit=True, most_tenants=len(names))
    result = running.replay(chosen, cost(case), [batch(case.requests)], step_rows=1 << 15)
    steps, own = running.steps(result), result["own"]
    outcomes = running.outcomes(result, {layout.FINISHED: "stop", layout.NEVER_FINISHED: NEVER})
    longer = (case.requests["out_len"] > case.requests["max_tokens"]) & (outcomes["out_status"] == "stop")
    return {
        "steps": steps | {
            "kind": own["kind"], "n_finished": own["finished"], "n_running": steps["n_running"] - own["finished"],
        },
        "schedule": running.schedule(result, {layout.CONTINUED: RUNNING, layout.ADMITTED: FIRST}),
        "requests": outcomes | {"out_status": np.where(longer, "length", outcomes["out_status"]).astype(object)},
        "counters": counters(result, names) if chosen.scheduler != "fcfs" else {},
        "summary": {"stalled": result["state"].stalled},
    }  # fmt: skip


def counters(result: dict, names: list[str]) -> dict:
    """Return the counters of the tenants seen so far after each step, in order of first appearance."""
    parts = result["state"].parts
    order = parts.seen[0, : int(parts.settings.seen[0])].tolist()
    levels = parts.levels[0, : len(result["steps"])]
    rows = [
        {"step": step, "tenant": names[tenant], "counter": float(levels[step, tenant])}
        for step in range(len(levels))
        for tenant in order
        if levels[step, tenant] == levels[step, tenant]
    ]
    return base.by_column(rows)


def tenants(table: base.Table) -> list[str]:
    """Return the names of the tenants; weights are listed in this order."""
    return sorted(set(table["tenant"].tolist()))


def settings(engine: dict, **more) -> Settings:
    """Return a case's settings as the compiled engine takes them."""
    names = ("max_total_token_num", "batch_max_tokens", "running_max_req_size", "max_wait_tokens")
    return Settings(
        max_model_len=1 << 30,
        scheduler=engine["policy"],
        fair_weights=tuple(engine["fair_weights"][: more.get("most_tenants", 1 << 30)]),
        max_steps=engine["max_steps"],
        **{name: engine[name] for name in (*names, "input_price", "output_price")},
        **more,
    )


def cost(case: base.Case) -> StepCost:
    engine = case.engine
    most = engine["batch_max_tokens"] + engine["running_max_req_size"]
    return StepCost.whole(engine["a_ns"], engine["b_ns"], engine["c_ns"], most)


def batch(table: base.Table) -> TraceBatch:
    """Return requests as the compiled engine takes them, tenants by number."""
    names = tenants(table)
    shorter = table | {"max_tokens": np.minimum(table["max_tokens"], table["out_len"])}
    numbers = np.array([names.index(name) for name in table["tenant"].tolist()], np.int32)
    return replace(running.batch(shorter), max_tokens=table["max_tokens"], tenant=numbers)
