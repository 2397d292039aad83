"""S-LoRA with fair queues between tenants."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipeline.engines.base import EngineSection
from pipeline.settings import AtLeastZero, Blocks, Count, Length, Positive, Share


class Slora(EngineSection):
    """S-LoRA's router with the queues of VTC, under its argument names."""

    MODELS: ClassVar[str] = "VTC-artifact/192c2e2"
    MOST_TENANTS: ClassVar[int] = 65_536
    NAMES: ClassVar[Mapping[str, str]] = {
        "num_gpu_blocks": "max_total_token_num",
        "max_num_batched_tokens": "batch_max_tokens",
        "max_num_seqs": "running_max_req_size",
        "gpu_memory_utilization": "memory_share",
        "tensor_parallel_size": "tp",
        "max_model_len": "max_req_total_len",
    }
    CONSTANTS: ClassVar[Mapping[str, Any]] = {
        "block_size": 1, "enable_prefix_caching": False, "enable_chunked_prefill": False,
    }  # fmt: skip

    policy: Literal["slora"] = Field(default="slora", description="scheduler that makes the decisions")
    scheduler: Literal["vtc_fair", "lcf_fair", "mdrr_fair", "fcfs"] = Field(
        default="vtc_fair",
        description="whose turn it is: virtual token counter, least counter first, deficit round robin, or one queue",
    )
    fair_weights: tuple[Positive, ...] = Field(
        default=(), description="weights of tenants in the order in which the trace first names them; 1 for the others"
    )
    input_price: AtLeastZero = Field(default=1.0, description="what an input token counts for its tenant")
    output_price: AtLeastZero = Field(default=2.0, description="what an output token counts for its tenant")
    max_total_token_num: Blocks | None = Field(
        default=None, description="KV memory, tokens; none: computed from the hardware"
    )
    batch_max_tokens: Count | None = Field(
        default=None,
        description="most prompt tokens in a step; none: a sixth of memory, the longest prompt at least",
    )
    running_max_req_size: Count = Field(default=1000, description="most requests running at once")
    max_wait_tokens: Count = Field(default=10, description="decodes after which new requests are looked for")
    max_req_total_len: Length | None = Field(
        default=None, description="longest sequence, tokens; none: the model's own limit; -1: as much as fits"
    )
    memory_share: Share = Field(
        default=0.9, description="share of the accelerator's whole memory that the engine may use, weights included"
    )
    tp: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="accelerators that share a model")

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return batch_max_tokens and running_max_req_size."""
        tokens = self.batch_max_tokens or max(model_len, (self.max_total_token_num or 0) // 6)
        if tokens < model_len:
            raise ValueError(
                f"engine.batch_max_tokens = {tokens}: must be at least engine.max_req_total_len = {model_len}, since "
                "prompts are not cut"
            )
        return tokens, self.running_max_req_size
