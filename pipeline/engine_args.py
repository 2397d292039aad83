"""Read a pasted `vllm serve ...` line into settings of this program."""

from dataclasses import dataclass
from typing import Any

from pipeline.errors import ConfigError


@dataclass(frozen=True)
class EngineLine:
    """What a line asks for: settings by section, and one sentence per argument that is not modelled."""

    settings: dict[str, Any]
    unmodelled: tuple[str, ...]


def parse(text: str) -> EngineLine:
    """Parse an engine line; raises ConfigError."""
    raise ConfigError("--engine-args: engine lines cannot be read yet")
