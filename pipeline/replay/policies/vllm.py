"""vLLM 0.33."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.kernel import block_pool, layout
from pipeline.kernel.layout import NONE
from pipeline.kernel.policies.vllm import Parts
from pipeline.replay.policies.base import PolicySettings
from pipeline.replay.ring import power_of_two


@dataclass(frozen=True, kw_only=True)
class Settings(PolicySettings):
    """Engine settings under vLLM's names."""

    block_size: int  # tokens per KV block
    num_gpu_blocks: int  # KV blocks, the null block included
    max_num_batched_tokens: int  # most tokens in one step
    max_num_seqs: int
    max_num_active_seqs: int | None = None
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    prefill_schedule_interval: int = 1
    async_scheduling: bool = True
    shortcut: bool = True  # plan without visiting every request where that is exact
    audit: bool = False  # checksums of the blocks handed out

    @property
    def most_running(self) -> int:
        """Most requests that can run at once."""
        return self.max_num_active_seqs or self.max_num_seqs

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the arrays of vLLM's scheduler and enter its settings in `engines`."""
        n, active, blocks = len(engines), self.most_running, self.num_gpu_blocks
        self._enter(engines)
        slots = layout.records(layout.SLOT, n, active)
        slots.later[:] = np.append(np.arange(1, active), NONE)
        block_columns = min(-(-self.max_model_len // self.block_size), blocks)
        # Each run holds a block at least. Memory that is never used is never taken from the system.
        runs = layout.records(layout.RUN, n, blocks)
        runs.later[:] = np.append(np.arange(1, blocks), NONE)
        idle = np.zeros((n, power_of_two(2 * blocks)), np.int32)
        for replica in range(n):
            block_pool.fill(idle[replica], blocks)
        index = np.full((n, power_of_two(2 * blocks)), NONE, np.int32)
        phases = layout.records(layout.GROUP, n, self.block_size)
        phases.head[:] = NONE
        phases.tail[:] = NONE
        calendar = np.full((n, power_of_two(self.max_model_len + 2)), NONE, np.int32)
        engines.idle_mask, engines.index_mask = idle.shape[1] - 1, index.shape[1] - 1
        engines.calendar_mask = calendar.shape[1] - 1
        return Parts(
            slots=slots,
            # Rows that begin a power of two apart would all fall into the same few sets of the cache.
            tables=np.zeros((n, active + 1, block_columns + 16 * 17), np.int32),
            cached=layout.records(layout.CACHED, n, blocks * layout.RUN_BLOCKS),
            runs=runs,
            index=index,
            idle=idle,
            phases=phases,
            calendar=calendar,
            promoted=np.zeros((n, active), np.int32),
        )

    def _enter(self, e: Any) -> None:
        e.block_size = self.block_size
        e.max_num_batched_tokens = self.max_num_batched_tokens
        e.chunked_prefill = self.enable_chunked_prefill
        e.prefix_caching = self.enable_prefix_caching
        e.by_priority = self.scheduling_policy == "priority"
        e.threshold = self.long_prefill_token_threshold
        e.adaptive_threshold = self.long_prefill_token_threshold_adaptive
        e.reserve_full_sequence = self.scheduler_reserve_full_isl
        e.watermark_blocks = int(self.watermark * self.num_gpu_blocks)
        e.prefill_interval = self.prefill_schedule_interval
        e.last_prefill_step = -self.prefill_schedule_interval
        e.depth = 2 if self.async_scheduling else 1
        e.shortcut = self.shortcut and not self.decisions
        e.audit = self.audit
        e.idle_tail = self.num_gpu_blocks - 1
        e.free_blocks = self.num_gpu_blocks - 1
        e.watched_row = NONE
        e.watch = 1
        e.prefill_head = NONE
        e.prefill_tail = NONE

    def settle_running(self, parts: Parts, request: Any, engine: Any, end: int) -> None:
        """Count the delivered tokens of a running request; finish_step becomes the step of the last of them."""
        slot = parts.slots[request.replica, request.slot]
        landed = int(engine.steps - engine.in_flight)
        newest = end if slot.gap_step == NONE else int(slot.gap_step)  # newest step that sampled for it
        if slot.state == layout.DECODE:
            computed = int(slot.origin) + int(engine.ticks)
            request.computed_tokens += computed - int(slot.entry_tokens)
            request.known_tokens = computed + 1
            newest = int(engine.steps) - 1 if slot.gap_step == NONE else newest
        if newest >= landed:
            since = max(int(request.first_token_step), int(slot.gap_after), landed)
            request.known_tokens -= newest - since + 1
            newest = int(slot.gap_before) if since == int(slot.gap_after) else since - 1
        request.finish_step = newest
