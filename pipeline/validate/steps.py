"""Step time against steps composed from measured kernels, and static batches of 2023 as a reminder of what changed."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.hardware import catalogue, step_time
from pipeline.validate.checks import Check, Limit, Table

MOST_TOKENS = 20_000


def compute(file: Path) -> list[Check]:
    """Return the mean absolute error over the steps of each configuration."""
    named = {row["source_config"]: row for row in catalogue.rows("coefficients.csv")}
    checks = []
    steps = pl.read_parquet(file).sort("config", maintain_order=True)
    for (config,), group in steps.group_by("config", maintain_order=True):
        row = named[str(config)]
        terms = step_time.from_table(row["config"], step_overhead_ms=0, max_tokens=MOST_TOKENS)
        error = float(np.mean([_error_pct(terms, step) for step in group.iter_rows(named=True)]))
        checks.append(
            Check(
                table="steps",
                run=row["config"],
                gpu=row["gpu"],
                model=row["model"],
                tensor_parallel_size=int(row["tensor_parallel_size"]),
                metric="step time",
                unit="mean of the steps",
                observed=None,
                predicted=None,
                error_pct=error,
                standing="judged",
                note=f"{len(group)} steps",
            )
        )
    return checks


def _error_pct(terms: step_time.StepTime, step: dict) -> float:
    chunks = json.loads(step["prefill_chunks_json"])
    sampling = step["sampled_seqs"] - step["n_decode"]
    predicted_ns = terms.step_ns(step["n_decode"], step["sum_decode_ctx"], chunks, sampling)
    return 100 * abs(predicted_ns / 1e6 / step["step_ms"] - 1)


def compute_static(file: Path) -> list[Check]:
    """Return prompt and token times of static batches, medians over sizes; engines then spent 8 to 28 ms a step."""
    measured = pl.read_parquet(file)
    sizes = ["model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size"]
    medians = measured.group_by(sizes).agg(pl.col("prompt_time_ms", "token_time_ms").median()).sort(sizes)
    checks: list[Check] = []
    groups = medians.group_by("model", "hardware", "tensor_parallel", maintain_order=True)
    for (name, hardware, size), group in groups:
        checks += _static(str(name), str(hardware), int(str(size)), group)
    return checks


def _static(name: str, hardware: str, size: int, group: pl.DataFrame) -> list[Check]:
    run = f"{name} tp{size} {hardware}"
    if not catalogue.has("model", name) or not catalogue.has("gpu", hardware):
        return [_static_check(run, hardware, name, size, "token time", None, "not in the catalogue")]
    gpu, model = catalogue.gpu(hardware), catalogue.model(name)[0]
    terms = step_time.build(
        gpu,
        model,
        tensor_parallel_size=size,
        weight_dtype="fp16",
        kv_cache_dtype="fp16",
        step_overhead_ms=catalogue.overhead_ms("step_dense", size),
        max_tokens=int((group["batch_size"] * group["prompt_size"]).max() or 1),  # type: ignore[operator, arg-type]
    )
    ratios: dict[str, list[float]] = {"prompt time": [], "token time": []}
    for row in group.iter_rows(named=True):
        batch, prompt = row["batch_size"], row["prompt_size"]
        context = batch * (prompt + row["token_size"] // 2)
        prefill_ms = terms.step_ns(0, 0, [(prompt, 0)] * batch, batch) / 1e6
        ratios["prompt time"].append(prefill_ms / row["prompt_time_ms"])
        ratios["token time"].append(terms.step_ns(batch, context) / 1e6 / row["token_time_ms"])
    note = f"{len(group)} sizes, median; an engine of 2023 without CUDA graphs"
    return [
        _static_check(run, gpu.id, model.id, size, metric, 100 * (float(np.median(found)) - 1), note)
        for metric, found in ratios.items()
    ]


def _static_check(run: str, gpu: str, model: str, size: int, metric: str, error: float | None, note: str) -> Check:
    unit = "median of sizes"
    return Check("static", run, gpu, model, size, metric, unit, None, None, error, "not judged", note)


TABLE = Table(
    name="steps",
    title="Step time against steps composed from measured kernels",
    about="Mean absolute error of a step by configuration, engine overhead aside. The coefficients are fitted to the "
    "same kernel tables, not to these steps.",
    limits=(
        Limit("step time, mean over configurations", "mean", 2.0, ("step time",)),
        Limit("step time, worst configuration", "worst", 5.0, ("step time",)),
    ),
    file="sample_steps.parquet",
    compute=compute,
)
STATIC = Table(
    name="static",
    title="Static batches of late 2023 (Splitwise), reported only",
    about="Engines then spent 8 to 28 ms a step outside the kernels, which no current version does.",
    limits=(),
    file="splitwise_static_batches.parquet",
    compute=compute_static,
)
