"""Logs of one's own, CSV, Parquet or JSON, by a map from fields to columns: `--map arrival=ts,input=prompt_toks`.

A time is ISO 8601 or a number; its unit is found from its size unless stated. Numbers below 1e8 seconds, 1973, count
from an unknown instant. Columns without an entry in the map are not read.
"""

import difflib
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import TraceError
from pipeline.ingest import clock, events
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import Rejected, arrival_us, count, duration_us, http_status, name, small, text, truth
from pipeline.ingest.sources import PARQUET, Sample, Source, blocks
from pipeline.schema import REQUEST_STATUSES

NAME = "columns"
TITLE = "CSV, Parquet or JSON of your own, with --map"
LOCATOR = "row"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"map": "none", "time_unit": "detected", "naive_timestamps_are": "UTC"}
_DIGITS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
_REQUIRED = ("arrival", "input", "output")
_RELATIVE_BELOW_US = 100_000_000_000_000
_FIELDS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "input": ("input_tokens", count),
    "output": ("output_tokens", count),
    "cached": ("cached_tokens", count),
    "reasoning": ("reasoning_tokens", count),
    "id": ("request_id", lambda value, _: text(value)),
    "call": ("logical_id", lambda value, _: text(value)),
    "session": ("session_id", lambda value, _: text(value)),
    "turn": ("turn", lambda value, _: small(value)),
    "parent": ("parent_request_id", lambda value, _: text(value)),
    "model": ("model", lambda value, _: text(value)),
    "deployment": ("deployment", lambda value, _: text(value)),
    "tenant": ("tenant", lambda value, _: text(value)),
    "class": ("class", lambda value, _: text(value)),
    "max_tokens": ("max_tokens", lambda value, _: small(value)),
    "priority": ("priority", lambda value, _: small(value)),
    "stream": ("stream", lambda value, _: truth(value)),
    "finish": ("finish_reason", lambda value, _: name(value)),
    "ttft_s": ("obs_ttft_us", lambda value, _: duration_us(value, 6)),
    "ttft_ms": ("obs_ttft_us", lambda value, _: duration_us(value, 3)),
    "e2e_s": ("obs_e2e_us", lambda value, _: duration_us(value, 6)),
    "e2e_ms": ("obs_e2e_us", lambda value, _: duration_us(value, 3)),
}
_KNOWN = ("arrival", "status", *_FIELDS)


def looks(sample: Sample) -> str | None:
    """Never: what the columns mean has to be stated."""
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per row."""
    mapped = _map(options["map"])
    unit = options["time_unit"]
    if unit != "detected" and unit not in _DIGITS:
        raise TraceError(f"time unit {unit}: must be one of {', '.join(_DIGITS)}")
    zone = clock.zone(options["naive_timestamps_are"])
    names = tuple(mapped.values())
    yield from events.tables(events.rows(_events(source, names), lambda event: _row(event, mapped, unit, zone)))


def _map(text: str) -> dict[str, str]:
    """Return field -> column of the user's log."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    mapped = {field.strip(): column.strip() for field, _, column in pairs}
    for field, column in mapped.items():
        if field not in _KNOWN or not column:
            near = difflib.get_close_matches(field, _KNOWN, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TraceError(f"--map {field}: write FIELD=COLUMN with one of {', '.join(_KNOWN)}{hint}")
    missing = [field for field in _REQUIRED if field not in mapped]
    if missing:
        raise TraceError(f"--map lacks {', '.join(missing)}: write arrival=COLUMN,input=COLUMN,output=COLUMN")
    return mapped


def _events(source: Source, names: tuple[str, ...]) -> Iterator[Event]:
    head = next(iter(blocks(source, 64)), b"")
    if head.startswith(PARQUET):
        return _parquet(source, names)
    if head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"{", b"["):
        return events.events(source)
    return events.csv_events(source, names)


def _parquet(source: Source, names: tuple[str, ...]) -> Iterator[Event]:
    try:
        file = pq.ParquetFile(source.path)
        events.need(source, names, file.schema_arrow.names)
        number = 0
        for batch in file.iter_batches(batch_size=events.BATCH_RECORDS, columns=list(names)):
            for record in batch.to_pylist():
                number += 1
                yield Event(number, number, record)
    except pa.ArrowException as error:
        raise TraceError(f"{source.path}: is no Parquet file that can be read") from error


def _row(event: Event, mapped: dict[str, str], unit: str, zone: str) -> Row:
    record = event.value
    assert not isinstance(record, Rejected)
    start, naive = _arrival(record.get(mapped["arrival"]), mapped["arrival"], unit, zone)
    row: Row = {"clock_us": start, "naive": naive, "relative": 0 <= start < _RELATIVE_BELOW_US, "flags": set[str]()}
    for field, (column, taken) in _FIELDS.items():
        if field in mapped:
            row[column] = taken(record.get(mapped[field]), mapped[field])
    for column in ("obs_ttft_us", "obs_e2e_us"):
        if (row.get(column) or 0) < 0:
            row[column] = None
            row["flags"].add("negative_duration")
    if "status" in mapped:
        row["status"] = _status(record.get(mapped["status"]))
    row["request_id"] = row.get("request_id") or f"{NAME}:{event.number}"
    return row


def _arrival(value: Any, column: str, unit: str, zone: str) -> tuple[int, bool]:
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    number = duration_us(value, _DIGITS.get(unit, 6))
    if number is not None and (unit != "detected" or number < _RELATIVE_BELOW_US):
        return number, False
    return arrival_us(value, column, zone)


def _status(value: Any) -> str:
    """Return a status from its name or from an HTTP status."""
    code = small(value, 16)
    if code is not None:
        return http_status(code)
    found = str(value).strip().lower()
    if found in ("success", "succeeded", "stop", "length"):
        return "ok"
    return found if found in REQUEST_STATUSES else "unknown"


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
