"""Run folders as rows: what `run.json` says, and where the tables of a run lie."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import schema
from pipeline.errors import RunError

SLO_COLUMNS = (
    ("run_id", "VARCHAR"),
    ("class", "VARCHAR"),
    ("ttft_ms", "DOUBLE"),
    ("tpot_ms", "DOUBLE"),
    ("e2e_ms", "DOUBLE"),
)
CONFIG_COLUMNS = (("run_id", "VARCHAR"), ("key", "VARCHAR"), ("value", "VARCHAR"))
COUNT_COLUMNS = (("run_id", "VARCHAR"), ("name", "VARCHAR"), ("counted", "BIGINT"))
# Column of `runs`, its type, and where in run.json it stands.
RUN_COLUMNS = (
    ("run_id", "VARCHAR", "run_id"),
    ("engine_version", "VARCHAR", "engine_version"),
    ("config_digest", "VARCHAR", "config_digest"),
    ("trace_path", "VARCHAR", "trace.path"),
    ("trace_digest", "VARCHAR", "trace.digest"),
    ("trace_rows", "BIGINT", "trace.rows"),
    ("replayed_rows", "BIGINT", "trace.replayed"),
    ("rejected_records", "BIGINT", "trace.rejected_records"),
    ("trace_where", "VARCHAR", "trace.where"),
    ("policy", "VARCHAR", "config.engine.policy"),
    ("gpu", "VARCHAR", "config.hardware.gpu"),
    ("model", "VARCHAR", "config.hardware.model"),
    ("tensor_parallel_size", "INTEGER", "hardware.tensor_parallel_size"),
    ("block_size", "INTEGER", "hardware.block_size"),
    ("num_gpu_blocks", "INTEGER", "hardware.num_gpu_blocks"),
    ("usable_blocks", "INTEGER", "hardware.usable_blocks"),
    ("max_model_len", "INTEGER", "hardware.max_model_len"),
    ("max_num_seqs", "INTEGER", "hardware.max_num_seqs"),
    ("max_num_batched_tokens", "INTEGER", "hardware.max_num_batched_tokens"),
    ("enable_prefix_caching", "BOOLEAN", "hardware.enable_prefix_caching"),
    ("frontend_ms", "DOUBLE", "config.hardware.frontend_ms"),
    ("rate_scale", "DOUBLE", "config.load.rate_scale"),
    ("timeout_s", "DOUBLE", "config.load.timeout_s"),
    ("queue_limit", "INTEGER", "config.load.queue_limit"),
    ("time_zone", "VARCHAR", "config.report.time_zone"),
    ("estimated_step_time", "BOOLEAN", "hardware.step_time.estimate"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run: its folder and the content of its run.json."""

    folder: Path
    facts: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The id that the replay gave it, whatever the folder is called."""
        return self.facts["run_id"]

    def files(self, table: str) -> list[Path]:
        """Return the Parquet files of a stored table, in order; RunError if it must be there and is not."""
        if table == "steps":
            return sorted(self.folder.glob("steps/replica=*/part-*.parquet"))
        path = self.folder / f"{table}.parquet"
        if path.is_file():
            return [path]
        if table == "decisions":
            return []
        raise RunError(f"{self.folder}: {path.name} is missing, so the run is incomplete; delete it and replay again")

    def row(self) -> list[Any]:
        """Return its row of `runs`, in the order of RUN_COLUMNS."""
        return [_at(self.facts, place) for _, _, place in RUN_COLUMNS]

    def slo_rows(self) -> list[list[Any]]:
        """Return its rows of `slo`: the general limits with class null, then one row per class that has its own."""
        slo = self.facts["config"]["slo"]
        general = {name: slo.get(name) for name, _ in SLO_COLUMNS[2:]}
        own = {name: general | table for name, table in sorted(slo.items()) if isinstance(table, dict)}
        return [[self.run_id, name, *targets.values()] for name, targets in [(None, general), *own.items()]]

    def config_rows(self) -> list[list[str | None]]:
        """Return its rows of `run_config`: every setting as dotted key and text, null where it is none."""
        return [[self.run_id, key, _text(value)] for key, value in sorted(_leaves(self.facts["config"]))]

    def count_rows(self) -> list[list[Any]]:
        """Return its rows of `run_counts`: what the replay counted, outcomes as `outcomes.finished`."""
        counts = _leaves(self.facts.get("counts") or {})
        return [[self.run_id, name, count] for name, count in sorted(counts) if type(count) is int]


def read(folder: Path) -> Run:
    """Read one run folder's run.json; RunError if the folder is missing, unfinished or of another version."""
    path = folder / "run.json"
    if not folder.is_dir():
        raise RunError(f"{folder}: no such run folder")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder}: has no run.json, so this is no run or an unfinished one; replay again") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    version = facts.get("version") if isinstance(facts, dict) else None
    if version != schema.RUN_VERSION:
        raise RunError(f"{path}: version is {version!r}; this servecast reads {schema.RUN_VERSION!r}")
    for key in ("run_id", "config.engine", "config.slo"):
        if not _at(facts, key):
            raise RunError(f"{path}: {key} is missing")
    return Run(folder, facts)


def newest(root: Path) -> Path:
    """Return the run folder under `root` that was finished last; RunError if there is none."""
    found = sorted(root.glob("[!.]*/run.json"), key=lambda path: (path.stat().st_mtime_ns, path.parent.name))
    if not found:
        raise RunError(f"{root}: holds no run; make one with `servecast replay`, or name a run folder")
    return found[-1].parent


def _at(facts: Mapping[str, Any], place: str) -> Any:
    """Return the value at a dotted place, None where there is none."""
    value: Any = facts
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
