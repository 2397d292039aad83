"""Manifest: what a run is, by content.

The run id is a digest of trace, filter, config and engine version, so the same run asked again is found, without
anything of the engine being loaded.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import __version__, config, schema
from pipeline.config import Config

PROGRAM = f"servecast {__version__}"

LEFT_OUT = (
    "beam search, LoRA, pipeline parallelism, sliding-window and hybrid attention",
    "stop strings and end-of-sequence: a request generates as many tokens as the log says",
    "time outside the engine's steps but for the constant frontend_ms",
)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The trace of a run and where it came from."""

    path: Path
    name: str  # as the user named it, without folders
    digest: str
    rejected_records: int | None = None
    spread_ticks: int | None = None


def run_id(trace_digest: str, where: str | None, settings: Config, decisions: bool) -> str:
    """Return 16 hex digits that name a run."""
    parts = {
        "trace": trace_digest,
        "where": where,
        "config": config.digest(settings),
        "engine": engine_version(settings),
        "schema": schema.RUN_VERSION,
        "decisions": decisions,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def engine_version(settings: Config) -> str:
    """Return the version of this program and of the engine whose decisions it makes."""
    return f"{PROGRAM} {settings.engine.MODELS}"


def find(root: Path, run: str) -> Path | None:
    """Return the folder of a finished run, or None."""
    folder = root / run
    return folder if (folder / "run.json").is_file() else None


def text(content: dict[str, Any]) -> str:
    """Return a manifest as JSON text, the same for the same content."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
