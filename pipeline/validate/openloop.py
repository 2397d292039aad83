"""TPOT against open-loop load tests of vLLM on H100: constant rates, prompts that repeat, so the cache finds them."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.errors import ConfigError
from pipeline.hardware import Deployment, catalogue
from pipeline.validate import served
from pipeline.validate.checks import Check, Limit, Table, error_pct

GPU = "h100-80gb-sxm"
BLOCK_TOKENS = 16
FITTED = {"mixtral": "no overhead is added to tables of experts because of these very rows"}


def compute(file: Path) -> list[Check]:
    """Return one row for each stage and summary; an experiment is replayed once, its stages one after the other."""
    rows = pl.read_csv(file)
    checks: list[Check] = []
    for _, group in rows.group_by("experiment", maintain_order=True):
        checks += _experiment(group.to_dicts())
    return checks


def _experiment(rows: list[dict]) -> list[Check]:
    first = rows[0]
    usable = any(row["tpot_mean_ms_derived"] is not None and not row["overloaded"] for row in rows)
    if not usable or not catalogue.has("model", first["model"]) or (first["dp"] or 1) > 1:
        return [_check(row, None, None, _why(row)) for row in rows]
    try:
        stages, deployment = _replay(first)
    except ConfigError as error:
        return [_check(row, None, None, f"not replayed: {str(error).splitlines()[0]}") for row in rows]
    every = pl.concat(stages)
    found = []
    for row in rows:
        part = every if row["stage"] == "summary" else stages[int(row["stage"].removeprefix("stage_"))]
        predicted = part["tpot_ms"].mean()
        assert isinstance(predicted, float)
        found.append(_check(row, deployment, predicted, _why(row)))
    return found


def _why(row: dict) -> str:
    """Return why a row cannot be judged whatever is predicted, or nothing."""
    if row["overloaded"]:
        return "overloaded: requests were lost or waited for minutes"
    if row["tpot_mean_ms_derived"] is None:
        return "TPOT cannot be derived: the number of tokens is not stated"
    return "" if catalogue.has("model", row["model"]) else "model is not in the catalogue"


def _replay(row: dict) -> tuple[list[pl.DataFrame], Deployment]:
    """Replay an experiment and return the requests of each stage.

    Prompts are n_system_prompts x n_users different ones, sent in turn; users of a system prompt share its tokens.
    """
    settings = [
        f"hardware.gpu={GPU}",
        f"hardware.model={row['model']}",
        f"engine.tensor_parallel_size={int(row['tp'])}",
        f"engine.max_model_len={int(row['max_model_len'])}",
        f"engine.max_num_batched_tokens={int(row['max_num_batched_tokens'])}",
        f"engine.max_num_seqs={int(row['max_num_seqs'])}",
    ]
    stages = json.loads(row["stages"])
    counts = [round(stage["rate"] * stage["duration"]) for stage in stages]
    starts = np.cumsum([0, *(stage["duration"] for stage in stages)])
    arrival_us = np.concatenate(
        [
            (start + np.arange(count) / stage["rate"]) * 1e6
            for start, count, stage in zip(starts[:-1], counts, stages, strict=True)
        ]
    )
    n, prompt = len(arrival_us), round(row["prompt_len_mean"])
    users = int(row["n_users_per_system_prompt"])
    different = int(row["n_system_prompts"]) * users
    shared = int(row["system_prompt_len"]) // BLOCK_TOKENS
    hashes = [_hashes(index // users, index, shared, prompt // BLOCK_TOKENS) for index in range(different)]
    trace = served.requests(
        np.rint(arrival_us).astype(int).tolist(),
        [prompt] * n,
        [round(row["output_len_mean"])] * n,
        [hashes[i % different] for i in range(n)],
    )
    requests, deployment = served.replay(trace, served.before_graphs_counted(settings))
    ends = np.cumsum(counts)
    return [requests[int(end - count) : int(end)] for end, count in zip(ends, counts, strict=True)], deployment


def _hashes(system: int, user: int, shared_blocks: int, blocks: int) -> list[int]:
    """Return numbers that are equal where the text up to that block is."""
    shared = min(shared_blocks, blocks)
    return [1 + system * 10_000 + b for b in range(shared)] + [10**9 + user * 10_000 + b for b in range(shared, blocks)]


def _check(row: dict, deployment: Deployment | None, predicted: float | None, why: str) -> Check:
    observed = row["tpot_mean_ms_derived"]
    standing, note = "not judged", why
    if not why and deployment is not None:
        fitted = next((text for name, text in FITTED.items() if name in row["model"].lower()), None)
        if fitted:
            standing, note = "fitted", fitted
        elif deployment.step_time.estimate:
            standing, note = "estimate", "no kernel table for this configuration"
        else:
            standing = "judged"
    known = catalogue.has("model", row["model"])
    return Check(
        table="open_loop",
        run=f"{row['experiment']} {row['stage']}",
        gpu=GPU,
        model=catalogue.model(row["model"])[0].id if known else row["model"].split("/")[-1],
        tensor_parallel_size=int(row["tp"]),
        metric="TPOT mean",
        unit="ms",
        observed=observed,
        predicted=predicted,
        error_pct=error_pct(observed, predicted),
        standing=standing,
        note=note,
    )


TABLE = Table(
    name="open_loop",
    title="Open-loop load tests of vLLM about 0.15 on H100",
    about="Judged: rows whose TPOT can be derived, that are not overloaded and have measured step times.",
    limits=(Limit("mean TPOT, median", "median", 8.0, ("TPOT mean",)),),
    file="vllm_openloop_e2e.csv",
    compute=compute,
)
