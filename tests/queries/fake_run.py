"""Run folders for tests: a made-up engine, simple and consistent, whose tables look like those of a replay.

The schedule is nobody's: whole prompts in one step, a fixed cost per token, the youngest request gives way. What holds
is what readers of a run folder rely on: stamps agree with steps, counts with rows, gaps with missing tokens.
"""

import json
import random
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import schema

BLOCK_TOKENS = 16
ENGINE_LIMITS = ("block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching")
START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
CONFIG = {
    "engine": {
        "policy": "vllm",
        "block_size": BLOCK_TOKENS,
        "num_gpu_blocks": 1201,
        "max_model_len": 4096,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 48,
        "max_num_active_seqs": 48,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "scheduling_policy": "fcfs",
        "async_scheduling": True,
        "gpu_memory_utilization": 0.9,
        "tensor_parallel_size": 1,
    },
    "hardware": {
        "gpu": "h100-80gb-sxm",
        "model": "llama-3.1-8b",
        "weight_dtype": "bf16",
        "kv_cache_dtype": "bf16",
        "step_overhead_ms": 0.8,
        "frontend_ms": 20.0,
    },
    "load": {"kind": "open", "rate_scale": 1.0, "timeout_s": 6.0, "queue_limit": 20},
    "slo": {
        "ttft_ms": 1000.0,
        "tpot_ms": 50.0,
        "e2e_ms": None,
        "batch": {"ttft_ms": 10_000.0, "tpot_ms": None, "e2e_ms": None},
    },
    "report": {"time_zone": "Europe/Berlin"},
}


@dataclass
class Request:
    """One trace row and what became of it; fields are columns of `requests`."""

    request: int
    tenant: str
    kind: str
    log_status: str
    arrival_ns: int
    input_tokens: int
    wanted_tokens: int
    cached_tokens: int
    outcome: str = "never_finished"
    first_scheduled_ns: int | None = None
    first_token_ns: int | None = None
    finish_ns: int | None = None
    first_token_step: int | None = None
    finish_step: int | None = None
    output_tokens: int = 0
    resumed_cached_tokens: int = 0
    computed_tokens: int = 0
    preemptions: int = 0
    replica: int | None = None
    fresh: bool = field(default=True, repr=False)

    def blocks(self) -> int:
        """KV blocks that hold its prompt and the tokens generated so far."""
        return -(-(self.input_tokens + self.output_tokens) // BLOCK_TOKENS)


def made_up_requests(count: int, seed: int, rate_per_s: float = 14.0) -> list[Request]:
    """Return trace rows of two classes and three tenants, some of them not replayable."""
    rng = random.Random(seed)
    arrival_ns, rows = 0, []
    for number in range(count):
        kind = "chat" if rng.random() < 0.8 else "batch"
        prompt = min(4500, max(8, int(rng.lognormvariate(5.6, 1.0))))
        status = rng.choices(["ok", "cancelled", "error", "throttled"], [0.93, 0.03, 0.02, 0.02])[0]
        wanted = 1 if rng.random() < 0.03 else min(600, max(2, int(rng.lognormvariate(4.3, 0.9))))
        cached = prompt // 2 // BLOCK_TOKENS * BLOCK_TOKENS if kind == "chat" and rng.random() < 0.5 else 0
        rows.append(Request(number, rng.choice("xyz"), kind, status, arrival_ns, prompt, wanted, cached))
        arrival_ns += 1000 * int(rng.expovariate(rate_per_s / (1.6 if number % 700 < 350 else 0.7)) * 1e6)
    return rows


def serve(rows: list[Request], replica: int, config: dict) -> tuple[list[dict], list[dict]]:
    """Run the made-up engine over the requests of one replica; fills them in and returns its steps and gaps."""
    engine, load = config["engine"], config["load"]
    total_blocks = engine["num_gpu_blocks"] - 1
    timeout_ns = None if load["timeout_s"] is None else int(load["timeout_s"] * 1e9)
    coming, waiting, running = deque(rows), deque(), []
    last_token: dict[int, tuple[int, int]] = {}
    steps, gaps, now_ns, prefix_blocks = [], [], 0, 0

    def arrive() -> None:
        while coming and coming[0].arrival_ns <= now_ns:
            row = coming.popleft()
            row.replica = replica
            if row.input_tokens >= engine["max_model_len"]:
                row.outcome, row.finish_ns, row.replica = "rejected", row.arrival_ns, None
            elif load["queue_limit"] is not None and len(waiting) >= load["queue_limit"]:
                row.outcome, row.finish_ns, row.replica = "queue_full", row.arrival_ns, None
            else:
                waiting.append(row)

    def give_up() -> None:
        for row in [*running, *waiting]:
            if timeout_ns is not None and row.arrival_ns + timeout_ns <= now_ns:
                row.outcome, row.finish_ns = "timed_out", row.arrival_ns + timeout_ns
                (running if row in running else waiting).remove(row)

    while coming or waiting or running:
        if not waiting and not running:
            now_ns = max(now_ns, coming[0].arrival_ns)
        arrive()
        give_up()
        if not waiting and not running:
            continue
        preempted = 0
        while sum(row.blocks() for row in running) > total_blocks:
            row = running.pop()
            row.preemptions += 1
            waiting.appendleft(row)
            preempted += 1
        chunks, admitted, resumed, hits = {}, 0, 0, 0
        while waiting and not preempted and len(running) < engine["max_num_seqs"]:
            row = waiting[0]
            if sum(other.blocks() for other in running) + row.blocks() > total_blocks:
                break
            running.append(waiting.popleft())
            hit = row.cached_tokens if row.fresh else row.input_tokens // 4
            chunks[row.request] = row.input_tokens + row.output_tokens - hit
            hits += hit
            admitted, resumed = admitted + row.fresh, resumed + (not row.fresh)
            if row.fresh:
                row.first_scheduled_ns, row.fresh = now_ns, False
            else:
                row.resumed_cached_tokens += hit
        step, prefill = len(steps), sum(chunks.values())
        used = sum(row.blocks() for row in running)
        contexts = {row.request: row.input_tokens + row.output_tokens for row in running}
        decoding = [n for n in contexts if n not in chunks]
        duration_ns = 6_000_000 + 21_000 * prefill + 150_000 * len(decoding) + 90 * sum(contexts.values())
        prefix_blocks = min(total_blocks, max(used, prefix_blocks + prefill // BLOCK_TOKENS))
        steps.append(
            {
                "step": step,
                "scheduled_ns": steps[-1]["start_ns"] if steps and now_ns == _end(steps[-1]) else now_ns,
                "start_ns": now_ns,
                "duration_ns": duration_ns,
                "running": len(running),
                "waiting": len(waiting),
                "scheduled": len(running),
                "sampled": len(running),
                "prefill_tokens": prefill,
                "decode_tokens": len(decoding),
                "context_tokens": sum(contexts.values()),
                "decode_context_tokens": sum(contexts[n] for n in decoding),
                "prefill_area": sum(c * (contexts[n] - c + c / 2) for n, c in chunks.items()),
                "held_tokens": sum(contexts.values()),
                "admitted": admitted,
                "resumed": resumed,
                "preempted": preempted,
                "hit_tokens": hits,
                "free_blocks": total_blocks - used,
                "cached_blocks": prefix_blocks,
                "evicted_blocks": 0,
            }
        )
        now_ns += duration_ns
        for row in list(running):
            row.computed_tokens += chunks.get(row.request, 1)
            row.output_tokens += 1
            if row.first_token_ns is None:
                row.first_token_ns, row.first_token_step = now_ns, step
            elif last_token[row.request][0] != step - 1:
                before, end_ns = last_token[row.request]
                gaps.append(
                    {
                        "request": row.request,
                        "replica": replica,
                        "step": step,
                        "previous_step": before,
                        "gap_ns": now_ns - end_ns,
                    }
                )
            last_token[row.request] = (step, now_ns)
            row.finish_step = step
            at_limit = row.input_tokens + row.output_tokens >= engine["max_model_len"]
            if row.output_tokens == row.wanted_tokens or at_limit:
                row.outcome = "cancelled" if row.log_status == "cancelled" else "finished"
                if row.output_tokens < row.wanted_tokens:
                    row.outcome = "max_model_len"
                row.finish_ns = now_ns
                running.remove(row)
    return steps, gaps


def write(
    folder: Path,
    count: int = 2000,
    seed: int = 1,
    replicas: int = 1,
    part_rows: int = 4096,
    num_gpu_blocks: int = 1201,
    **load,
) -> Path:
    """Write a run folder of `count` made-up trace rows and return it; `load` overrides settings of `[load]`."""
    config = json.loads(json.dumps(CONFIG))
    config["engine"]["num_gpu_blocks"] = num_gpu_blocks
    config["load"] |= load
    rows = made_up_requests(count, seed)
    for row in rows:
        if row.log_status in ("error", "throttled"):
            row.outcome = "not_replayed"
    replayed = [row for row in rows if row.outcome != "not_replayed"]
    steps, gaps = {}, []
    for replica in range(replicas):
        steps[replica], found = serve(replayed[replica::replicas], replica, config)
        gaps += found
    write_tables(folder, [_request_row(row) for row in rows], steps, gaps, part_rows)
    write_manifest(folder, f"{seed:016x}", config, [row.outcome for row in rows], steps)
    return folder


def write_tables(folder: Path, requests: list[dict], steps: dict[int, list[dict]], gaps: list[dict], part_rows: int):
    """Write the Parquet files of a run; columns that a row lacks are null."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(schema.REQUESTS, requests, folder / "requests.parquet")
    _write(schema.GAPS, sorted(gaps, key=lambda row: (row["request"], row["step"])), folder / "gaps.parquet")
    for replica, rows in steps.items():
        home = folder / "steps" / f"replica={replica}"
        home.mkdir(parents=True, exist_ok=True)
        for part, start in enumerate(range(0, max(len(rows), 1), part_rows)):
            _write(schema.STEPS, rows[start : start + part_rows], home / f"part-{part:05d}.parquet")


def write_manifest(folder: Path, run_id: str, config: dict, outcomes: list[str], steps: dict[int, list[dict]]) -> None:
    """Write the run.json of a run whose tables have these rows."""
    left_out = outcomes.count("not_replayed")
    manifest = {
        "version": schema.RUN_VERSION,
        "run_id": run_id,
        "engine_version": "servecast 0.1.0 vllm/0.33.0",
        "config": config,
        "config_digest": "0" * 64,
        "trace": {
            "path": "made_up.parquet",
            "digest": "1" * 64,
            "rows": len(outcomes),
            "replayed": len(outcomes) - left_out,
            "rejected_records": 3,
            "where": None,
            "spread_ticks": None,
            "models": {"llama": 1.0},
            "span_us": 0,
            "with_prefix": 0,
        },
        "hardware": {
            "gpu": config["hardware"]["gpu"],
            "gpu_name": "H100 SXM 80 GB",
            "model": config["hardware"]["model"],
            "tensor_parallel_size": 1,
            "weights_gib": 15.0,
            "kv_gib": 2.3,
            "overhead_gib": 3.0,
            "kv_bytes_per_token": 131072,
            "num_gpu_blocks": config["engine"]["num_gpu_blocks"],
            "usable_blocks": config["engine"]["num_gpu_blocks"] - 1,
            **{name: config["engine"][name] for name in ENGINE_LIMITS},
            "kv_tokens": (config["engine"]["num_gpu_blocks"] - 1) * BLOCK_TOKENS,
            "step_time": {"config": None, "estimate": True, "source": "made up", "terms": {"c0": 6.0}},
        },
        "unmodelled": ["the schedule of this run is made up"],
        "warnings": [],
        "counts": {
            "outcomes": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
            "steps": sum(map(len, steps.values())),
            "preemptions": sum(row.get("preempted") or 0 for rows in steps.values() for row in rows),
            "stalled": False,
        },
    }
    (folder / "run.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _end(step: dict) -> int:
    return step["start_ns"] + step["duration_ns"]


def _request_row(row: Request) -> dict:
    """Return a row of `requests`; what was not replayed has no results, what never ran no tokens computed."""
    known = dict(vars(row))
    known["class"] = known.pop("kind")
    known |= {
        "request_id": f"made_up:{row.request}",
        "arrival_time": START + timedelta(microseconds=row.arrival_ns // 1000),
        "model": "llama",
        "deployment": "shared",
    }
    if row.outcome == "not_replayed":
        for name in ("output_tokens", "cached_tokens", "resumed_cached_tokens", "computed_tokens", "preemptions"):
            known[name] = None
    elif row.first_scheduled_ns is None:
        known["cached_tokens"] = None
    return known


def _write(table: schema.Table, rows: list[dict], path: Path) -> None:
    shape = schema.arrow_schema(table)
    columns = [pa.array([row.get(f.name) for row in rows], type=_plain(f.type)).cast(f.type) for f in shape]
    pq.write_table(pa.table(columns, schema=shape), path)


def _plain(kind: pa.DataType) -> pa.DataType:
    """pyarrow builds a dictionary column from text by a cast."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
