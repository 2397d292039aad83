"""TensorRT-LLM."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipeline.engines.base import EngineSection
from pipeline.settings import Blocks, Count, Length, Share


class TensorrtLlm(EngineSection):
    """TensorRT-LLM's capacity and micro-batch schedulers, under its own argument names."""

    MODELS: ClassVar[str] = "TensorRT-LLM/2025"
    NAMES: ClassVar[Mapping[str, str]] = {
        "block_size": "tokens_per_block",
        "num_gpu_blocks": "num_blocks",
        "max_model_len": "max_seq_len",
        "max_num_batched_tokens": "max_num_tokens",
        "max_num_seqs": "max_batch_size",
        "gpu_memory_utilization": "free_gpu_memory_fraction",
        "tensor_parallel_size": "tp_size",
    }
    CONSTANTS: ClassVar[Mapping[str, Any]] = {"enable_prefix_caching": False}

    policy: Literal["tensorrt_llm"] = Field(default="tensorrt_llm", description="scheduler that makes the decisions")
    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"] = Field(
        default="GUARANTEED_NO_EVICT",
        description="who fits into memory: those whose whole answer has room, those whose next step has (pausing the "
        "last one where it has not), or a batch at a time",
    )
    enable_chunked_prefill: bool = Field(default=False, description="a prompt may be computed in several steps")
    context_chunking_policy: Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"] = Field(
        default="FIRST_COME_FIRST_SERVED", description="how prompts share what generating requests leave of a step"
    )
    chunk_unit_size: Count | None = Field(
        default=None, description="tokens that chunks are multiples of, itself one of tokens_per_block; none: one block"
    )
    tokens_per_block: Annotated[int, Field(ge=1, le=1024)] = Field(default=32, description="KV block, tokens")
    num_blocks: Blocks | None = Field(default=None, description="KV blocks; none: computed from the hardware")
    max_seq_len: Length | None = Field(
        default=None, description="longest sequence, tokens; none: the model's own limit; -1: as much as fits"
    )
    max_batch_size: Count = Field(default=2048, description="most requests in a step")
    max_num_tokens: Count = Field(default=8192, description="most tokens in a step")
    free_gpu_memory_fraction: Share = Field(
        default=0.9,
        description="share of the accelerator's memory for weights, working memory and KV, as vLLM counts it "
        "(TensorRT-LLM means a share of what is free after loading)",
    )
    tp_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="accelerators that share a model")

    @model_validator(mode="after")
    def _units_are_blocks(self) -> "TensorrtLlm":
        if self.chunk_unit_size is not None and self.chunk_unit_size % self.tokens_per_block:
            raise ValueError(
                f"engine.chunk_unit_size = {self.chunk_unit_size}: must be a multiple of engine.tokens_per_block = "
                f"{self.tokens_per_block}"
            )
        return self

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return max_num_tokens and max_batch_size; a prompt that is not cut must fit into a step."""
        if not self.enable_chunked_prefill and self.max_num_tokens < model_len:
            # The engine would refuse longer prompts one by one; here a step has room for any.
            return model_len, self.max_batch_size
        return self.max_num_tokens, self.max_batch_size
