"""TPOT against closed-loop load tests of vLLM: so many clients, each of whom asks again when its answer has ended.

Requests are as long as the test says. InferenceX draws lengths uniformly between 0.8 and 1.0 of the stated ones; the
other tests have one length, and clients that all began at once would stay in step for ever, which no real ones do. So
the first answer of each client has the length of what is left of one at a random moment, evenly spread, as in the
steady state of a renewal process; first and last answers of clients are not counted.
"""

from pathlib import Path

import numpy as np
import polars as pl

from pipeline.errors import ConfigError
from pipeline.hardware import Deployment, catalogue
from pipeline.validate import served
from pipeline.validate.checks import Check, Limit, Table, error_pct

GPUS = {
    "a100_sxm": "a100-80gb-sxm",
    "h100_sxm": "h100-80gb-sxm",
    "h200_sxm": "h200-141gb-sxm",
    "b200_sxm": "b200-180gb-sxm",
    "b300_sxm": "b300-288gb-sxm",
    "gb200": "gb200-192gb",
    "l40s": "l40s-48gb",
}
ANSWERS_PER_CLIENT = 6
LEAST_REQUESTS = 40
SHORTEST = {"InferenceX": 0.8}  # of a stated length, by where the test comes from
ROOM_TOKENS = 256  # of max_model_len beyond the stated lengths
SEED = 1


def compute(file: Path) -> list[Check]:
    """Return one row for each load test whose configuration has coefficients, and one for each group of others."""
    rows = pl.read_parquet(file).filter((pl.col("backend") == "vllm") & (pl.col("mode") == "agg"))
    order = ["model_path", "system", "tp_size", "precision", "isl", "osl", "concurrency", "id"]
    checks: dict[tuple, list[Check]] = {}
    for row in rows.sort(order).iter_rows(named=True):
        check = _check(row)
        checks.setdefault((check.predicted is None, check.model, check.gpu, check.run, check.note), []).append(check)
    listed = [check for (unknown, *_), found in checks.items() if not unknown for check in found]
    return listed + [found[0] for (unknown, *_), found in checks.items() if unknown]


def _check(row: dict) -> Check:
    size, predicted, standing, note = int(row["tp_size"]), None, "not judged", _unusable(row)
    if not note:
        try:
            predicted, deployment = _replay(row)
        except ConfigError as reason:
            note = f"not replayed: {str(reason).splitlines()[0][:80]}"
        else:
            standing, note = _standing(deployment)
    known = catalogue.has("model", row["model_path"])
    model = catalogue.model(row["model_path"])[0].id if known else row["model_path"].split("/")[-1]
    gpu = GPUS.get(row["system"], row["system"])
    run = f"{model} {size} x {gpu} {_dtype(row) or row['precision']}"
    if predicted is not None:
        run += f" {row['isl']}>{row['osl']} {row['concurrency']:.0f} clients"
    observed = None if predicted is None else row["silicon_tpot_ms"]
    off = error_pct(observed, predicted)
    return Check("closed_loop", run, gpu, model, size, "TPOT mean", "ms", observed, predicted, off, standing, note)


def _dtype(row: dict) -> str | None:
    return {"fp8": "fp8", "bf16": "bf16", "": "bf16", None: "bf16"}.get(row["precision"])


def _unusable(row: dict) -> str:
    if row["system"] not in GPUS or not catalogue.has("model", row["model_path"]):
        return "accelerator or model is not in the catalogue"
    if _dtype(row) is None:
        return "weights of another type than the catalogue has"
    if row["suspect"]:
        return "the source itself disagrees with everything else"
    if row["concurrency"] is None:
        return "number of clients not stated"
    wanted = (GPUS[row["system"]], catalogue.model(row["model_path"])[0].id, str(int(row["tp_size"])), _dtype(row))
    names = ("gpu", "model", "tensor_parallel_size", "weight_dtype")
    tables = [table for table in catalogue.rows("coefficients.csv") if table["backend"] == "vllm"]
    return "" if wanted in [tuple(table[name] for name in names) for table in tables] else "no kernel table"


def _replay(row: dict) -> tuple[float, Deployment]:
    """Return the mean TPOT of the answers that are counted, milliseconds."""
    clients, dtype = int(row["concurrency"]), _dtype(row)
    shortest = next((share for source, share in SHORTEST.items() if source in (row["origin"] or "")), 1.0)
    inputs, outputs = lengths(row["isl"], row["osl"], clients, shortest)
    n = len(inputs)
    trace = served.requests([0] * n, inputs, outputs, [[] for _ in range(n)])
    settings = [
        f"hardware.gpu={GPUS[row['system']]}",
        f"hardware.model={row['model_path']}",
        f"hardware.weight_dtype={dtype}",
        f"hardware.kv_cache_dtype={'fp8' if dtype == 'fp8' else 'auto'}",
        f"engine.tensor_parallel_size={int(row['tp_size'])}",
        f"engine.max_model_len={row['isl'] + row['osl'] + ROOM_TOKENS}",
        "load.kind=closed",
        f"load.concurrency={clients}",
    ]
    requests, deployment = served.replay(trace, served.before_graphs_counted(settings))
    counted = requests["tpot_ms"][clients : n - clients].mean()
    assert isinstance(counted, float)
    return counted, deployment


def lengths(input_tokens: int, output_tokens: int, clients: int, shortest: float) -> tuple[list[int], list[int]]:
    """Return prompt and answer tokens of every request; those of the first answers are what is left of one.

    shortest : lengths are drawn between this share of the stated ones and 1, by a fixed seed
    """
    n = max(LEAST_REQUESTS, ANSWERS_PER_CLIENT * clients)
    rng = np.random.default_rng(SEED)
    inputs, outputs = (
        np.maximum(2, np.rint(tokens * rng.uniform(shortest, 1.0, n))).astype(int)
        for tokens in (input_tokens, output_tokens)
    )
    outputs[:clients] = np.maximum(2, np.rint(output_tokens * (np.arange(clients) + 1) / clients)).astype(int)
    return inputs.tolist(), outputs.tolist()


def _standing(deployment: Deployment) -> tuple[str, str]:
    if deployment.step_time.estimate:
        return "estimate", "no kernel table for this configuration"
    return "judged", ""


TABLE = Table(
    name="closed_loop",
    title="Closed-loop load tests of vLLM",
    about="Judged: rows with measured step times and a stated number of clients. Prompts share no prefix. FP8 rows are "
    "replayed with FP8 KV, as the tables were measured; share of memory and batch settings are vLLM's defaults. "
    "Clients do not start in step (with all in step the median is 11 %).",
    limits=(Limit("mean TPOT, median", "median", 8.0, ("TPOT mean",)),),
    file="closedloop_ttft_tpot.parquet",
    compute=compute,
)
