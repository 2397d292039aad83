"""SGLang request metrics (JSON lines of --export-metrics-to-file).

`request_parameters` is JSON text. By default a larger priority is more urgent in SGLang, the reverse of the trace.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import events
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import (
    Rejected,
    count,
    duration_us,
    epoch_us,
    first,
    get,
    http_status,
    name,
    small,
    text,
    truth,
)
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages, blocks_of_tokens

NAME = "sglang_request_metrics"
TITLE = "SGLang request metrics, JSON lines: request_parameters, request_received_ts, prompt_tokens, e2e_latency"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC"}


def looks(sample: Sample) -> str | None:
    """Return the reason if a record has the keys of the export."""
    keys = ("request_parameters", "e2e_latency")
    return "JSON with " + ", ".join(keys) if events.shows(sample, *keys) else None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per line."""
    return events.frames(source, _row)


def _row(event: Event) -> Row:
    record, flags = event.value, set[str]()
    received = get(record, "request_received_ts")
    if received is None:
        raise Rejected("missing_arrival", "request_received_ts is absent")
    start = epoch_us(received)
    if start is None:
        raise Rejected("bad_timestamp", "request_received_ts is no time")
    asked, finish = get(record, "request_parameters"), get(record, "finish_reason")
    prompt = count(get(record, "prompt_tokens"), "prompt_tokens")
    output = count(get(record, "completion_tokens"), "completion_tokens")
    cached = count(get(record, "cached_tokens"), "cached_tokens")
    reasoning = count(get(record, "reasoning_tokens"), "reasoning_tokens")
    if get(record, "completion_tokens") is None:
        raise Rejected("not_generation", "completion_tokens is absent: an embedding or a score")
    kind, code = name(get(finish, "type")) or name(finish), small(get(finish, "status_code"), 16)
    row: Row = {"status": "ok"}
    if kind == "abort":
        status = {None: "cancelled", 503: "throttled"}.get(code) or http_status(code)
        row = {"status": status, "http_status": code, "error_type": name(get(finish, "err_type"))}
    priority = small(get(asked, "priority"))
    ids = get(asked, "input_ids")
    found = blocks_of_tokens(ids, prompt) or blocks_of_messages(first(asked, "text", "messages"), prompt)
    times = {n: duration_us(get(record, n), 6) for n in ("first_token_latency", "e2e_latency", "queue_time")}
    if any(value is not None and value < 0 for value in times.values()):
        flags.add("negative_duration")
    ttft, e2e, queue = (value if value is not None and value >= 0 else None for value in times.values())
    return (
        row
        | found
        | {
            "request_id": text(get(record, "id")) or f"{NAME}:{event.number}",
            "clock_us": start[0],
            "input_tokens": prompt,
            "output_tokens": output,
            "cached_tokens": cached,
            "reasoning_tokens": reasoning,
            "max_tokens": small(get(asked, "sampling_params", "max_new_tokens")),
            "session_id": text(get(asked, "session_params", "id")),
            "priority": None if priority is None else -priority,
            "stream": truth(get(asked, "stream")),
            "finish_reason": kind,
            "obs_ttft_us": ttft,
            "obs_e2e_us": e2e,
            "obs_queue_us": queue,
            "flags": flags | ({"epoch_ms"} if start[1] else set()),
        }
    )


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
