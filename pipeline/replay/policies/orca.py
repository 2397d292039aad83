"""Orca: iteration-level scheduling with a slot of the longest sequence for each request."""

from dataclasses import dataclass
from typing import Any

from pipeline.kernel.policies.sarathi import Parts
from pipeline.replay.policies.sarathi import SlotSettings


@dataclass(frozen=True, kw_only=True)
class Settings(SlotSettings):
    """Engine settings under sarathi-serve's names."""

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the arrays of the running requests and enter the limits in `engines`."""
        return self.slots(engines, step_rows, "orca")

    def slots(self, engines: Any, step_rows: int, scheduler: str) -> Parts:
        """Return arrays for a scheduler that gives every request a slot of the longest sequence."""
        return self.arrays(engines, step_rows, scheduler, [0], slot_blocks=-(-self.longest // self.block_size))
