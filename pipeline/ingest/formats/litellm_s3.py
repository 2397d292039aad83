"""LiteLLM StandardLoggingPayload (JSON lines): what the proxy's s3, gcs, azure and webhook loggers write.

Prompt counts hold cached tokens. `stream` is true or null; the request's own flag is in model_parameters.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import events, litellm
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import arrival_us, epoch_us, first, get, small, stamp_us, text, truth
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages

NAME = "litellm_standard_logging"
TITLE = "LiteLLM StandardLoggingPayload, JSON: id, call_type, startTime, endTime, model_group, metadata"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC"}


def looks(sample: Sample) -> str | None:
    """Return the reason if a record has the keys of the payload that the database table lacks."""
    if events.shows(sample, "call_type", "startTime", "model_parameters", "metadata"):
        return "JSON with call_type, startTime, model_parameters, metadata"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per payload."""
    zone = options["naive_timestamps_are"]
    return events.frames(source, lambda event: _row(event, zone))


def _row(event: Event, zone: str) -> Row:
    record = event.value
    start, naive = arrival_us(get(record, "startTime"), "startTime", zone)
    flags: set[str] = set()
    if not isinstance(get(record, "startTime"), str) and (found := epoch_us(get(record, "startTime"))) and found[1]:
        flags.add("epoch_ms")
    usage, parameters = get(record, "metadata", "usage_object"), get(record, "model_parameters")
    row: Row = {
        "request_id": text(get(record, "id")) or f"{NAME}:{event.number}",
        "logical_id": text(get(record, "trace_id")),
        "clock_us": start,
        "naive": naive,
        "model": text(get(record, "model")),
        "deployment": text(get(record, "model_group")),
        "tenant": text(get(record, "metadata", "user_api_key_team_id")),
        "session_id": text(get(record, "session_id")),
        "max_tokens": small(first(parameters, "max_tokens", "max_completion_tokens")),
        "flags": flags,
    }
    stream = truth(get(record, "stream"))
    stream = truth(get(parameters, "stream")) if stream is None else stream
    counts = litellm.tokens(usage, record, flags)
    litellm.generation(record)
    end = stamp_us(get(record, "endTime"), zone)
    opened = stamp_us(get(record, "completionStartTime"), zone)
    litellm.times(row, start, end, opened if stream is True else None)
    litellm.outcome(row, text(get(record, "status")), get(record, "error_information"), get(record, "cache_hit"))
    failed = row["status"] not in ("ok", "unknown")
    if failed and not counts["output_tokens"]:
        counts = dict.fromkeys(counts)
    elif row["status"] == "cancelled":
        flags.add("cancelled_partial_output")
    row |= counts | {"stream": stream}
    return row | blocks_of_messages(get(record, "messages"), row["input_tokens"])


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Number attempts by arrival."""
    return events.attempts(frame)
