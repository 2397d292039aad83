"""TensorRT-LLM."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.hardware import Deployment
from pipeline.kernel import layout
from pipeline.kernel.layout import NONE
from pipeline.kernel.policies import tensorrt_llm
from pipeline.kernel.policies.tensorrt_llm import OWN, PLAN, SETTINGS, SLOT, Parts
from pipeline.replay.policies.base import PolicySettings

CAPACITY = {
    "GUARANTEED_NO_EVICT": tensorrt_llm.NO_EVICT,
    "STATIC_BATCH": tensorrt_llm.STATIC_BATCH,
    "MAX_UTILIZATION": tensorrt_llm.MAX_UTILIZATION,
}
CHUNKING = {
    None: tensorrt_llm.WHOLE,
    "FIRST_COME_FIRST_SERVED": tensorrt_llm.FIRST_COME_FIRST_SERVED,
    "EQUAL_PROGRESS": tensorrt_llm.EQUAL_PROGRESS,
}


@dataclass(frozen=True, kw_only=True)
class Settings(PolicySettings):
    """Engine settings under TensorRT-LLM's names."""

    tokens_per_block: int
    num_blocks: int  # KV blocks
    max_batch_size: int  # most requests in a step
    max_num_tokens: int  # most tokens in a step
    capacity_scheduler_policy: str = "GUARANTEED_NO_EVICT"
    context_chunking_policy: str | None = None  # None: prompts are computed whole
    chunk_unit_size: int = 32  # tokens that chunks are multiples of

    @classmethod
    def of(cls, deployment: Deployment) -> dict[str, Any]:
        """Return the settings of a deployment; without chunked prefill no chunking policy applies."""
        values = super().of(deployment)
        engine = deployment.config.engine
        unit = engine.limit("chunk_unit_size") or engine.limit("block_size")
        policy = engine.limit("context_chunking_policy") if engine.limit("enable_chunked_prefill") else None
        return values | {"chunk_unit_size": unit, "context_chunking_policy": policy}

    @property
    def most_running(self) -> int:
        """Most requests that can have started: each holds a block at least."""
        return self.num_blocks

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the arrays of both schedulers and enter the limits in `engines`."""
        n = len(engines)
        engines.block_size = self.tokens_per_block
        engines.max_num_batched_tokens = self.max_num_tokens
        engines.most_blocks = engines.free_blocks = self.num_blocks
        slots = layout.records(SLOT, n, self.num_blocks)
        slots.later[:] = np.append(np.arange(1, self.num_blocks), NONE)
        settings = layout.records(SETTINGS, n)
        settings.capacity = CAPACITY[self.capacity_scheduler_policy]
        settings.chunking = CHUNKING[self.context_chunking_policy]
        settings.chunk_unit = self.chunk_unit_size
        settings.max_batch_size = self.max_batch_size
        return Parts(
            slots=slots,
            fitting=layout.records(PLAN, n, self.max_batch_size),
            settings=settings,
            own_columns=layout.records(OWN, n, step_rows),
        )
