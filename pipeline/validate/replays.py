"""Whole replays against real vLLM, request by request: the same arrivals, prompts and lengths on the same settings."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.hardware import Deployment
from pipeline.validate import served
from pipeline.validate.checks import Check, Limit, Table, error_pct

PERCENTILES = (50, 90, 95, 99)
JUDGED = (50, 90, 99)
LATENCIES = {"tpot_ms": "TPOT", "e2e_ms": "E2E", "ttft_ms": "TTFT"}
GPUS = {"RTX4090": "rtx4090-24gb", "RTXPRO6000": "rtxpro6000-96gb"}
# Names of the recorded models that the catalogue has under another one.
MODELS = {"Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b"}


def compute(folder: Path) -> list[Check]:
    """Return the rows of every recorded run of a folder."""
    return [check for run in sorted(folder.iterdir()) if (run / "meta.json").is_file() for check in _run(run)]


def settings(meta: dict, gpu: str) -> list[str]:
    """Return the settings of a recorded run: its engine arguments, and its KV blocks where the log states them."""
    given = meta["engine_kwargs"]
    chosen = [
        f"hardware.gpu={gpu}",
        f"hardware.model={MODELS.get(given['model'], given['model'])}",
        f"engine.tensor_parallel_size={given['tensor_parallel_size']}",
        f"engine.max_num_seqs={given['max_num_seqs']}",
        f"engine.max_num_batched_tokens={given['max_num_batched_tokens']}",
        f"fleet.replicas={given['data_parallel_size']}",
    ]
    if given["max_model_len"]:
        chosen.append(f"engine.max_model_len={given['max_model_len']}")
    blocks = meta.get("kv_cache", {}).get("num_gpu_blocks")
    return [*chosen, f"engine.num_gpu_blocks={blocks}"] if blocks else served.before_graphs_counted(chosen)


def _run(folder: Path) -> list[Check]:
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    gpu = GPUS[folder.name.split("__")[0]]
    trace = pl.read_parquet(folder / "trace.parquet").sort("arrival_s", maintain_order=True)
    predicted, deployment = served.replay(_trace(trace), settings(meta, gpu))
    answers = folder / "vllm_requests.parquet"
    observed = pl.read_parquet(answers) if answers.is_file() else None
    if observed is not None:
        observed = trace.select("request_id").join(observed, on="request_id", how="left", maintain_order="left")
    standing, note = _standing(meta, deployment, observed)
    checks = [
        _check(folder.name, deployment, f"{name} {of}", theirs, ours, standing, note)
        for column, name in LATENCIES.items()
        for of, theirs, ours in _figures(column, observed, predicted)
    ]
    if observed is not None:
        errors = float(np.median((predicted["e2e_ms"] / observed["e2e_ms"] - 1).abs().to_numpy()))
        each = _check(folder.name, deployment, "E2E by request", None, None, standing, note)
        checks.append(dataclasses.replace(each, unit="median of requests", error_pct=100 * errors))
    preemptions = float(predicted["preemptions"].sum())
    checks.append(
        _check(folder.name, deployment, "preemptions", None, preemptions, "predicted", "preemptions were not logged")
    )
    return checks


def _trace(trace: pl.DataFrame):  # type: ignore[no-untyped-def]
    return served.requests(
        (trace["arrival_s"] * 1e6).round().cast(pl.Int64).to_list(),
        trace["input_toks"].to_list(),
        trace["output_toks"].to_list(),
        trace["block_hashes"].to_list(),
    )


def _standing(meta: dict, deployment: Deployment, observed: pl.DataFrame | None) -> tuple[str, str]:
    if observed is None:
        return "predicted", "answers are not at hand"
    if meta["engine_kwargs"]["enable_expert_parallel"]:
        return "estimate", "data parallel with expert parallelism: two replicas and a roofline stand in"
    if deployment.step_time.estimate:
        return "estimate", "step time is a roofline"
    return "judged", ""


def _figures(column: str, observed: pl.DataFrame | None, predicted: pl.DataFrame):  # type: ignore[no-untyped-def]
    """Yield (statistic, observed, predicted): the mean, and percentiles interpolated as in the queries."""
    yield "mean", None if observed is None else observed[column].mean(), predicted[column].mean()
    for percentile in PERCENTILES:
        theirs, ours = (
            None if frame is None else frame[column].quantile(percentile / 100, "linear")
            for frame in (observed, predicted)
        )
        yield f"p{percentile}", theirs, ours


def _check(
    run: str,
    deployment: Deployment,
    metric: str,
    observed: float | None,
    predicted: float | None,
    standing: str,
    note: str,
) -> Check:
    unit = "count" if metric == "preemptions" else "ms"
    return Check(
        table="replay",
        run=run,
        gpu=deployment.gpu.id,
        model=deployment.model.id,
        tensor_parallel_size=deployment.tensor_parallel_size,
        metric=metric,
        unit=unit,
        observed=observed,
        predicted=predicted,
        error_pct=error_pct(observed, predicted),
        standing=standing,
        note=note,
    )


TABLE = Table(
    name="replay",
    title="Whole replays against real vLLM 0.19, 300 requests each",
    about="Judged: runs whose configuration has measured step times. Nothing is fitted to them; step overheads "
    "come from H100 servers.",
    limits=(
        Limit("mean TPOT", "worst", 5.0, ("TPOT mean",)),
        Limit("mean E2E", "worst", 6.0, ("E2E mean",)),
        Limit("mean TTFT", "worst", 10.0, ("TTFT mean",)),
        Limit("p50, p90, p99 of TPOT", "worst", 12.0, tuple(f"TPOT p{p}" for p in JUDGED)),
        Limit("p50, p90, p99 of E2E", "worst", 12.0, tuple(f"E2E p{p}" for p in JUDGED)),
    ),
    file="vllm_replay",
    compute=compute,
)
