"""sarathi-serve: its stall-free scheduler and the two baselines that take blocks as they need them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.hardware import Deployment
from pipeline.kernel import layout
from pipeline.kernel.policies import sarathi
from pipeline.kernel.policies.sarathi import OWN, SETTINGS, SLOT, Parts
from pipeline.replay.policies.base import PolicySettings

SCHEDULERS = {
    "sarathi": sarathi.SARATHI,
    "vllm": sarathi.PREFILL_FIRST,
    "simple_chunking": sarathi.ALTERNATING,
    "orca": sarathi.ORCA,
    "faster_transformer": sarathi.STATIC,
}
WATERMARK = 0.01  # share of the blocks that admission leaves free, a constant of sarathi-serve
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class SlotSettings(PolicySettings):
    """What all five schedulers are told."""

    block_size: int  # tokens per KV block
    num_gpu_blocks: int  # KV blocks
    max_num_seqs: int
    # What the scheduler takes for max_model_len where nothing keeps answers within it; None: max_model_len
    scheduler_max_model_len: int | None = None

    @classmethod
    def of(cls, deployment: Deployment) -> dict[str, Any]:
        """Return the settings of a deployment, without a limit on answers where none is to be kept."""
        values = super().of(deployment)
        if not deployment.config.engine.limit("enforce_max_model_len"):
            values |= {"max_model_len": UNLIMITED, "scheduler_max_model_len": deployment.max_model_len}
        return values

    @property
    def most_running(self) -> int:
        """Most requests that can run at once."""
        return self.max_num_seqs

    @property
    def longest(self) -> int:
        """Longest sequence that the scheduler takes from its queue, tokens."""
        return self.scheduler_max_model_len or self.max_model_len

    def arrays(self, engines: Any, step_rows: int, scheduler: str, chunk_sizes: list[int], **more: int) -> Parts:
        """Return the policy's arrays with its settings in them, and enter the limits in `engines`."""
        n, running = len(engines), self.max_num_seqs
        engines.block_size = self.block_size
        engines.most_blocks = engines.free_blocks = self.num_gpu_blocks
        settings = layout.records(SETTINGS, n)
        settings.scheduler = SCHEDULERS[scheduler]
        settings.longest = self.longest
        settings.prefill_turn = True
        for name, value in more.items():
            settings[name] = value
        return Parts(
            slots=layout.records(SLOT, n, running),
            aside=layout.records(SLOT, n, running + 1),
            victims=layout.records(SLOT, n, running),
            chunk_sizes=np.array(chunk_sizes, np.int64),
            settings=settings,
            own_columns=layout.records(OWN, n, step_rows),
        )


@dataclass(frozen=True, kw_only=True)
class Settings(SlotSettings):
    """Engine settings under sarathi-serve's names."""

    scheduler_type: str = "sarathi"  # or vllm, simple_chunking
    chunk_size: int  # tokens of a step
    max_batched_tokens: int | None = None  # vllm: most tokens of prompts in a step; None: the longest sequence
    enable_dynamic_chunking_schedule: bool = False
    low_chunk_size: int | None = None
    high_chunk_size: int | None = None
    chunk_schedule_max_tokens: int | None = None
    chunk_schedule_stages: int | None = None
    # simple_chunking: a turn of decodes without any waits for the next arrival, as the recorded cases have it; off, it
    # is the turn of chunks at once, since a server does not stop deciding while requests wait
    empty_turn_waits: bool = False
    correct_restart_count: bool = True  # off, as released: a request put out after k tokens generates k too many

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the arrays of the running requests and enter the limits in `engines`."""
        sizes = self._chunk_sizes()
        longest = self.longest
        if self.scheduler_type == "vllm":
            longest = min(longest, self.max_batched_tokens or longest)
        return self.arrays(
            engines,
            step_rows,
            self.scheduler_type,
            sizes,
            longest=longest,
            token_limit=longest,
            watermark_blocks=int(WATERMARK * self.num_gpu_blocks),
            chunk_size=self.chunk_size,
            stage_tokens=-(-(self.chunk_schedule_max_tokens or 0) // len(sizes)),
            empty_turn_waits=self.empty_turn_waits,
            restart_counts_anew=not self.correct_restart_count,
        )

    def _chunk_sizes(self) -> list[int]:
        """Return the chunk size of each stage of a prompt: spaced evenly from high to low, in multiples of 32."""
        if not self.enable_dynamic_chunking_schedule:
            return [self.chunk_size]
        low, high, stages = self.low_chunk_size, self.high_chunk_size, self.chunk_schedule_stages
        assert low is not None
        assert high is not None
        assert stages is not None
        sizes = np.linspace(low, high, stages, dtype=np.int32)[::-1]
        multiple = min(32, low)
        return [int(size) for size in np.round(sizes / multiple) * multiple]
