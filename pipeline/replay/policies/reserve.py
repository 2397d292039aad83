"""The conservative baseline that reserves the longest answer at admission."""

from dataclasses import dataclass
from typing import Any

from pipeline.kernel import layout
from pipeline.kernel.policies.reserve import SLOT, Parts
from pipeline.replay.policies.base import PolicySettings


@dataclass(frozen=True, kw_only=True)
class Settings(PolicySettings):
    """Engine settings under vLLM's names."""

    block_size: int  # tokens per KV block
    num_gpu_blocks: int  # KV blocks, one of them never handed out
    max_num_batched_tokens: int  # most tokens in one step; at least max_model_len, as prompts are not cut
    max_num_seqs: int

    @property
    def most_running(self) -> int:
        """Most requests that can run at once."""
        return self.max_num_seqs

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the list of running requests and enter the limits in `engines`."""
        engines.block_size = self.block_size
        engines.max_num_batched_tokens = self.max_num_batched_tokens
        engines.most_blocks = engines.free_blocks = self.num_gpu_blocks - 1
        return Parts(slots=layout.records(SLOT, len(engines), self.max_num_seqs))
