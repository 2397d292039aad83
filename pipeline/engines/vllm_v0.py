"""vLLM's original scheduler, 0.2.7 and 0.6.3."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pipeline.engines.base import EngineSection
from pipeline.engines.vllm import check_batch_limits
from pipeline.settings import AtLeastZero, Blocks, Count, Length, Positive, Share

LEAST_BATCHED_TOKENS = 2048
CHUNKED_BATCHED_TOKENS = 512
LONG_CONTEXT = 32_768  # above it 0.6.3 turns chunked prefill on by itself


class VllmV0(EngineSection):
    """The scheduler of the paper and of vLLM's first two years, under vLLM's own argument names."""

    SAMPLES: ClassVar[bool] = True
    MODELS: ClassVar[str] = "vllm/0.2.7-0.6.3"
    CONSTANTS: ClassVar[Mapping[str, Any]] = {"enable_prefix_caching": False}

    policy: Literal["vllm_v0"] = Field(default="vllm_v0", description="scheduler that makes the decisions")
    version: Literal["0.2.7", "0.6.3"] = Field(default="0.6.3", description="release of vLLM")
    block_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="KV block, tokens")
    num_gpu_blocks: Blocks | None = Field(default=None, description="KV blocks; none: computed from the hardware")
    swap_space: AtLeastZero = Field(default=4.0, description="host memory to swap to, GiB for each accelerator")
    host_link_gb_per_s: Positive = Field(
        default=32.0, description="link to the host that swapped blocks go over, GB/s each way; PCIe 4.0 x16 has 32"
    )
    max_model_len: Length | None = Field(
        default=None, description="longest sequence, tokens; none: the model's own limit; -1: as much as fits"
    )
    max_num_batched_tokens: Count | None = Field(
        default=None,
        description="most tokens in a step of prompts, or with chunked prefill in any step; none: max_model_len or "
        "2048 if that is more, with chunked prefill 512",
    )
    max_num_seqs: Count = Field(default=256, description="most sequences running at once, each sample counted")
    max_paddings: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=256, description="0.2.7: most tokens of padding in a step of prompts"
    )
    enable_chunked_prefill: bool | None = Field(
        default=None,
        description="0.6.3: a prompt may be computed in several steps, beside decodes; none: where max_model_len is "
        "above 32768",
    )
    preemption_mode: Literal["swap", "recompute"] | None = Field(
        default=None,
        description="0.6.3: what becomes of a request that finds no room; none: several samples are swapped to the "
        "host, a single one is computed anew",
    )
    scheduling_policy: Literal["fcfs", "priority"] = Field(
        default="fcfs", description="0.6.3: order of the waiting queue; priority has no effect with chunked prefill"
    )
    scheduler_delay_factor: AtLeastZero = Field(
        default=0.0, description="0.6.3: prompts wait for so many times the length of the last step of prompts"
    )
    watermark: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.01, description="share of KV blocks that admission leaves free"
    )
    gpu_memory_utilization: Share = Field(
        default=0.9, description="share of the accelerator's whole memory that the engine may use, weights included"
    )
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="accelerators that share a model"
    )
    released_defects: bool = Field(
        default=False,
        description="the released code's defects: 0.2.7 loses the blocks of a group whose last sample is computed anew "
        "and waits for ever for a group too large to come back, 0.6.3 takes a prompt computed anew for a decode, "
        "and either dies where host memory is full; off: such a request is refused",
    )

    @model_validator(mode="after")
    def _release_has_it(self) -> "VllmV0":
        if self.version != "0.2.7":
            return self
        for name, plain in (
            ("enable_chunked_prefill", (None, False)),
            ("preemption_mode", (None,)),
            ("scheduling_policy", ("fcfs",)),
            ("scheduler_delay_factor", (0.0,)),
        ):
            if getattr(self, name) not in plain:
                raise ValueError(f"engine.{name} = {getattr(self, name)}: vLLM 0.2.7 has no such setting; use 0.6.3")
        return self

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return max_num_batched_tokens and max_num_seqs."""
        chunked = self._chunked(model_len)
        default = CHUNKED_BATCHED_TOKENS if chunked else max(model_len, LEAST_BATCHED_TOKENS)
        tokens = self.max_num_batched_tokens or max(default, self.max_num_seqs)
        check_batch_limits(tokens, self.max_num_seqs, model_len, chunked)
        return tokens, self.max_num_seqs

    def resolved(self, limits: Mapping[str, Any]) -> Self:
        """Return the section with its limits filled in, and whether it computes prompts in chunks."""
        filled = super().resolved(limits)
        return filled.model_copy(update={"enable_chunked_prefill": self._chunked(limits.get("max_model_len") or 0)})

    def _chunked(self, model_len: int) -> bool:
        if self.enable_chunked_prefill is None:
            return self.version != "0.2.7" and model_len > LONG_CONTEXT
        return self.enable_chunked_prefill
