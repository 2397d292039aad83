"""vLLM 0.33."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pipeline.engines.base import EngineSection
from pipeline.settings import Blocks, Count, Length, Share


class Vllm(EngineSection):
    """How the serving engine is set up, under vLLM's own argument names."""

    NULL_BLOCKS: ClassVar[int] = 1
    MODELS: ClassVar[str] = "vllm/0.33.0"

    policy: Literal["vllm"] = Field(default="vllm", description="scheduler that makes the decisions")
    block_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="KV block, tokens")
    num_gpu_blocks: Blocks | None = Field(
        default=None,
        description="KV blocks, null block included (vLLM's num_gpu_blocks_override); none: computed from the hardware",
    )
    max_model_len: Length | None = Field(
        default=None,
        description="longest sequence, prompt and answer, tokens; none: the model's own limit; -1: as much as fits",
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="most tokens in one step; none: vLLM's server default for the accelerator"
    )
    max_num_seqs: Count | None = Field(
        default=None, description="most requests running at once; none: vLLM's server default for the accelerator"
    )
    max_num_active_seqs: Count | None = Field(
        default=None, description="most requests running when another one is admitted; none: max_num_seqs"
    )
    enable_chunked_prefill: bool = Field(default=True, description="a prompt may be computed in several steps")
    enable_prefix_caching: bool = Field(default=True, description="KV blocks of equal prefixes are shared and kept")
    scheduling_policy: Literal["fcfs", "priority"] = Field(default="fcfs", description="order of the waiting queue")
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="most prefill tokens of one request in a step; 0: no limit"
    )
    long_prefill_token_threshold_adaptive: bool = Field(
        default=False, description="raise that threshold to an equal share of the step where that is more"
    )
    scheduler_reserve_full_isl: bool = Field(
        default=True, description="admit a request only if its whole prompt fits now"
    )
    watermark: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of KV blocks kept free when a request is admitted beside others"
    )
    prefill_schedule_interval: Count = Field(default=1, description="steps from one prefill to the next; 1: every step")
    async_scheduling: bool = Field(default=True, description="decide a step while the one before it still runs")
    gpu_memory_utilization: Share = Field(
        default=0.9, description="share of the accelerator's whole memory that the engine may use, weights included"
    )
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="accelerators that share a model"
    )

    @model_validator(mode="after")
    def _batch_limits_agree(self) -> "Vllm":
        if self.max_num_batched_tokens is not None:
            check_batch_limits(
                self.max_num_batched_tokens, self.max_num_seqs, self.max_model_len, self.enable_chunked_prefill
            )
        return self

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return max_num_batched_tokens and max_num_seqs, with vLLM's corrections of its own defaults."""
        default_tokens, default_seqs = default_batch_limits(memory_gib, gpu_name)
        seqs = self.max_num_seqs or default_seqs
        tokens = self.max_num_batched_tokens
        if tokens is None:
            tokens = default_tokens if self.enable_chunked_prefill else max(model_len, default_tokens)
            tokens = min(tokens, seqs * model_len)
        if self.max_num_seqs is None:
            seqs = min(seqs, tokens)
        check_batch_limits(tokens, seqs, model_len, self.enable_chunked_prefill)
        return tokens, seqs


def default_batch_limits(memory_gib: float, gpu_name: str) -> tuple[int, int]:
    """Return max_num_batched_tokens and max_num_seqs that vLLM's API server chooses for an accelerator."""
    if memory_gib >= 160:
        return 16384, 1024
    if memory_gib >= 70 and "a100" not in gpu_name.lower():
        return 8192, 1024
    return 2048, 256


def check_batch_limits(batched_tokens: int, seqs: int | None, model_len: int | None, chunked_prefill: bool) -> None:
    """Raise ValueError if vLLM would refuse to start with these limits; None is a limit not known yet."""
    if seqs is not None and batched_tokens < seqs:
        raise ValueError(
            f"engine.max_num_batched_tokens = {batched_tokens}: must be at least engine.max_num_seqs = {seqs}"
        )
    if not chunked_prefill and model_len is not None and batched_tokens < model_len:
        raise ValueError(
            f"engine.max_num_batched_tokens = {batched_tokens}: must be at least engine.max_model_len = {model_len} "
            "while engine.enable_chunked_prefill is off; raise it, lower max_model_len or switch chunked prefill on"
        )
