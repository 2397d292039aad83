"""What the settings of any engine have in common: limits that memory and step time depend on, by whatever name."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pipeline.settings import Section


class EngineSection(Section):
    """Settings of one engine under its own argument names.

    Memory is planned in vLLM's terms: tensor_parallel_size, gpu_memory_utilization, block_size, num_gpu_blocks,
    max_model_len, max_num_batched_tokens, max_num_seqs. NAMES says what this engine calls them, where it differs;
    CONSTANTS states those that it has no argument for.
    """

    NAMES: ClassVar[Mapping[str, str]] = {}
    CONSTANTS: ClassVar[Mapping[str, Any]] = {}
    # Blocks that are counted and never handed out.
    NULL_BLOCKS: ClassVar[int] = 0
    # Whether several samples of a request are replayed; else one is.
    SAMPLES: ClassVar[bool] = False
    # Most tenants that it can tell apart; None: it does not look at them.
    MOST_TENANTS: ClassVar[int | None] = None
    # The program and release whose decisions are made, or what they are made after.
    MODELS: ClassVar[str]

    policy: str = ""

    def limit(self, name: str) -> Any:
        """Return a limit by vLLM's name; None if it is left open or this engine has none such."""
        if name in self.CONSTANTS:
            return self.CONSTANTS[name]
        return getattr(self, self.NAMES.get(name, name), None)

    def key(self, name: str) -> str:
        """Return the setting that states a limit, given by vLLM's name."""
        return f"engine.{self.NAMES.get(name, name)}"

    def resolved(self, limits: Mapping[str, Any]) -> Self:
        """Return the section with the limits that it has settings for, given by vLLM's names, filled in."""
        own = {self.NAMES.get(name, name): value for name, value in limits.items() if name not in self.CONSTANTS}
        return self.model_copy(update={name: value for name, value in own.items() if name in type(self).model_fields})

    @abstractmethod
    def batch_limits(self, memory_gib: float, gpu_name: str, model_len: int) -> tuple[int, int]:
        """Return the tokens of a step that memory is set aside for, and the most requests running at once.

        memory_gib, gpu_name : of the accelerator, which some engines choose their defaults by
        model_len            : longest sequence, tokens
        Raises ValueError where the engine would refuse to start.
        """

    def most_step_tokens(self, tokens: int, seqs: int, kv_tokens: int) -> int:
        """Return the most tokens that one step can hold; `tokens` and `seqs` are the batch limits."""
        return tokens + seqs
