"""One deployment: what a config comes to on its hardware, with vLLM's defaults filled in and its refusals repeated."""

from dataclasses import dataclass
from typing import Any

from pipeline.config import Config
from pipeline.engines import EngineSection
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue, evidence, kv_capacity, own, step_time
from pipeline.hardware.catalogue import Gpu, Model
from pipeline.hardware.kv_capacity import Memory
from pipeline.hardware.step_time import StepTime
from pipeline.settings import AUTO_LENGTH


@dataclass(frozen=True, eq=False)
class Deployment:
    """Everything a replay needs to know about engine and hardware; no value is left open."""

    config: Config  # every None of [engine] and [hardware] replaced, ids in place of aliases
    gpu: Gpu
    model: Model
    tensor_parallel_size: int
    weight_dtype: str
    kv_cache_dtype: str
    memory: Memory  # of one accelerator, as vLLM would measure it
    block_size: int
    num_gpu_blocks: int  # null block included: one less can hold tokens
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_active_seqs: int
    weights_gib: float  # of one accelerator
    overhead_gib: float  # of one accelerator: activation, non-torch, CUDA graphs
    kv_gib: float  # of one accelerator: what the blocks take
    kv_bytes_per_token_per_gpu: int
    kv_bytes_per_token: int  # over all accelerators, copies included
    kv_tokens: int  # num_gpu_blocks x block_size, the figure vLLM logs
    step_time: StepTime
    step_overhead_ms: float
    frontend_ms: float
    warnings: tuple[str, ...]
    unmodelled: tuple[str, ...]

    @property
    def usable_blocks(self) -> int:
        """KV blocks that requests can use."""
        return self.num_gpu_blocks - self.config.engine.NULL_BLOCKS


def resolve(config: Config) -> Deployment:
    """Fill in what a config leaves open and check it as vLLM does at start.

    Raises ConfigError for an unknown name, a dtype the accelerator lacks, a tensor parallel size that does not divide
    the heads, a model or a context that does not fit; the message says what would work.
    """
    engine, hardware = config.engine, config.hardware
    gpu = own.gpu(config)
    model, implied_dtype, dimensions = own.model(config)
    tp = engine.limit("tensor_parallel_size")
    weight_dtype = _weight_dtype(hardware.weight_dtype, implied_dtype, gpu, model)
    kv_cache_dtype = _kv_cache_dtype(hardware.kv_cache_dtype, weight_dtype, model)
    _check_tensor_parallel(model, tp, engine.key("tensor_parallel_size"))
    asked_length = _asked_length(engine, model)
    tokens, seqs = _batch_limits(engine, gpu, asked_length)

    memory = _memory(config, gpu, model, weight_dtype, kv_cache_dtype, tokens, seqs)
    _check_fits(config, gpu, model, weight_dtype, kv_cache_dtype, memory, tokens, seqs)
    blocks = engine.limit("num_gpu_blocks") or memory.num_gpu_blocks
    length = _fitting_length(engine, model, asked_length, blocks)
    if engine.limit("max_model_len") == AUTO_LENGTH:
        tokens, seqs = _batch_limits(engine, gpu, length)

    step_overhead_ms = hardware.step_overhead_ms
    if step_overhead_ms is None:
        step_overhead_ms = catalogue.overhead_ms("step_moe" if model.experts else "step_dense", tp)
    frontend_ms = catalogue.overhead_ms("frontend", tp) if hardware.frontend_ms is None else hardware.frontend_ms
    block_size = engine.limit("block_size")
    steps = step_time.build(
        gpu,
        model,
        tensor_parallel_size=tp,
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype,
        step_overhead_ms=step_overhead_ms,
        max_tokens=engine.most_step_tokens(tokens, seqs, blocks * block_size),
        stated=config.step_time,
    )
    steps = step_time.scaled(steps, hardware.step_time_scale)
    active = min(engine.limit("max_num_active_seqs") or seqs, seqs)
    resolved = _resolved_config(
        own.without_unused(config, gpu.id, dimensions, fitted=steps.basis == "fitted"),
        engine={
            "num_gpu_blocks": blocks,
            "max_model_len": length,
            "max_num_batched_tokens": tokens,
            "max_num_seqs": seqs,
            "max_num_active_seqs": active,
        },
        hardware={
            "gpu": gpu.id,
            "model": model.id,
            "weight_dtype": weight_dtype,
            "kv_cache_dtype": kv_cache_dtype,
            "step_overhead_ms": step_overhead_ms,
            "frontend_ms": frontend_ms,
        },
    )
    return Deployment(
        config=resolved,
        gpu=gpu,
        model=model,
        tensor_parallel_size=tp,
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype,
        memory=memory,
        block_size=block_size,
        num_gpu_blocks=blocks,
        max_model_len=length,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        max_num_active_seqs=active,
        weights_gib=memory.weights_gib,
        overhead_gib=memory.overhead_gib,
        kv_gib=blocks * block_size * memory.kv_bytes_per_token / kv_capacity.GIB,
        kv_bytes_per_token_per_gpu=memory.kv_bytes_per_token,
        kv_bytes_per_token=memory.kv_bytes_per_token * tp,
        kv_tokens=blocks * block_size,
        step_time=steps,
        step_overhead_ms=step_overhead_ms,
        frontend_ms=frontend_ms,
        warnings=tuple(_warnings(engine, gpu, model, kv_cache_dtype, memory, blocks, length, steps)),
        unmodelled=config.unmodelled,
    )


def describe(deployment: Deployment) -> dict[str, Any]:
    """Return the `hardware` object of run.json: names, memory per accelerator in GiB, blocks, step-time terms in ms."""
    steps, memory = deployment.step_time, deployment.memory
    return {
        "gpu": deployment.gpu.id,
        "gpu_name": deployment.gpu.name,
        "model": deployment.model.id,
        "tensor_parallel_size": deployment.tensor_parallel_size,
        "weight_dtype": deployment.weight_dtype,
        "kv_cache_dtype": deployment.kv_cache_dtype,
        "gpu_memory_gib": deployment.gpu.memory_gib,
        "usable_gib": memory.usable_gib,
        "weights_gib": deployment.weights_gib,
        "overhead_gib": deployment.overhead_gib,
        "overhead_parts_gib": {
            "activation": memory.activation_gib,
            "non_torch": memory.non_torch_gib,
            "cuda_graphs": memory.cuda_graphs_gib,
        },
        "kv_gib": deployment.kv_gib,
        "kv_bytes_per_token": deployment.kv_bytes_per_token,
        "kv_bytes_per_token_per_gpu": deployment.kv_bytes_per_token_per_gpu,
        "block_size": deployment.block_size,
        "num_gpu_blocks": deployment.num_gpu_blocks,
        "usable_blocks": deployment.usable_blocks,
        "max_model_len": deployment.max_model_len,
        "max_num_batched_tokens": deployment.max_num_batched_tokens,
        "max_num_seqs": deployment.max_num_seqs,
        "enable_prefix_caching": bool(deployment.config.engine.limit("enable_prefix_caching")),
        "kv_tokens": deployment.kv_tokens,
        "frontend_ms": deployment.frontend_ms,
        "step_time": {
            "config": steps.config,
            "estimate": steps.estimate,
            "basis": steps.basis,
            "error_pct": steps.error_pct,
            "source": steps.source,
            "terms": steps.terms_ms(),
        },
        "evidence": evidence.nearest(deployment.gpu, deployment.model, steps.estimate),
    }


def _weight_dtype(asked: str, implied: str | None, gpu: Gpu, model: Model) -> str:
    dtype = (implied or model.published_dtype) if asked == "auto" else asked
    if dtype == "fp8" and gpu.fp8_tflops is None:
        able = [other.id for other in catalogue.gpus().values() if other.fp8_tflops is not None]
        raise ConfigError(
            f'hardware.weight_dtype = "fp8": {gpu.id} has no FP8 arithmetic; use bf16 or w4a16, or one of '
            f"{', '.join(able)}"
        )
    return dtype


def _kv_cache_dtype(asked: str, weight_dtype: str, model: Model) -> str:
    if asked != "auto":
        return asked
    candidates = (weight_dtype, model.published_dtype, "bf16")
    return next(dtype for dtype in candidates if dtype in ("bf16", "fp16"))


def _check_tensor_parallel(model: Model, tp: int, key: str) -> None:
    sizes = model.tensor_parallel_sizes()
    if tp in sizes:
        return
    reason = f"does not divide the {model.heads} attention heads of {model.id}"
    if model.heads % tp == 0:
        reason = f"neither divides the {model.kv_heads} KV heads of {model.id} nor is a multiple of them"
    raise ConfigError(f"{key} = {tp}: {reason}; use one of {_listed(sizes)}")


def _asked_length(engine: EngineSection, model: Model) -> int:
    asked = engine.limit("max_model_len")
    if asked in (None, AUTO_LENGTH):
        return model.max_context
    if asked > model.max_context:
        raise ConfigError(
            f"{engine.key('max_model_len')} = {asked}: {model.id} goes up to {model.max_context} tokens; "
            "use at most that"
        )
    return asked


def _batch_limits(engine: EngineSection, gpu: Gpu, model_len: int) -> tuple[int, int]:
    try:
        return engine.batch_limits(gpu.memory_gib, gpu.name, model_len)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _memory(
    config: Config, gpu: Gpu, model: Model, weight_dtype: str, kv_dtype: str, tokens: int, seqs: int, **changed: int
) -> Memory:
    return kv_capacity.memory(
        gpu,
        model,
        tensor_parallel_size=changed.get("tp", config.engine.limit("tensor_parallel_size")),
        weight_dtype=weight_dtype,
        kv_cache_dtype=kv_dtype,
        gpu_memory_utilization=config.engine.limit("gpu_memory_utilization"),
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        block_size=config.engine.limit("block_size"),
    )


def _check_fits(
    config: Config, gpu: Gpu, model: Model, weight_dtype: str, kv_dtype: str, memory: Memory, tokens: int, seqs: int
) -> None:
    """Raise ConfigError with what would work, if weights and overhead leave no room for KV."""
    if memory.num_gpu_blocks >= 2:
        return
    tp = config.engine.limit("tensor_parallel_size")

    def fits(other: Gpu, dtype: str, size: int) -> bool:
        if dtype == "fp8" and other.fp8_tflops is None:
            return False
        return _memory(config, other, model, dtype, kv_dtype, tokens, seqs, tp=size).num_gpu_blocks >= 2

    sizes = [size for size in model.tensor_parallel_sizes() if size > tp and fits(gpu, weight_dtype, size)]
    dtypes = [dtype for dtype in ("fp8", "w4a16") if dtype != weight_dtype and fits(gpu, dtype, tp)]
    others = [other.id for other in catalogue.gpus().values() if other.id != gpu.id and fits(other, weight_dtype, tp)]
    ways = [
        f"{config.engine.key('tensor_parallel_size')} = {_listed(sizes[:3])}" if sizes else "",
        f"hardware.weight_dtype = {_listed(dtypes)}" if dtypes else "",
        f"hardware.gpu = {_listed(others)}" if others else "",
    ]
    advice = "; or ".join(way for way in ways if way)
    share = config.engine.limit("gpu_memory_utilization")
    raise ConfigError(
        f'hardware.model = "{model.id}": does not fit on {tp} x {gpu.id}: per GPU '
        f"{memory.usable_gib:.2f} GiB usable ({share:g} of {gpu.memory_gib:g}), "
        f"{memory.weights_gib:.2f} GiB weights ({weight_dtype}), {memory.overhead_gib:.2f} GiB overhead at "
        f"{tokens} tokens and {seqs} sequences a step. "
        + (f"What would fit: {advice}" if advice else "No size, weight type or single accelerator here fits it.")
    )


def _fitting_length(engine: EngineSection, model: Model, length: int, blocks: int) -> int:
    """Return max_model_len; -1 becomes the longest that fits, anything else must fit as vLLM demands at start."""
    block_size, asked = engine.limit("block_size"), engine.limit("max_model_len")
    longest = (blocks - engine.NULL_BLOCKS) * block_size
    if asked == AUTO_LENGTH:
        return min(length, longest)
    if length > blocks * block_size:
        share, tp, seqs = (
            engine.key(name) for name in ("gpu_memory_utilization", "tensor_parallel_size", "max_num_seqs")
        )
        ways = f"{share} or {tp}, or lower {seqs}"
        if engine.limit("num_gpu_blocks") is not None:
            ways = engine.key("num_gpu_blocks")
        whose = "the model's own limit" if asked is None else "one sequence of that length"
        raise ConfigError(
            f"{engine.key('max_model_len')} = {length}: {whose} does not fit in the KV cache of {blocks} blocks of "
            f"{block_size} tokens, so {engine.policy.replace('vllm', 'vLLM')} would refuse to start; set it to "
            f"at most {longest}, or raise {ways}"
        )
    return length


def _resolved_config(config: Config, engine: dict[str, Any], hardware: dict[str, Any]) -> Config:
    return config.model_copy(
        update={
            "engine": config.engine.resolved(engine),
            "hardware": config.hardware.model_copy(update=hardware),
        }
    )


def _warnings(
    engine: EngineSection,
    gpu: Gpu,
    model: Model,
    kv_dtype: str,
    memory: Memory,
    blocks: int,
    length: int,
    steps: StepTime,
) -> list[str]:
    found = list(steps.notes)
    tp, stated = engine.limit("tensor_parallel_size"), engine.limit("num_gpu_blocks")
    if model.kv_heads is not None and tp > model.kv_heads:
        found.append(
            f"Each of the {model.kv_heads} KV heads is kept on {tp // model.kv_heads} GPUs: beyond "
            f"{model.kv_heads} GPUs tensor parallelism copies KV instead of dividing it."
        )
    if kv_dtype == "fp8" and gpu.fp8_tflops is None:
        found.append(f"{gpu.id} has no FP8 arithmetic: FP8 KV is stored but converted on use; that time is left out.")
    if model.sliding_window is not None:
        found.append(f"{model.id} has sliding-window layers; all layers are treated as full attention.")
    if stated is not None and stated > memory.num_gpu_blocks:
        found.append(
            f"{engine.key('num_gpu_blocks')} = {stated} is more than the {memory.num_gpu_blocks} blocks "
            "that fit in memory by this model's sum."
        )
    usable_tokens = (blocks - engine.NULL_BLOCKS) * engine.limit("block_size")
    if length > usable_tokens:
        found.append(
            f"A sequence of {engine.key('max_model_len')} = {length} tokens needs every block; the engine starts, but "
            f"one block is never handed out, so a request beyond {usable_tokens} tokens stalls."
        )
    return found


def _listed(names: list[Any]) -> str:
    return ", ".join(map(str, names[:-1])) + (" or " if len(names) > 1 else "") + str(names[-1])
