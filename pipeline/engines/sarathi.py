"""sarathi-serve's schedulers: stall-free and its baselines, Orca, static batching."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipeline.engines.base import EngineSection
from pipeline.settings import Blocks, Count, Length, Share

MODELS = "sarathi-serve/96f9911"
DEFAULT_CHUNK = 512
CHUNK_SCHEDULE = ("low_chunk_size", "high_chunk_size", "chunk_schedule_max_tokens", "chunk_schedule_stages")


class _Common(EngineSection):
    """What all of them are told."""

    MODELS: ClassVar[str] = MODELS

    block_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="KV block, tokens")
    num_gpu_blocks: Blocks | None = Field(default=None, description="KV blocks; none: computed from the hardware")
    max_model_len: Length | None = Field(
        default=None, description="longest sequence, tokens; none: the model's own limit; -1: as much as fits"
    )
    max_num_seqs: Count = Field(default=128, description="most requests running at once")
    gpu_memory_utilization: Share = Field(
        default=0.9, description="share of the accelerator's whole memory that the engine may use, weights included"
    )
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="accelerators that share a model"
    )
    enforce_max_model_len: bool = Field(
        default=True,
        description="answers end at max_model_len, as every server sees to; off, as released: the scheduler itself "
        "lets them outgrow it",
    )


class Sarathi(_Common):
    """Stall-free batching with chunked prefills, or a baseline of its paper, under sarathi-serve's names."""

    NAMES: ClassVar[Mapping[str, str]] = {"max_num_batched_tokens": "chunk_size"}
    CONSTANTS: ClassVar[Mapping[str, Any]] = {"enable_prefix_caching": False}

    policy: Literal["sarathi"] = Field(default="sarathi", description="scheduler that makes the decisions")
    scheduler_type: Literal["sarathi", "vllm", "simple_chunking"] = Field(
        default="sarathi",
        description="sarathi: chunks of prompts beside every decode; vllm: whole prompts first, then decodes; "
        "simple_chunking: steps of chunks and of decodes in turn",
    )
    chunk_size: Count | None = Field(
        default=None,
        description="tokens of a step, decodes included; at least max_num_seqs; none: 512, or max_num_seqs if more",
    )
    max_batched_tokens: Count | None = Field(
        default=None, description="scheduler_type vllm: most tokens of prompts in a step; none: max_model_len"
    )
    enable_dynamic_chunking_schedule: bool = Field(
        default=False, description="chunks get smaller as a prompt proceeds, from high_chunk_size to low_chunk_size"
    )
    low_chunk_size: Count | None = Field(default=None, description="dynamic chunking: last chunk size, tokens")
    high_chunk_size: Count | None = Field(default=None, description="dynamic chunking: first chunk size, tokens")
    chunk_schedule_max_tokens: Count | None = Field(
        default=None, description="dynamic chunking: progress in a prompt at which the last stage ends, tokens"
    )
    chunk_schedule_stages: Count | None = Field(default=None, description="dynamic chunking: number of chunk sizes")
    correct_restart_count: bool = Field(
        default=True,
        description="max_tokens counts all tokens of an answer; off, as released: only those since the last restart, "
        "so that a request put out after 10 tokens generates 10 too many",
    )

    @model_validator(mode="after")
    def _schedule_is_whole(self) -> "Sarathi":
        if not self.enable_dynamic_chunking_schedule:
            return self
        absent = [name for name in CHUNK_SCHEDULE if getattr(self, name) is None]
        if absent:
            raise ValueError(f"engine.{absent[0]} must be stated with engine.enable_dynamic_chunking_schedule")
        return self

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return the tokens of the largest step and max_num_seqs."""
        if self.scheduler_type == "vllm":
            return self.max_batched_tokens or model_len, self.max_num_seqs
        chunk = self.chunk_size or max(DEFAULT_CHUNK, self.max_num_seqs)
        if self.enable_dynamic_chunking_schedule:
            chunk = self.high_chunk_size or chunk
        least = min(chunk, self.low_chunk_size or chunk)
        if least < self.max_num_seqs:
            raise ValueError(
                f"engine.chunk_size = {least}: must be at least engine.max_num_seqs = {self.max_num_seqs}, since every "
                "running request may take one of its tokens"
            )
        return chunk, self.max_num_seqs


class Orca(_Common):
    """Iteration-level scheduling; every request holds a slot of max_model_len tokens."""

    CONSTANTS: ClassVar[Mapping[str, Any]] = {"enable_prefix_caching": False, "max_num_batched_tokens": None}

    policy: Literal["orca"] = Field(default="orca", description="scheduler that makes the decisions")

    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return the tokens of the longest prompt, which a step must have room for, and max_num_seqs."""
        return model_len, self.max_num_seqs

    def most_step_tokens(self, tokens: int, seqs: int, kv_tokens: int) -> int:
        """Return the tokens of a step in which all of memory is filled with prompts."""
        return kv_tokens + seqs


class Static(Orca):
    """Static batching as FasterTransformer does it: a batch is decoded to its end before the next one starts."""

    policy: Literal["static"] = Field(default="static", description="scheduler that makes the decisions")  # type: ignore[assignment]
