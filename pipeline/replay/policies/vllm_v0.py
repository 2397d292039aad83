"""vLLM's original scheduler."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.hardware import Deployment
from pipeline.kernel import layout
from pipeline.kernel.policies import vllm_v0
from pipeline.kernel.policies.vllm_v0 import OWN, SETTINGS, SLOT, Parts
from pipeline.replay.policies.base import PolicySettings

MODES = {None: vllm_v0.BY_WEIGHT, "swap": vllm_v0.ALWAYS_SWAP, "recompute": vllm_v0.ALWAYS_RECOMPUTE}
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Settings(PolicySettings):
    """Engine settings under vLLM's names."""

    version: str = "0.6.3"  # or 0.2.7
    block_size: int  # tokens per KV block
    num_gpu_blocks: int  # KV blocks
    num_cpu_blocks: int  # KV blocks of the host, to swap to
    max_num_batched_tokens: int  # most tokens of prompts in one step
    max_num_seqs: int
    max_paddings: int = 256  # 0.2.7: most tokens of padding in a step of prompts
    enable_chunked_prefill: bool = False
    preemption_mode: str | None = None  # swap or recompute; None: recompute single sequences, swap several
    scheduling_policy: str = "fcfs"
    scheduler_delay_factor: float = 0.0
    watermark: float = 0.01  # share of the blocks that admission leaves free
    swap_block_ns: int = 0  # moving a block over the host link
    copy_block_ns: int = 0  # copying a block on the accelerator
    released_defects: bool = False
    # What the scheduler takes for max_model_len where nothing keeps answers within it; None: max_model_len
    scheduler_max_model_len: int | None = None

    @classmethod
    def of(cls, deployment: Deployment) -> dict[str, Any]:
        """Return the settings of a deployment; moving and copying blocks takes what their bytes take."""
        engine = deployment.config.engine
        block_bytes = deployment.block_size * deployment.kv_bytes_per_token_per_gpu
        return super().of(deployment) | {
            "num_cpu_blocks": int(engine.limit("swap_space") * GIB // block_bytes),
            "swap_block_ns": round(block_bytes / engine.limit("host_link_gb_per_s")),
            "copy_block_ns": round(2 * block_bytes / deployment.gpu.bandwidth_gb_per_s),  # read and written
        }

    @property
    def most_running(self) -> int:
        """Most requests that can run at once."""
        return self.max_num_seqs

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the lists of groups here and on the host, and enter the limits in `engines`."""
        n, running = len(engines), self.max_num_seqs
        engines.block_size = self.block_size
        engines.max_num_batched_tokens = self.max_num_batched_tokens
        engines.most_blocks = engines.free_blocks = self.num_gpu_blocks
        groups = self.num_cpu_blocks + 1  # each holds a block at least
        return Parts(
            slots=layout.records(SLOT, n, running),
            swapped=layout.records(SLOT, n, groups),
            work=layout.records(SLOT, n, max(running, groups) + 1),
            rows=np.zeros((n, 2, max(running, groups)), np.int64),
            settings=self._records(n),
            own_columns=layout.records(OWN, n, step_rows),
        )

    def _records(self, replicas: int) -> Any:
        settings = layout.records(SETTINGS, replicas)
        longest = self.scheduler_max_model_len or self.max_model_len
        settings.early = self.version.startswith("0.2.")
        settings.chunked = self.enable_chunked_prefill
        settings.by_rank = self.scheduling_policy == "priority" and not self.enable_chunked_prefill
        settings.preemption_mode = MODES[self.preemption_mode]
        settings.max_paddings = self.max_paddings
        settings.longest_prompt = longest if self.enable_chunked_prefill else min(longest, self.max_num_batched_tokens)
        settings.watermark_blocks = int(self.watermark * self.num_gpu_blocks)
        settings.swap_block_ns = self.swap_block_ns
        settings.copy_block_ns = self.copy_block_ns
        settings.defects = self.released_defects
        settings.host_free = self.num_cpu_blocks
        settings.delay_factor = self.scheduler_delay_factor
        return settings
