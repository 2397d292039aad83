"""Prepare: whatever the user names becomes one trace file; a log is read once and kept by content."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import schema
from pipeline.errors import TraceError
from pipeline.ingest import IngestSummary, digest, ingest, privacy, read
from pipeline.ingest.importer import rejects_path
from pipeline.ingest.sources import open_all
from pipeline.replay.manifest import TraceFile


def prepare(
    paths: Sequence[Path],
    root: Path,
    *,
    format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    spread_ticks: int | None = None,
    privacy_key: Path | None = None,
    keep_ids: bool = False,
    ingested: Callable[[IngestSummary], None] = lambda _: None,
) -> TraceFile:
    """Return the trace to replay: the file itself if it is one, else its import under `root/traces/<digest>/`.

    Raises TraceError if a file is missing or cannot be read, or the import cannot be written.
    """
    paths = [source.path for source in open_all(paths)]
    name = paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"
    if len(paths) == 1 and format is None and not read_options and spread_ticks is None and _is_trace(paths[0]):
        return TraceFile(paths[0], name, digest(paths), _rows(rejects_path(paths[0])))
    options = {
        "format": format,
        "read_options": dict(read_options or {}) or None,
        "spread_ticks": spread_ticks,
        "ids": privacy.choose(privacy_key, keep_ids).fingerprint if privacy_key or keep_ids else None,
        "trace": schema.TRACE_VERSION,
    }
    content = digest(paths, options)
    trace = root / "traces" / content[:16] / "trace.parquet"
    if not (trace.is_file() and rejects_path(trace).is_file()):
        ingested(
            ingest(
                paths,
                format=format,
                read_options=read_options,
                spread_ticks=spread_ticks,
                privacy_key=privacy_key,
                keep_ids=keep_ids,
                out=trace,
            )
        )
    return TraceFile(trace, name, content, _rows(rejects_path(trace)), spread_ticks)


def _is_trace(path: Path) -> bool:
    try:
        read.check(path)
    except TraceError:
        return False
    return True


def _rows(path: Path) -> int | None:
    """Return how many rows a Parquet file has; None, unknown, if there is none that can be read."""
    try:
        return pq.read_metadata(path).num_rows if path.is_file() else None
    except (pa.ArrowException, OSError):
        return None
