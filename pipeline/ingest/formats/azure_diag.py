"""Azure OpenAI diagnostic logs (JSON): categories RequestResponse, Audit and others, as storage or Event Hub get them.

`requestTime` and `responseTime` are .NET ticks, 100 ns units since the year 1. There are no token counts: requests
become replayable only by a join with the gateway's log. `time` is when the log was written.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import events
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import Rejected, arrival_us, duration_us, get, http_status, small, text
from pipeline.ingest.sources import Sample, Source

NAME = "azure_diagnostics"
TITLE = "Azure OpenAI diagnostic log, JSON: category, operationName, correlationId, properties"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC"}
_KEYS = ("category", "operationName", "correlationId", "properties")
_TICKS_TO_1970 = 621_355_968_000_000_000  # .NET ticks from 0001-01-01 to 1970-01-01
_GENERATIONS = ("completion", "response", "chat", "message")


def looks(sample: Sample) -> str | None:
    """Return the reason if a record has the keys of a diagnostic log."""
    return "JSON with " + ", ".join(_KEYS) if events.shows(sample, *_KEYS) else None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per log entry."""
    return events.frames(source, lambda event: _row(event, options["naive_timestamps_are"]))


def _row(event: Event, zone: str) -> Row:
    record, flags = event.value, set[str]()
    flags.add("no_token_counts")
    properties = get(record, "properties")
    start, end = _ticks_us(get(properties, "requestTime")), _ticks_us(get(properties, "responseTime"))
    logged = duration_us(get(record, "durationMs"), 3)
    naive = False
    if logged is not None and logged < 0:
        flags.add("negative_duration")
        logged = None
    e2e = end - start if start is not None and end is not None and end >= start else logged
    if start is None:
        written, naive = arrival_us(get(record, "time"), "time", zone)
        start = written - (logged or 0)
        flags.add("arrival_from_log_time")
    operation = str(get(record, "operationName") or "").lower()
    category = str(get(record, "category") or "RequestResponse")
    if category not in ("RequestResponse", "AzureOpenAIRequestUsage") or not any(w in operation for w in _GENERATIONS):
        raise Rejected("not_generation", "category or operationName is no generation")
    code = small(get(record, "resultSignature"), 16)
    streams = {"streaming": True, "non-streaming": False}
    return {
        "request_id": text(get(record, "correlationId")) or f"{NAME}:{event.number}",
        "logical_id": text(get(record, "correlationId")),
        "clock_us": start,
        "naive": naive,
        "model": text(get(properties, "modelName")),
        "deployment": text(get(properties, "modelDeploymentName")),
        "stream": streams.get(str(get(properties, "streamType")).lower()),
        "status": "unknown" if code is None else http_status(code),
        "http_status": code,
        "obs_e2e_us": e2e,
        "flags": flags,
    }


def _ticks_us(value: object) -> int | None:
    ticks = small(value, 64)
    return None if ticks is None or ticks <= _TICKS_TO_1970 else (ticks - _TICKS_TO_1970) // 10


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Number attempts by arrival."""
    return events.attempts(frame)
