"""SGLang's scheduler."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.hardware import Deployment
from pipeline.kernel import layout, radix_tree
from pipeline.kernel.layout import NONE
from pipeline.kernel.policies import sglang
from pipeline.kernel.policies.sglang import FLOWN, OWN, SETTINGS, SLOT, STATE, Parts
from pipeline.kernel.radix_tree import COUNTS, NODE, PIECE
from pipeline.replay.policies.base import PolicySettings

POLICIES = {"fcfs": sglang.FCFS, "lpm": sglang.LPM, "dfs-weight": sglang.DFS_WEIGHT, "lof": sglang.LOF}
EVICTIONS = {"lru": radix_tree.LRU, "lfu": radix_tree.LFU, "fifo": radix_tree.FIFO, "slru": radix_tree.SLRU}
FIRST_RATIO, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600  # constants of SGLang: the new-token ratio
SPARE_PROMPT = 6  # tokens by which a prompt stays below context or pool, or is refused
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Settings(PolicySettings):
    """Engine settings under SGLang's names; max_model_len only ends answers, context_len is what SGLang goes by."""

    pool_tokens: int  # KV slots, tokens
    page_size: int = 1  # tokens
    context_len: int
    max_running_requests: int
    chunked_prefill_size: int = -1  # tokens; -1: prompts are not cut
    max_prefill_tokens: int = 16_384
    prefill_max_requests: int | None = None
    schedule_policy: str = "fcfs"
    disable_radix_cache: bool = False
    radix_eviction_policy: str = "lru"
    schedule_conservativeness: float = 1.0
    enable_mixed_chunk: bool = False
    enable_priority_scheduling: bool = False
    disable_priority_preemption: bool = False
    schedule_low_priority_values_first: bool = False
    priority_scheduling_preemption_threshold: int = 10
    retraction_policy: str = "length"
    prefill_decode_interval: int | None = None
    disable_overlap_schedule: bool = False
    released_defects: bool = False

    @classmethod
    def of(cls, deployment: Deployment) -> dict[str, Any]:
        """Return the settings of a deployment: the pool is what its hardware holds."""
        return super().of(deployment) | {
            "max_model_len": UNLIMITED,
            "context_len": deployment.max_model_len,
            "pool_tokens": deployment.usable_blocks * deployment.config.engine.limit("block_size"),
        }

    @property
    def most_running(self) -> int:
        """Most requests that can run at once."""
        return self.max_running_requests

    @property
    def pool(self) -> int:
        """Slots of whole pages, tokens."""
        return self.pool_tokens // self.page_size * self.page_size

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the policy's arrays with its settings in them, and enter the limits in `engines`."""
        n, running = len(engines), self.max_running_requests
        longest = min(self.context_len, self.pool) - 1
        engines.block_size = self.page_size
        engines.max_model_len = longest + 1 - SPARE_PROMPT
        engines.most_blocks = engines.free_blocks = self.pool // self.page_size
        tokens = 0 if self.disable_radix_cache else self.pool
        nodes = tokens // self.page_size + 2
        chains = 1 << (nodes - 1).bit_length()
        spare = np.tile(np.arange(running, dtype=np.int32)[::-1], (n, 1))
        slots = layout.records(SLOT, n, running)
        slots.seat = NONE
        return Parts(
            settings=self._settings(n, longest),
            slots=slots,
            running=np.zeros((n, running), np.int32),
            batch=np.zeros((n, running), np.int32),
            spare=spare,
            flown=layout.records(FLOWN, n, 2, running),
            states=layout.records(STATE, n, 2 * running + 2),
            evictees=np.zeros((n, running), np.int64),
            own_columns=layout.records(OWN, n, step_rows),
            nodes=self._nodes(n, nodes),
            pieces=layout.records(PIECE, n, tokens + 2),
            index=np.full((n, chains), NONE, np.int32),
            heap=np.zeros((n, nodes), np.int32),
            counts=self._counts(n),
        )

    def _settings(self, replicas: int, longest: int) -> Any:
        own = layout.records(SETTINGS, replicas)
        own.page, own.pool, own.longest, own.most_running = self.page_size, self.pool, longest, self.most_running
        own.chunk_size = self.chunked_prefill_size if self.chunked_prefill_size > 0 else NONE
        own.max_prefill = self.max_prefill_tokens
        own.prefill_max_requests = NONE if self.prefill_max_requests is None else self.prefill_max_requests
        own.cache = not self.disable_radix_cache
        # What matches best cannot be asked without a tree.
        by_tree = self.schedule_policy in ("lpm", "dfs-weight")
        own.policy = POLICIES["fcfs" if by_tree and self.disable_radix_cache else self.schedule_policy]
        own.lru = self.radix_eviction_policy == "lru"
        own.mixed = self.enable_mixed_chunk and self.chunked_prefill_size > 0
        own.by_priority = self.enable_priority_scheduling
        own.preempts = self.enable_priority_scheduling and not self.disable_priority_preemption
        own.low_first = self.schedule_low_priority_values_first
        own.threshold = self.priority_scheduling_preemption_threshold
        own.retract_by_priority = self.retraction_policy == "priority"
        own.interval = self.prefill_decode_interval or 0
        own.released_defects = self.released_defects
        own.overlap = not self.disable_overlap_schedule
        own.chunk = NONE
        own.spares = self.most_running
        first = min(FIRST_RATIO * self.schedule_conservativeness, 1.0)
        least = LEAST_SHARE * first
        own.ratio = own.first_ratio = first
        own.least_ratio = least
        own.decay = (first - least) / DECAY_STEPS
        return own

    def _nodes(self, replicas: int, count: int) -> Any:
        nodes = layout.records(NODE, replicas, count)
        for name in ("parent", "first_child", "last_child", "earlier", "later", "place", "first_piece", "last_piece"):
            nodes[name][:, radix_tree.ROOT] = NONE
        return nodes

    def _counts(self, replicas: int) -> Any:
        counts = layout.records(COUNTS, replicas)
        counts.page = self.page_size
        counts.order = EVICTIONS[self.radix_eviction_policy]
        counts.free = self.pool
        counts.nodes_made = 1
        counts.unused_node = counts.unused_piece = NONE
        return counts
