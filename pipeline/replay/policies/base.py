"""What every policy is told, and what it has to say about itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pipeline.hardware import Deployment


@dataclass(frozen=True, kw_only=True)
class PolicySettings(ABC):
    """Limits of one replica and the behaviour of its clients, every default resolved."""

    max_model_len: int  # tokens of prompt and answer; a prompt that reaches it is refused
    timeout_ns: int | None = None
    queue_limit: int | None = None
    concurrency: int | None = None  # closed loop: requests in flight in the whole fleet
    sessions: bool = False  # rows that follow another one wait for its end; not with concurrency
    max_steps: int | None = None
    decisions: bool = False  # one row per step and request

    @classmethod
    def of(cls, deployment: Deployment) -> dict[str, Any]:
        """Return the settings of a deployment that the engine's own section and the hardware decide, by field."""
        engine = deployment.config.engine
        names = [name for name in cls.__dataclass_fields__ if name in type(engine).model_fields]
        return {"max_model_len": deployment.max_model_len} | {name: getattr(engine, name) for name in names}

    @property
    @abstractmethod
    def most_running(self) -> int:
        """Most requests that can run at once."""

    @abstractmethod
    def parts(self, engines: Any, step_rows: int) -> Any:
        """Return the policy's own arrays, a `Parts` of its module in the kernel, and enter its settings in `engines`.

        engines   : ENGINE records, one per replica; what all policies share is entered already
        step_rows : rows of the step buffer, for columns of the policy's own beside it
        """

    def settle_running(self, parts: Any, request: Any, engine: Any, end: int) -> None:
        """Enter in a request that never finished which of its tokens were delivered, and `finish_step`, their last.

        Tokens that a policy delivers as their step ends need nothing more.
        end : step in flight that sampled its last token, NONE if there is none
        """
        request.finish_step = request.gap_step
