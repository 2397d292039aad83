"""SGLang."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from pipeline.engines.base import EngineSection
from pipeline.settings import Count, Length, Share

# Default chunk by accelerator memory, GiB below: tokens (server_args.py of SGLang 0.5.23).
CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
LARGEST_CHUNK = 16_384
CUT_NOTHING = -1


class Sglang(EngineSection):
    """SGLang's scheduler and radix cache, under its own argument names."""

    MODELS: ClassVar[str] = "sglang/0.5.23"
    NAMES: ClassVar[Mapping[str, str]] = {
        "block_size": "page_size",
        "num_gpu_blocks": "max_total_tokens",
        "max_model_len": "context_length",
        "max_num_batched_tokens": "chunked_prefill_size",
        "max_num_seqs": "max_running_requests",
        "gpu_memory_utilization": "mem_fraction_static",
        "tensor_parallel_size": "tp_size",
    }

    policy: Literal["sglang"] = Field(default="sglang", description="scheduler that makes the decisions")
    schedule_policy: Literal["fcfs", "lpm", "dfs-weight", "lof"] = Field(
        default="fcfs",
        description="order of the queue: as they came; longest cached prefix first (up to 128 waiting); depth first "
        "over the radix tree; longest answer allowed first",
    )
    page_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="tokens per page of the KV pool")
    max_total_tokens: Annotated[int, Field(ge=2, le=2**31 - 1)] | None = Field(
        default=None, description="tokens of the KV pool; none: computed from the hardware"
    )
    context_length: Length | None = Field(
        default=None, description="longest sequence, tokens; none: the model's own limit; -1: as much as fits"
    )
    max_running_requests: Annotated[int, Field(ge=1, le=65_536)] = Field(
        default=2048, description="most requests running at once (SGLang: 2048 to 4096, by the size of the pool)"
    )
    chunked_prefill_size: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = Field(
        default=None,
        description="most tokens of prompts in a step; -1: prompts are not cut; none: 2048 below 20 GiB of memory, "
        "4096 below 60, 8192 below 160, else 16384",
    )
    max_prefill_tokens: Count = Field(
        default=16_384, description="tokens after which a step takes in no more prompts; the first may be longer"
    )
    prefill_max_requests: Count | None = Field(default=None, description="most prompts in a step")
    disable_radix_cache: bool = Field(default=False, description="nothing is shared or kept between requests")
    radix_eviction_policy: Literal["lru", "lfu", "fifo", "slru"] = Field(
        default="lru",
        description="whose run of tokens is dropped first: least recently used, least often hit, oldest, or those hit "
        "less than twice",
    )
    schedule_conservativeness: Annotated[float, Field(ge=0, le=100)] = Field(
        default=1.0, description="times 0.7 is the share of answers still to come that admission counts at first"
    )
    enable_mixed_chunk: bool = Field(default=False, description="decodes join the steps that compute prompts")
    enable_priority_scheduling: bool = Field(default=False, description="requests of higher priority go first")
    disable_priority_preemption: bool = Field(
        default=False, description="priorities order the queue only; nobody who runs makes way"
    )
    schedule_low_priority_values_first: bool = Field(default=False, description="small numbers are high priorities")
    priority_scheduling_preemption_threshold: int = Field(
        default=10, description="a request makes way for one whose priority is higher by more than this"
    )
    retraction_policy: Literal["length", "priority"] = Field(
        default="length", description="who is retracted first: short answers and long prompts, or low priorities"
    )
    prefill_decode_interval: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        default=None, description="decode steps between two steps that compute prompts"
    )
    disable_overlap_schedule: bool = Field(
        default=False, description="a step is decided after the one before it has ended, not while it runs"
    )
    released_defects: bool = Field(
        default=False,
        description="with two defects of SGLang 0.5.23: a prompt in the middle goes on without asking for room, and "
        "the process dies where others have taken it; of two prompts cut in one step the first counts as computed",
    )
    mem_fraction_static: Share = Field(
        default=0.9,
        description="share of the accelerator's memory for weights, working memory and KV, as vLLM counts it (SGLang "
        "counts weights and KV only, and chooses the share by the size of the memory)",
    )
    tp_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="accelerators that share a model")

    def limit(self, name: str) -> Any:
        """Return a limit by vLLM's name; the pool counts in pages."""
        if name == "num_gpu_blocks":
            return None if self.max_total_tokens is None else self.max_total_tokens // self.page_size
        if name == "enable_prefix_caching":
            return not self.disable_radix_cache
        return super().limit(name)

    def resolved(self, limits: Mapping[str, Any]) -> Self:
        """Return the section with limits filled in; a chunk size that is stated stays."""
        filled = {**limits, "num_gpu_blocks": limits["num_gpu_blocks"] * self.page_size}
        if self.chunked_prefill_size is not None:
            filled["max_num_batched_tokens"] = self.chunked_prefill_size
        return super().resolved(filled)

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return the tokens of a step that memory is set aside for, and max_running_requests."""
        if self.chunked_prefill_size == CUT_NOTHING:
            return max(self.max_prefill_tokens, model_len), self.max_running_requests
        by_memory = next((tokens for below, tokens in CHUNKS if memory_gib < below), LARGEST_CHUNK)
        chunk = by_memory if self.chunked_prefill_size is None else self.chunked_prefill_size
        if chunk < self.page_size:
            raise ValueError(
                f"engine.chunked_prefill_size = {chunk}: must be at least engine.page_size = {self.page_size}, or -1"
            )
        return chunk, self.max_running_requests

    def most_step_tokens(self, tokens: int, seqs: int, kv_tokens: int) -> int:
        """Return the most tokens of one step: where prompts are not cut, the last one may be of any length."""
        return tokens + seqs + (kv_tokens if self.chunked_prefill_size == CUT_NOTHING else 0)
