"""Made-up answers about a run, as rows, for tests that look at what the report makes of them."""

import copy
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.report.run import Row, Run

START = datetime(2026, 3, 2, 9, 0)
LONG_MS = {"ttft": 120.0, "tpot": 18.0, "itl": 15.0, "itl_request_mean": 17.0, "e2e": 3900.0, "queue": 4.0}

MANIFEST: dict[str, Any] = {
    "version": "run/2",
    "run_id": "0123456789abcdef",
    "engine_version": "servecast 0.1.0 vllm/0.33.0",
    "config": {
        "engine": {
            "policy": "vllm",
            "block_size": 16,
            "num_gpu_blocks": 28000,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "enable_prefix_caching": True,
        },
        "hardware": {"gpu": "h100-80gb-sxm", "model": "llama-3.1-8b", "frontend_ms": 5.0},
        "load": {"kind": "open", "rate_scale": 1.0, "timeout_s": None, "queue_limit": None},
        "slo": {"ttft_ms": 1000.0, "tpot_ms": 50.0, "e2e_ms": None},
        "report": {"time_zone": "Europe/Zurich"},
    },
    "config_digest": "c0ffee00c0ffee00",
    "trace": {
        "path": "bank.csv",
        "digest": "feed00feed00feed",
        "rows": 10_000,
        "replayed": 9_870,
        "rejected_records": 12,
        "where": None,
        "spread_ticks": None,
        "models": {"m": 1.0},
        "span_us": 3_600_000_000,
        "with_prefix": 9_000,
    },
    "hardware": {
        "gpu": "h100-80gb-sxm",
        "gpu_name": "NVIDIA H100 80GB SXM",
        "model": "llama-3.1-8b",
        "tensor_parallel_size": 1,
        "weights_gib": 14.96,
        "kv_gib": 54.7,
        "block_size": 16,
        "usable_blocks": 27999,
        "num_gpu_blocks": 28000,
    },
    "unmodelled": ["LoRA", "beam search"],
    "warnings": [],
    "counts": {
        "outcomes": {"finished": 9_850, "rejected": 20, "not_replayed": 130},
        "steps": 90_000,
        "preemptions": 3,
        "stalled": False,
    },
}


BUSY: Row = {
    "requests": 9_870,
    "not_replayed": 130,
    "duration_s": 3_640.0,
    "offered_rps": 5.5,
    "completed_rps": 5.41,
    "goodput_rps": 5.35,
    "slo_share": 0.987,
    "input_tokens_per_s": 6_350.0,
    "output_tokens_per_s": 1_160.0,
    "users_mean": 24.0,
    "users_peak": 61,
    "ttft_p50_ms": 120.0,
    "ttft_p95_ms": 380.0,
    "tpot_p50_ms": 18.0,
    "tpot_p95_ms": 32.0,
    "itl_p95_ms": 41.0,
    "e2e_p50_ms": 3_900.0,
    "e2e_p95_ms": 9_800.0,
    "queue_p95_ms": 24.0,
    "kv_mean_share": 0.38,
    "kv_peak_share": 0.71,
    "busy_share": 0.97,
    "hit_share": 0.42,
    "preemptions": 0,
}


_OBSERVED = (("mean", 1.2), ("p50", 1.0), ("p95", 3.0), ("p99", 5.0))


def answers(points: int = 120, clock: bool = True, tenants: int = 4) -> dict[str, list[Row]]:
    """Return rows for every answer of the page: an hour of traffic that rises and falls."""
    wave = [math.sin(math.pi * (i + 0.5) / points) for i in range(points)]
    width = 3_640.0 / points
    times = [
        {
            "run_id": MANIFEST["run_id"],
            "bucket": i,
            "start_s": i * width,
            "width_s": width,
            "start_time": START + timedelta(seconds=i * width) if clock else None,
        }
        for i in range(points)
    ]
    quantiles = [i / 200 for i in range(201)]
    return {
        "headline": [BUSY],
        "latency": [_percentiles(m, v) for m, v in LONG_MS.items()],
        "latency_in_window": [_percentiles(m, 1.05 * v) for m, v in LONG_MS.items() if m != "itl"],
        "latency_cdf": [
            {"metric": m, "share": q, "value_ms": v * math.exp(2.2 * (q - 0.5) + 3 * q**12)}
            for m, v in LONG_MS.items()
            for q in quantiles
        ],
        "observed_error": [
            {
                "metric": m,
                "requests": 9_000,
                **{f"observed_{of}_ms": LONG_MS[m] * scale for of, scale in _OBSERVED},
                **{f"predicted_{of}_ms": LONG_MS[m] * scale * 1.04 for of, scale in _OBSERVED},
                **{f"{of}_error_share": 0.04 for of, _ in _OBSERVED},
                "request_error_share": 0.061,
            }
            for m in ("ttft", "tpot", "e2e")
        ],
        "observed_cdf": [
            {"metric": m, "side": side, "share": q, "value_ms": LONG_MS[m] * scale * math.exp(2.2 * (q - 0.5))}
            for m in ("ttft", "tpot", "e2e")
            for side, scale in (("observed", 1.0), ("predicted", 1.04))
            for q in quantiles[::2]
        ],
        "latency_by_minute": [
            {"start_s": t["start_s"], "start_time": t["start_time"], **_percentiles(m, v * (0.6 + w))}
            for m, v in LONG_MS.items()
            for t, w in zip(times[::2], wave[::2], strict=True)
        ],
        "load_over_time": [
            {
                **t,
                "arrivals_per_s": 8 * w,
                "completed_per_s": 7.8 * w,
                "unanswered_per_s": 0.0,
                "users_mean": 40 * w,
                "users_min": int(30 * w),
                "users_max": int(52 * w),
                "input_tokens_per_s": 9_000 * w,
                "output_tokens_per_s": 1_700 * w,
                "hit_share": 0.3 + 0.2 * w,
                "slo_share": 1 - 0.05 * w,
                "ttft_p95_ms": 300 * w,
            }
            for t, w in zip(times, wave, strict=True)
        ],
        "engine_over_time": [
            {
                **t,
                "replica": 0,
                "steps": 800,
                "busy_share": 0.97,
                "step_mean_ms": 14.0,
                "running_mean": 38 * w,
                "running_min": int(29 * w),
                "running_max": int(50 * w),
                "waiting_mean": 2 * w,
                "waiting_min": 0,
                "waiting_max": int(9 * w),
                "kv_mean_share": 0.6 * w,
                "kv_min_share": 0.5 * w,
                "kv_max_share": 0.71 * w,
                "cached_mean_share": 0.9 * w,
                "prefill_tokens_per_s": 5_200 * w,
                "output_tokens_per_s": 1_700 * w,
                "hit_tokens_per_s": 3_800 * w,
                "preempted_per_s": 0.0,
            }
            for t, w in zip(times, wave, strict=True)
        ],
        "slo_attainment": [_slo("chat", 8_000, 7_950), _slo("batch", 1_870, 1_790)],
        "throughput": [
            {
                "requests": 9_870,
                "completed": 9_850,
                "within_slo": 9_740,
                "slo_share": 0.987,
                "duration_s": 3_640.0,
                "offered_rps": 5.5,
                "completed_rps": 5.41,
                "goodput_rps": 5.35,
                "input_tokens_per_s": 6_350.0,
                "computed_tokens_per_s": 4_830.0,
                "output_tokens_per_s": 1_160.0,
                "goodput_output_tokens_per_s": 1_140.0,
            }
        ],
        "kv_memory": [
            {
                "usable_blocks": 27_999,
                "mean_share": 0.38,
                "p95_share": 0.66,
                "peak_share": 0.71,
                "above_90_share": 0.0,
                "cached_mean_share": 0.9,
                "cached_peak_share": 0.98,
                "evicted_blocks": 120_000,
            }
        ],
        "prefix_cache": [
            {
                "prompt_tokens": 23_000_000,
                "hit_tokens": 9_660_000,
                "hit_share": 0.42,
                "resumed_hit_tokens": 0,
                "estimated_us_per_token": 32.5,
                "estimated_saved_s": 314.0,
                "estimated_saved_share": 0.081,
            }
        ],
        "preemptions": [
            {
                "preemptions": 0,
                "requests_preempted": 0,
                "preempted_share": 0.0,
                "computed_tokens": 17_600_000,
                "recomputed_tokens": 0,
                "recomputed_share": 0.0,
                "resumed_hit_tokens": 0,
            }
        ],
        "waiting_queue": [
            {
                "mean_requests": 0.4,
                "p95_requests": 3,
                "peak_requests": 9,
                "waiting_share": 0.03,
                "wait_p50_ms": 4.0,
                "wait_p95_ms": 24.0,
                "wait_max_ms": 310.0,
            }
        ],
        "steady_state": [
            {
                "run_id": MANIFEST["run_id"],
                "from_s": 182.0,
                "to_s": 3_600.0,
                "from_time": START + timedelta(seconds=182) if clock else None,
                "to_time": START + timedelta(seconds=3_600) if clock else None,
                "settled": True,
                "before_requests": 410,
                "requests": 9_460,
                "after_s": 40.0,
                "output_tokens": 4_100_000,
                "output_tokens_per_s": 1_199.5,
                "running_mean": 24.6,
            }
        ],
        "step_summary": [
            {
                "steps": 90_000,
                "busy_share": 0.97,
                "step_mean_ms": 14.0,
                "step_p50_ms": 12.8,
                "step_p95_ms": 31.0,
                "step_p99_ms": 60.0,
                "step_max_ms": 190.0,
                "batch_mean": 22.0,
                "batch_time_mean": 26.0,
                "batch_p95": 47,
                "batch_max": 61,
                "tokens_mean": 150.0,
                "prefill_step_share": 0.1,
            }
        ],
        "batch_size_histogram": [
            {
                "from_requests": i,
                "to_requests": i + 1,
                "steps": 100 + i,
                "step_share": (62 - i) / 1_953,
                "time_share": (i + 1) / 1_953,
            }
            for i in range(62)
        ],
        "step_time_histogram": [
            {
                "from_ms": 6 * 1.1**i,
                "to_ms": 6 * 1.1 ** (i + 1),
                "steps": 10,
                "step_share": 0.7 * 0.3 ** abs(i - 8),
                "time_share": 0.6 * 0.4 ** abs(i - 9),
            }
            for i in range(36)
        ],
        "traffic_by_tenant": [_traffic("tenant", f"desk-{i}", 4_000 - i) for i in range(tenants)],
        "traffic_by_class": [_traffic("class", "chat", 8_000), _traffic("class", "batch", 1_870)],
        "traffic_by_model": [_traffic("model", None, 9_870)],
        "requests_by_status": [
            {
                "log_status": "ok",
                "outcome": "finished",
                "requests": 9_850,
                "request_share": 0.985,
                "input_tokens": 23_000_000,
                "output_tokens": 4_200_000,
            },
            {
                "log_status": "ok",
                "outcome": "rejected",
                "requests": 20,
                "request_share": 0.002,
                "input_tokens": 4_000_000,
                "output_tokens": 0,
            },
            {
                "log_status": "error",
                "outcome": "not_replayed",
                "requests": 130,
                "request_share": 0.013,
                "input_tokens": None,
                "output_tokens": None,
            },
        ],
        "unfinished_requests": [
            {
                "request": 7,
                "request_id": "r-7",
                "tenant": "desk-0",
                "class": "chat",
                "outcome": "rejected",
                "arrival_s": 12.5,
                "stay_s": 0.0,
                "input_tokens": 200_000,
                "output_tokens": 0,
                "preemptions": 0,
            }
        ],
    }


def run(rows: dict[str, list[Row]] | None = None, manifest: dict[str, Any] | None = None, **replaced: list[Row]) -> Run:
    """Return a run that answers with the given rows, those of `answers` where a name is missing."""
    known = answers() | (rows or {}) | replaced
    return Run(Path("runs/0123456789abcdef"), manifest or copy.deepcopy(MANIFEST), lambda name, params: known[name])


def _percentiles(metric: str, value: float) -> Row:
    return {
        "metric": metric,
        "samples": 9_850,
        "mean_ms": 1.2 * value,
        "p50_ms": value,
        "p90_ms": 2.4 * value,
        "p95_ms": 3.2 * value,
        "p99_ms": 6.0 * value,
        "max_ms": 14.0 * value,
    }


def _slo(name: str | None, requests: int, within: int) -> Row:
    return {
        "class": name,
        "ttft_slo_ms": 1_000.0,
        "tpot_slo_ms": 50.0,
        "e2e_slo_ms": None,
        "requests": requests,
        "within_slo": within,
        "slo_share": within / requests,
        "ttft_missed": requests - within - 10,
        "tpot_missed": 0,
        "e2e_missed": 0,
        "unanswered": 10,
        "goodput_rps": within / 3_640,
    }


def _traffic(column: str, name: str | None, requests: int) -> Row:
    return {
        column: name,
        "requests": requests,
        "request_share": requests / 9_870,
        "completed": requests - 5,
        "input_tokens": 2_300 * requests,
        "hit_tokens": 960 * requests,
        "hit_share": 0.42,
        "output_tokens": 420 * requests,
        "token_share": requests / 9_870,
        "ttft_p95_ms": 380.0,
        "tpot_p95_ms": 32.0,
        "e2e_p95_ms": 9_800.0,
        "slo_share": 0.987,
        "preemptions": 0,
    }
