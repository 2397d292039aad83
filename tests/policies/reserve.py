"""The baseline that reserves the longest answer at admission, re-stated plainly. Nobody recorded it: it is ours."""

from dataclasses import dataclass

from pipeline.kernel import layout
from pipeline.replay.policies.reserve import Settings
from pipeline.replay.state import StepCost
from tests.policies import base, running

FIRST, DECODES = 1, 0


@dataclass
class Request:
    """A request; `length` counts prompt and answer so far."""

    row: int
    arrival_ns: int
    prompt: int
    out: int
    max_tokens: int
    length: int
    computed: int = 0
    blocks: int = 0
    status: str = "never_finished"
    first_scheduled: tuple[int, int] = (base.NONE, base.NONE)
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)


def twin(case: base.Case) -> base.Result:
    engine, held = case.engine, case.requests
    names = ("arrival_ns", "prompt_len", "out_len", "max_tokens", "prompt_len")
    columns = zip(*(held[name].tolist() for name in names), strict=True)
    requests = [Request(row, *values) for row, values in enumerate(columns)]
    coming = list(requests)
    waiting: list[Request] = []
    active: list[Request] = []
    usable = free = engine["num_gpu_blocks"] - 1
    longest = engine["max_model_len"]
    now, steps, rows = 0, [], []
    while True:
        while coming and coming[0].arrival_ns <= now:
            request = coming.pop(0)
            if request.prompt >= longest:
                request.status = "ignored"
            else:
                waiting.append(request)
        batch = [(request, 1, DECODES) for request in active]
        left = engine["max_num_batched_tokens"] - len(active)
        while waiting and len(active) < engine["max_num_seqs"]:
            head = waiting[0]
            answer = longest - head.prompt
            if head.max_tokens != base.NONE:
                answer = min(answer, head.max_tokens)
            blocks = -(-(head.prompt + answer) // engine["block_size"])
            if blocks > usable:
                waiting.pop(0).status = "ignored"
            elif blocks > free or head.prompt > left:
                break
            else:
                active.append(waiting.pop(0))
                head.blocks, head.first_scheduled = blocks, (len(steps), now)
                free -= blocks
                left -= head.prompt
                batch.append((head, head.prompt, FIRST))
        if not batch:
            if not coming:
                break
            now = max(now, coming[0].arrival_ns)
            continue
        tokens = sum(count for _, count, _ in batch)
        context = sum(request.computed + count for request, count, _ in batch)
        prefill = sum(count for _, count, event in batch if event == FIRST)
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context
        for place, (request, count, event) in enumerate(batch):
            rows.append({
                "step": len(steps), "pos": place, "req": request.row, "event": event, "n_sched": count,
                "n_computed": request.computed, "is_prefill": event == FIRST, "samples": True,
            })  # fmt: skip
        steps.append({
            "step": len(steps), "t_sched_ns": now, "dur_ns": duration, "n_running": len(active),
            "n_waiting": len(waiting), "n_sched": len(batch), "n_tokens": tokens, "prefill_tokens": prefill,
            "decode_tokens": tokens - prefill, "ctx_tokens": context,
            "n_admitted": sum(event == FIRST for _, _, event in batch), "n_resumed": 0, "n_preempted": 0,
            "free_blocks": free,
        })  # fmt: skip
        now += duration
        for request, count, _ in batch:
            request.computed += count
            request.length += 1
            if request.first_token_ns == base.NONE:
                request.first_token_ns = now
            if request.length >= min(request.prompt + request.out, longest):
                request.status, request.finished = "finished", (len(steps) - 1, now)
                active.remove(request)
                free += request.blocks
    outcomes = {
        "out_first_sched_step": [request.first_scheduled[0] for request in requests],
        "out_first_sched_ns": [request.first_scheduled[1] for request in requests],
        "out_first_token_ns": [request.first_token_ns for request in requests],
        "out_finish_step": [request.finished[0] for request in requests],
        "out_finish_ns": [request.finished[1] for request in requests],
        "out_n_output": [request.length - request.prompt for request in requests],
        "out_n_preempt": [0] * len(requests),
        "out_computed_tokens": [request.computed for request in requests],
        "out_status": [request.status for request in requests],
    }
    stalled = bool(waiting or active)
    return {
        "steps": base.by_column(steps), "schedule": base.by_column(rows), "requests": outcomes,
        "summary": {"stalled": stalled},
    }  # fmt: skip


STATUSES = {
    layout.FINISHED: "finished",
    layout.MAX_MODEL_LEN: "finished",
    layout.REJECTED: "ignored",
    layout.NEVER_FINISHED: "never_finished",
}


def settings(engine: dict, **more) -> Settings:
    """Return a case's settings as the compiled engine takes them."""
    names = ("block_size", "num_gpu_blocks", "max_model_len", "max_num_batched_tokens", "max_num_seqs")
    return Settings(**{name: engine[name] for name in names}, **more)


def cost(case: base.Case) -> StepCost:
    engine = case.engine
    most = engine["max_num_batched_tokens"] + engine["max_num_seqs"]
    return StepCost.whole(engine["a_ns"], engine["b_ns"], engine["c_ns"], most)


def batch(case: base.Case):
    """Return a case's requests as the compiled engine takes them."""
    return running.batch(case.requests | {"max_tokens": case.requests["out_len"]}, stated=case.requests["max_tokens"])


def kernel(case: base.Case) -> base.Result:
    return recorded_form(running.replay(settings(case.engine, decisions=True), cost(case), [batch(case)]))


def recorded_form(result: dict) -> base.Result:
    """Return what the compiled engine made in recorded names."""
    return {
        "steps": running.steps(result),
        "schedule": running.schedule(result, {layout.CONTINUED: DECODES, layout.ADMITTED: FIRST}),
        "requests": running.outcomes(result, STATUSES),
        "summary": {"stalled": result["state"].stalled},
    }
