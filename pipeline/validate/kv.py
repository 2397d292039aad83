"""KV capacity against starts of real vLLM servers: blocks where a log states them, else tokens or GiB."""

import csv
from pathlib import Path

from pipeline.engines.vllm import default_batch_limits
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue, kv_capacity
from pipeline.validate.checks import Check, Limit, Table, error_pct

WEIGHTS = {"mxfp4": "w4a16", "int4-gptq": "w4a16", "int8-w8a8": "fp8"}  # type whose bytes are the same

# Rows that a parameter or a weight was read off; the others are judged.
FITTED = {
    "lld-l31-8b": "38 bytes per logit come from this row",
    "isim-qwen25-7b-1k": "two hidden states per token come from the difference of this row and the next",
    "isim-qwen25-7b-2k": "two hidden states per token come from the difference of this row and the one before",
    "lld-gptoss20b": "MXFP4 weights of the catalogue are the ones this log states",
}
EXPLAINED = {
    "isim-scout-fp8": "6.5 GiB a GPU more than any other start needs: presumably parts of the files stay 16 bit",
    "lld-gptoss120b": "weights, activation and KV of the log add up to 0.95 of the memory, not to the stated 0.9; "
    "compared at 0.95",
}
SHARES = {"lld-gptoss120b": 0.95}  # share of memory that the parts of the log add up to


def compute(file: Path) -> list[Check]:
    """Return one row for each logged start."""
    with file.open(encoding="utf-8") as lines:
        return [_check(row) for row in csv.DictReader(lines)]


def _check(row: dict[str, str]) -> Check:
    standing, note = _standing(row)
    metric, unit, observed = _observed(row)
    predicted = None
    try:
        predicted = _predicted(row, metric) if row["gpu_memory_utilization"] else None
    except ConfigError:
        standing, note = "not judged", "accelerator or model is not in the catalogue"
    return Check(
        table="kv",
        run=row["id"],
        gpu=row["gpu"],
        model=row["model"],
        tensor_parallel_size=int(row["tp"]),
        metric=metric,
        unit=unit,
        observed=observed,
        predicted=predicted,
        error_pct=error_pct(observed, predicted),
        standing=standing,
        note=note,
    )


def _standing(row: dict[str, str]) -> tuple[str, str]:
    if row["id"] in FITTED:
        return "fitted", FITTED[row["id"]]
    if row["id"] in EXPLAINED:
        return "explained", EXPLAINED[row["id"]]
    if not row["gpu_memory_utilization"] or "gmu not stated" in row["note"]:
        return "not judged", "share of memory not stated"
    if row["engine"] == "V0":
        return "not judged", "engine V0, which profiled max_model_len tokens; batch settings not stated"
    if "hybrid" in row["note"]:
        return "not judged", "sliding-window groups: the logged tokens are concurrency x length, not a capacity"
    if not (row["max_num_batched_tokens"] or "server defaults" in row["note"]):
        return "not judged", "batch settings not stated"
    return "judged", ""


def _observed(row: dict[str, str]) -> tuple[str, str, float]:
    if row["num_gpu_blocks"]:
        return "KV blocks", "blocks", float(row["num_gpu_blocks"])
    if row["available_kv_gib_per_gpu"]:
        return "KV memory", "GiB", float(row["available_kv_gib_per_gpu"])
    return "KV tokens", "tokens", float(row["kv_tokens"])


def _predicted(row: dict[str, str], metric: str) -> float:
    """Return what the sum gives; batch settings that nobody states are taken for the server's own."""
    gpu = catalogue.gpu(row["gpu"])
    tokens, seqs = (
        int(float(row[name] or default))
        for name, default in zip(
            ("max_num_batched_tokens", "max_num_seqs"), default_batch_limits(gpu.memory_gib, gpu.name), strict=True
        )
    )
    memory = kv_capacity.memory(
        gpu,
        catalogue.model(row["model"])[0],
        tensor_parallel_size=int(row["tp"]),
        weight_dtype=WEIGHTS.get(row["weight_dtype"], row["weight_dtype"]),
        kv_cache_dtype=row["kv_dtype"],
        gpu_memory_utilization=SHARES.get(row["id"], float(row["gpu_memory_utilization"])),
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        graphs_counted=False,  # all of them are older than 0.21
    )
    return {
        "KV blocks": float(memory.num_gpu_blocks),
        "KV memory": memory.kv_gib,
        "KV tokens": float(memory.num_gpu_blocks * 16),
    }[metric]


TABLE = Table(
    name="kv",
    title="KV capacity against logged starts of vLLM",
    about="Judged: starts that state their batch settings and share of memory, and that no parameter was read off.",
    limits=(
        Limit("KV capacity, median", "median", 3.0, ("KV blocks", "KV memory")),
        Limit("KV capacity, worst row", "worst", 8.0, ("KV blocks", "KV memory")),
    ),
    file="kv_blocks.csv",
    compute=compute,
)
