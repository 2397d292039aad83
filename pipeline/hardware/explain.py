"""One configuration explained: where its memory goes, how many requests fit at once, and what a naive sum says.

All figures come from the deployment that a replay of the same settings would use.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.hardware import kv_capacity, step_time
from pipeline.hardware.deployment import Deployment, describe
from pipeline.hardware.kv_capacity import GIB, Memory

LENGTHS = (2048, 8192, 32768)
BATCH = 32  # sequences of the step whose time is shown
ATTENTION = {
    "mha": "multi-head: every head has its own keys and values",
    "gqa": "grouped queries: several heads share keys and values",
    "mqa": "one head of keys and values for all",
    "mla": "latent: one compressed entry for all heads, a copy on every GPU",
}


def explain(deployment: Deployment, lengths: Sequence[int] = ()) -> dict[str, Any]:
    """Return everything `servecast hardware` says about a deployment, as plain values; unknown is None.

    lengths : tokens of a request, prompt and answer; LENGTHS up to max_model_len, and that one, if none are given
    """
    longest = deployment.max_model_len
    asked = list(lengths) or [*(length for length in LENGTHS if length < longest), longest]
    return {
        "hardware": describe(deployment),
        "max_model_len": longest,
        "max_num_seqs": deployment.max_num_seqs,
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "block_size": deployment.block_size,
        "gpu_memory_utilization": deployment.config.engine.limit("gpu_memory_utilization"),
        "attention": _attention(deployment),
        "concurrency": [concurrency(deployment, length) for length in asked],
        "reserving": reserving(deployment),
        "naive": naive(deployment),
        "longest_sequence_tokens": (deployment.num_gpu_blocks - 1) * deployment.block_size,
        "types": _types(deployment, min(asked[0], longest)),
        "tensor_parallel": _sizes(deployment, min(asked[0], longest)),
        "warnings": list(deployment.warnings),
    }


def concurrency(deployment: Deployment, length: int) -> dict[str, Any]:
    """Return how many requests of so many tokens run at once, and what limits them.

    One block is never handed out. A request beyond max_model_len is refused, so none of them runs.
    """
    if length > deployment.max_model_len:
        return {"length": length, "at_once": 0, "limit": "refused: longer than max_model_len"}
    fit = _fit(deployment.num_gpu_blocks, deployment.block_size, length)
    if fit >= deployment.max_num_active_seqs:
        return {"length": length, "at_once": deployment.max_num_active_seqs, "limit": "max_num_seqs"}
    return {"length": length, "at_once": fit, "limit": "KV memory"}


def reserving(deployment: Deployment) -> int:
    """Return how many requests an engine admits that reserves max_model_len for each, whatever their length."""
    fit = _fit(deployment.num_gpu_blocks, deployment.block_size, deployment.max_model_len)
    return min(fit, deployment.max_num_active_seqs)


def naive(deployment: Deployment) -> dict[str, Any]:
    """Return the sum "budget / max length" with the share of memory taken after the weights, and what it leaves out."""
    memory, tp = deployment.memory, deployment.tensor_parallel_size
    share = deployment.config.engine.limit("gpu_memory_utilization")
    budget_gib = share * (memory.total_gib - memory.weights_gib)
    tokens = int(budget_gib * GIB / memory.kv_bytes_per_token)
    return {
        "budget_gib_per_gpu": budget_gib,
        "tokens": tokens,
        "at_once": tokens // deployment.max_model_len,
        "over_pct": 100 * (tokens / (memory.num_gpu_blocks * deployment.block_size) - 1),
        "weights_outside_share_gib": budget_gib - (memory.usable_gib - memory.weights_gib),
        "overhead_left_out_gib": memory.overhead_gib,
        "gpus": tp,
    }


def _fit(blocks: int, block_size: int, length: int) -> int:
    return max(0, blocks - 1) // -(-length // block_size)


def _attention(deployment: Deployment) -> dict[str, Any]:
    model, tp = deployment.model, deployment.tensor_parallel_size
    return {
        "kind": model.attention,
        "meaning": ATTENTION[model.attention],
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "kv_copies": tp if model.kv_heads is None else max(1, tp // model.kv_heads),
        "kv_bytes_per_token": {dtype: kv_capacity.kv_bytes_per_token(model, 1, dtype) for dtype in ("bf16", "fp8")},
    }


def _memory(deployment: Deployment, **changed: Any) -> Memory:
    engine = deployment.config.engine
    settings: dict[str, Any] = {
        "tensor_parallel_size": deployment.tensor_parallel_size,
        "weight_dtype": deployment.weight_dtype,
        "kv_cache_dtype": deployment.kv_cache_dtype,
    }
    return kv_capacity.memory(
        deployment.gpu,
        deployment.model,
        gpu_memory_utilization=engine.limit("gpu_memory_utilization"),
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        max_num_seqs=deployment.max_num_seqs,
        block_size=deployment.block_size,
        **settings | changed,
    )


def _types(deployment: Deployment, length: int) -> list[dict[str, Any]]:
    """Return one row for each pair of weight and KV type: memory, requests at once, and a decode step of BATCH."""
    gpu, model = deployment.gpu, deployment.model
    own_kv = deployment.kv_cache_dtype
    weights = [deployment.weight_dtype, *(d for d in ("fp8", "w4a16") if d != deployment.weight_dtype)]
    pairs = [(weight, own_kv) for weight in weights if weight != "fp8" or gpu.fp8_tflops is not None]
    pairs.append((deployment.weight_dtype, "bf16" if own_kv == "fp8" else "fp8"))
    rows = []
    for weight_dtype, kv_dtype in pairs:
        memory = _memory(deployment, weight_dtype=weight_dtype, kv_cache_dtype=kv_dtype)
        steps = step_time.build(
            gpu,
            model,
            tensor_parallel_size=deployment.tensor_parallel_size,
            weight_dtype=weight_dtype,
            kv_cache_dtype=kv_dtype,
            step_overhead_ms=deployment.step_overhead_ms,
            max_tokens=BATCH,
            stated=deployment.config.step_time,
        )
        rows.append(
            {
                "weight_dtype": weight_dtype,
                "kv_cache_dtype": kv_dtype,
                "weights_gib": memory.weights_gib,
                "kv_bytes_per_token": memory.kv_bytes_per_token,
                **_room(deployment, memory, length),
                "step_ms": steps.step_ns(BATCH, BATCH * length) / 1e6,
                "step_error_pct": steps.error_pct,
                "step_estimate": steps.estimate,
            }
        )
    return rows


def _sizes(deployment: Deployment, length: int) -> list[dict[str, Any]]:
    """Return one row for each tensor-parallel size up to 16, with what each GPU holds; sizes that do not divide too."""
    possible = deployment.model.tensor_parallel_sizes()
    rows: list[dict[str, Any]] = []
    for size in (1, 2, 3, 4, 6, 8, 16):
        if size not in possible:
            rows.append({"tensor_parallel_size": size, "possible": False})
            continue
        memory = _memory(deployment, tensor_parallel_size=size)
        kv_heads = deployment.model.kv_heads
        rows.append(
            {
                "tensor_parallel_size": size,
                "possible": True,
                "weights_gib": memory.weights_gib,
                "kv_bytes_per_token": memory.kv_bytes_per_token,
                "kv_copies": size if kv_heads is None else max(1, size // kv_heads),
                **_room(deployment, memory, length),
            }
        )
    return rows


def _room(deployment: Deployment, memory: Memory, length: int) -> dict[str, Any]:
    if memory.num_gpu_blocks < 2:
        return {"kv_gib": memory.kv_gib, "kv_tokens": 0, "at_length": length, "at_once": 0}
    return {
        "kv_gib": memory.kv_gib,
        "kv_tokens": memory.num_gpu_blocks * deployment.block_size,
        "at_length": length,
        "at_once": _fit(memory.num_gpu_blocks, deployment.block_size, length),
    }
