"""Static batching: a batch is decoded to its end before the next one starts."""

from dataclasses import dataclass
from typing import Any

from pipeline.kernel.policies.sarathi import Parts
from pipeline.replay.policies import orca


@dataclass(frozen=True, kw_only=True)
class Settings(orca.Settings):
    """Engine settings, as Orca's."""

    def parts(self, engines: Any, step_rows: int) -> Parts:
        """Return the arrays of the running requests and enter the limits in `engines`."""
        return self.slots(engines, step_rows, "faster_transformer")
