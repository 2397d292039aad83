"""S-LoRA's loop with the fair queues of VTC."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.hardware import Deployment
from pipeline.kernel import layout
from pipeline.kernel.layout import NONE
from pipeline.kernel.policies import slora
from pipeline.kernel.policies.slora import OWN, PLAN, SETTINGS, TENANT, Parts
from pipeline.replay.policies.base import PolicySettings

ORDERS = {"fcfs": slora.FCFS, "vtc_fair": slora.VTC, "lcf_fair": slora.LCF, "mdrr_fair": slora.MDRR}
QUANTA = 20  # of max_total_token_num: what a tenant may spend in a round of mdrr_fair


@dataclass(frozen=True, kw_only=True)
class Settings(PolicySettings):
    """Engine settings under S-LoRA's names."""

    max_total_token_num: int  # tokens of KV
    batch_max_tokens: int  # most tokens of prompts in a step
    running_max_req_size: int
    max_wait_tokens: int = 10  # decodes before new requests are looked for
    scheduler: str = "vtc_fair"
    fair_weights: tuple[float, ...] = ()  # of tenants by number, 1 for the others
    input_price: float = 1.0
    output_price: float = 2.0
    most_tenants: int = 65_536
    audit: bool = False  # note the counters when each step has ended

    @classmethod
    def of(cls, deployment: Deployment) -> dict[str, Any]:
        """Return the settings of a deployment; KV is counted by the token."""
        return super().of(deployment) | {"max_total_token_num": deployment.usable_blocks}

    @property
    def most_running(self) -> int:
        """Most requests that can run at once."""
        return self.running_max_req_size

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return queues and counters and enter the limits in `engines`."""
        n, tenants = len(engines), self.most_tenants
        engines.block_size = 1
        engines.most_blocks = engines.free_blocks = self.max_total_token_num
        records = layout.records(TENANT, n, tenants)
        records.head[:] = NONE
        records.tail[:] = NONE
        records.weight[:] = 1.0
        records.weight[:, : len(self.fair_weights)] = self.fair_weights
        settings = layout.records(SETTINGS, n)
        settings.order = ORDERS[self.scheduler]
        for name in ("max_total_token_num", "batch_max_tokens", "max_wait_tokens", "input_price", "output_price"):
            settings[name] = getattr(self, name)
        settings.audit = self.audit
        settings.quantum = self.max_total_token_num / QUANTA
        settings.blocked = NONE
        return Parts(
            running=np.zeros((n, self.running_max_req_size), np.int64),
            plan=layout.records(PLAN, n, self.running_max_req_size + 1),
            tenants=records,
            seen=np.zeros((n, tenants), np.int64),
            ring=np.zeros((n, tenants), np.int64),
            settings=settings,
            levels=np.full((n, step_rows, tenants) if self.audit else (n, 0, 0), np.nan),
            own_columns=layout.records(OWN, n, step_rows),
        )
