"""TPOT against closed-loop load tests of vLLM: a fixed number of requests under way, all of about one shape.

Taken are aggregated rows of vLLM whose configuration has measured step times. InferenceX draws lengths between 0.8 and
1.0 of the stated ones, sends ten requests for each place, lets no more run than there are places, keeps FP8 KV beside
FP8 weights and has no prefix cache; the other runs have one length and vLLM's defaults of their version, which decided
each step only when the one before it had ended until asynchronous scheduling became the default in 0.14.
"""

from pathlib import Path

import numpy as np
import polars as pl

from pipeline.hardware import catalogue
from pipeline.validate import served
from pipeline.validate.checks import Check, Limit, Table, error_pct

GPUS = {
    "h100_sxm": "h100-80gb-sxm",
    "h200_sxm": "h200-141gb-sxm",
    "b200_sxm": "b200-180gb-sxm",
}
REQUESTS_PER_PLACE = 10
LEAST_SHARE = 0.8  # of the stated length, in InferenceX
SEED = 0
SPARE_TOKENS = 256  # of the context, beyond prompt and answer


def compute(file: Path) -> list[Check]:
    """Return TPOT, and TTFT for comparison, of every row whose configuration has coefficients."""
    rows = pl.read_parquet(file).filter(
        (pl.col("backend") == "vllm")
        & (pl.col("mode") == "agg")
        & ~pl.col("suspect")
        & pl.col("concurrency").is_not_null()
        & (pl.col("attention_dp_size").fill_null(1) == 1)
        & pl.col("system").is_in(list(GPUS))
    )
    chosen = [row for row in rows.sort("id").to_dicts() if _has_coefficients(row)]
    return [check for row in chosen for check in _checks(row)]


def _dtype(row: dict) -> str:
    """Return the type of the weights; where it is not stated the rows behave as bf16 (README of the data)."""
    return row["precision"] or "bf16"


def _before_async(version: str | None) -> bool:
    """Return whether a version of vLLM has synchronous scheduling by default; one that is not stated is a newer one."""
    return version is not None and [int(part) for part in version.split(".")[:2]] < [0, 14]


def _has_coefficients(row: dict) -> bool:
    if not catalogue.has("model", row["model_path"]):
        return False
    wanted = {
        "gpu": GPUS[row["system"]],
        "model": catalogue.model(row["model_path"])[0].id,
        "tensor_parallel_size": str(int(row["tp_size"])),
        "weight_dtype": _dtype(row),
        "backend": "vllm",
    }
    return any(all(known[key] == wanted[key] for key in wanted) for known in catalogue.rows("coefficients.csv"))


def _checks(row: dict) -> list[Check]:
    places = int(row["concurrency"])
    inferencex = "InferenceX" in row["origin"]
    settings = [
        f"hardware.gpu={GPUS[row['system']]}",
        f"hardware.model={catalogue.model(row['model_path'])[0].id}",
        f"hardware.weight_dtype={_dtype(row)}",
        f"engine.tensor_parallel_size={int(row['tp_size'])}",
        f"engine.max_model_len={row['isl'] + row['osl'] + SPARE_TOKENS}",
        "load.kind=closed",
        f"load.concurrency={places}",
    ]
    if inferencex:
        settings += [f"engine.max_num_seqs={places}", "engine.enable_prefix_caching=false"]
    if _before_async(row["backend_version"]):
        settings.append("engine.async_scheduling=false")
    if _dtype(row) == "fp8":
        settings.append("hardware.kv_cache_dtype=fp8")
    n = REQUESTS_PER_PLACE * places
    random = np.random.default_rng(SEED)
    prompts, answers = (
        random.integers(int(LEAST_SHARE * most) if inferencex else most, most + 1, n)
        for most in (row["isl"], row["osl"])
    )
    trace = served.requests([0] * n, prompts.tolist(), answers.tolist(), [[] for _ in range(n)])
    predicted, deployment = served.replay(trace, served.before_graphs_counted(settings))

    def check(metric: str, observed: float, standing: str, note: str) -> Check:
        value = predicted[f"{metric.lower()}_ms"].mean()
        assert isinstance(value, float)
        return Check(
            table="closed_loop",
            run=row["id"],
            gpu=deployment.gpu.id,
            model=deployment.model.id,
            tensor_parallel_size=deployment.tensor_parallel_size,
            metric=f"{metric} mean",
            unit="ms",
            observed=observed,
            predicted=value,
            error_pct=error_pct(observed, value),
            standing=standing,
            note=note,
        )

    estimate = deployment.step_time.estimate
    return [
        check("TPOT", row["silicon_tpot_ms"], "estimate" if estimate else "judged", ""),
        check("TTFT", row["silicon_ttft_ms"], "not judged", "how the client begins is not stated"),
    ]


TABLE = Table(
    name="closed_loop",
    title="Closed-loop load tests of vLLM, by concurrency",
    about="Judged: rows of vLLM whose configuration has measured step times. Batch settings are those of the "
    "published scripts where the rows do not state them.",
    limits=(Limit("mean TPOT, median", "median", 8.0, ("TPOT mean",)),),
    file="closedloop_ttft_tpot.parquet",
    compute=compute,
)
