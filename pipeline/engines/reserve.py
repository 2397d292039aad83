"""The conservative baseline: KV for prompt and longest answer is reserved at admission."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.engines.base import EngineSection
from pipeline.engines.vllm import check_batch_limits, default_batch_limits
from pipeline.settings import Blocks, Count, Length, Share


class Reserve(EngineSection):
    """A scheduler that never takes anything back, under vLLM's argument names."""

    NULL_BLOCKS: ClassVar[int] = 1
    MODELS: ClassVar[str] = "reserve/1"
    CONSTANTS: ClassVar[Mapping[str, bool]] = {"enable_chunked_prefill": False, "enable_prefix_caching": False}

    policy: Literal["reserve"] = Field(default="reserve", description="scheduler that makes the decisions")
    block_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="KV block, tokens")
    num_gpu_blocks: Blocks | None = Field(
        default=None, description="KV blocks, one of them never handed out; none: computed from the hardware"
    )
    max_model_len: Length | None = Field(
        default=None, description="longest sequence, tokens; none: the model's own limit; -1: as much as fits"
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="most tokens in one step; prompts are not cut, so at least max_model_len, the default"
    )
    max_num_seqs: Count | None = Field(default=None, description="most requests running at once; none: as vLLM")
    gpu_memory_utilization: Share = Field(
        default=0.9, description="share of the accelerator's whole memory that the engine may use, weights included"
    )
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="accelerators that share a model"
    )

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return max_num_batched_tokens and max_num_seqs."""
        default_tokens, default_seqs = default_batch_limits(memory_gib, gpu_name)
        tokens = self.max_num_batched_tokens or max(default_tokens, model_len)
        seqs = self.max_num_seqs or default_seqs
        check_batch_limits(tokens, seqs, model_len, chunked_prefill=False)
        return tokens, seqs
