"""LiteLLM_SpendLogs, the proxy's table of calls, as CSV (psql \\copy) or JSON.

Stamps have no zone and are UTC. There is no stream column: a first token before the end says that it streamed.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import events, litellm
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import arrival_us, get, parsed, stamp_us, text
from pipeline.ingest.sources import Sample, Source, blocks
from pipeline.ingest.text import blocks_of_messages

NAME = "litellm_spendlogs"
TITLE = "LiteLLM_SpendLogs, CSV or JSON: request_id, call_type, startTime, completionStartTime, metadata"
LOCATOR = "row"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC"}
_KEYS = ("request_id", "call_type", "startTime", "metadata")


def looks(sample: Sample) -> str | None:
    """Return the reason if the header, or a record, has the columns of the table."""
    if set(_KEYS) <= set(sample.columns):
        return "the header names " + ", ".join(_KEYS)
    if events.shows(sample, *_KEYS) and not events.shows(sample, "model_parameters"):
        return "JSON with " + ", ".join(_KEYS)
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per row."""
    zone = options["naive_timestamps_are"]
    head = next(iter(blocks(source, 64)), b"").lstrip(b"\xef\xbb\xbf \r\n\t")
    if head[:1] in (b"{", b"["):
        return events.frames(source, lambda event: _row(event, zone))
    return events.tables(events.rows(events.csv_events(source), lambda event: _row(event, zone)))


def _row(event: Event, zone: str) -> Row:
    record = event.value
    start, naive = arrival_us(get(record, "startTime"), "startTime", zone)
    flags: set[str] = set()
    if isinstance(parsed(get(record, "metadata")), str):
        flags.add("bad_metadata")
    row: Row = {
        "request_id": text(get(record, "request_id")) or f"{NAME}:{event.number}",
        "logical_id": text(get(record, "litellm_call_id")),
        "clock_us": start,
        "naive": naive,
        "model": text(get(record, "model")),
        "deployment": text(get(record, "model_group")),
        "tenant": text(get(record, "team_id")),
        "session_id": text(get(record, "session_id")),
        "flags": flags,
    }
    counts = litellm.tokens(get(record, "metadata", "usage_object"), record, flags)
    litellm.generation(record)
    end, opened = stamp_us(get(record, "endTime"), zone), stamp_us(get(record, "completionStartTime"), zone)
    status = text(get(record, "status")) or text(get(record, "metadata", "status"))
    litellm.outcome(row, status, get(record, "metadata", "error_information"), get(record, "cache_hit"))
    litellm.times(row, start, end, opened if row["status"] == "ok" else None)
    if get(record, "metadata", "azure_spillover"):
        row["capacity_class"] = "spillover"
    if row["status"] not in ("ok", "unknown"):
        if row["status"] == "cancelled" and counts["output_tokens"]:
            flags.add("cancelled_partial_output")
        else:
            counts = dict.fromkeys(counts)
    row |= counts | {"stream": True if row["obs_ttft_us"] is not None else None}
    return row | blocks_of_messages(get(record, "messages"), row["input_tokens"])


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Number attempts by arrival."""
    return events.attempts(frame)
