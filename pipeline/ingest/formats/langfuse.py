"""Langfuse observations: blob storage export (snake_case), API dump (camelCase), old and new usage fields.

Usage buckets are disjoint where Langfuse's own collector made them. Hourly files overlap; the newer copy of a record
stands. Durations are seconds in the export and the API; --read-option latency_unit=ms is for table queries.
"""

import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest import events
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import (
    Rejected,
    arrival_us,
    cached_input,
    count,
    duration_us,
    first,
    get,
    http_status,
    not_a_measurement,
    parsed,
    small,
    stamp_us,
    text,
)
from pipeline.ingest.lines import fault
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages

NAME = "langfuse_observations"
TITLE = "Langfuse observations, JSON: id, trace_id, type, start_time, usage_details"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC", "latency_unit": "s"}
_DIGITS = {"s": 6, "ms": 3}
_CODE = re.compile(r"\b([45]\d\d)\b")
_READS = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "cached_tokens")
_WRITES = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_creation_5m", "input_cache_creation_1h")
_REASONING = ("output_reasoning_tokens", "output_reasoning", "reasoning_tokens")


def looks(sample: Sample) -> str | None:
    """Return the reason if a record has the keys of an observation, in either case."""
    for keys in (("trace_id", "type", "start_time", "level"), ("traceId", "type", "startTime", "level")):
        if events.shows(sample, *keys):
            return "JSON with " + ", ".join(keys)
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per observation."""
    if options["latency_unit"] not in _DIGITS:
        raise TraceError(f"read option latency_unit = {options['latency_unit']}: must be s or ms")
    digits = _DIGITS[options["latency_unit"]]
    return events.frames(source, lambda event: _row(event, options["naive_timestamps_are"], digits))


def _row(event: Event, zone: str, digits: int) -> Row:
    record, flags = event.value, set[str]()
    start, naive = arrival_us(get(record, "start_time"), "start_time", zone)
    counts = _tokens(record, flags)
    if str(get(record, "type") or "GENERATION").upper() != "GENERATION":
        raise Rejected("not_generation", "type is no GENERATION")
    end = stamp_us(get(record, "end_time"), zone)
    opened = stamp_us(get(record, "completion_start_time"), zone)
    e2e, ttft = (duration_us(get(record, n), digits) for n in ("latency", "time_to_first_token"))
    if end is not None:
        e2e = end[0] - start if e2e is None else e2e
    if opened is not None and ttft is None:
        ttft = opened[0] - start
    if any(value is not None and value < 0 for value in (e2e, ttft)):
        flags.add("negative_duration")
        e2e, ttft = (None if value is None or value < 0 else value for value in (e2e, ttft))
    parameters = get(record, "model_parameters")
    stream = _truth(get(parameters, "stream"))
    if not_a_measurement(ttft, e2e, stream):
        flags.add("ttft_equals_e2e")
        ttft = None
    row: Row = {"status": "ok"}
    if str(get(record, "level") or "").upper() == "ERROR":
        code = _CODE.search(str(get(record, "status_message") or ""))
        row = {"status": http_status(int(code[1]) if code else None), "http_status": int(code[1]) if code else None}
    elif end is None:
        row = {"status": "unknown"}
        flags.add("unfinished")
    updated = stamp_us(get(record, "updated_at"), zone)
    prompt = counts["input_tokens"]
    return (
        row
        | counts
        | {
            "request_id": text(get(record, "id")) or f"{NAME}:{event.number}",
            "logical_id": text(get(record, "trace_id")),
            "clock_us": start,
            "naive": naive,
            "updated_us": updated[0] if updated else None,
            "model": text(first(record, "provided_model_name", "model", "internal_model")),
            "tenant": text(get(record, "environment")),
            "session_id": text(get(record, "session_id")),
            "max_tokens": small(first(parameters, "max_tokens", "max_completion_tokens", "maxTokens")),
            "stream": True if ttft is not None else stream,
            "obs_ttft_us": ttft,
            "obs_e2e_us": e2e,
            "flags": flags,
        }
        | blocks_of_messages(_messages(get(record, "input")), prompt)
    )


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())


def _messages(value: Any) -> Any:
    value = parsed(value)
    return get(value, "messages") if isinstance(value, dict) else value


def _tokens(record: Any, flags: set[str]) -> Row:
    """Return the token columns from usage_details, else from the older usage and token fields."""
    details = parsed(get(record, "usage_details"))
    details = details if isinstance(details, dict) and details else {}
    old = get(record, "usage")
    plain, output, total = (
        count(_stated(details, old, record, new, then), name)
        for name, new, then in (
            ("input", "input", ("input", "promptTokens", "prompt_tokens")),
            ("output", "output", ("output", "completionTokens", "completion_tokens")),
            ("total", "total", ("total", "totalTokens", "total_tokens")),
        )
    )
    read, write, reasoning = (_sum(details, names) for names in (_READS, _WRITES, _REASONING))
    same = total is not None and plain is not None and total == plain + (output or 0)
    prompt = cached_input(plain, read, write, inclusive=False, total_is_plain=same, flags=flags)
    answer = output if reasoning is None or "cache_inclusive_kept" in flags else (output or 0) + reasoning
    if reasoning and total is not None and prompt is not None and prompt + (output or 0) == total:
        answer = output
    if plain == output == 0 and not details.get("total"):
        prompt = answer = None
    if None not in (total, prompt, answer) and total != (prompt or 0) + (answer or 0):
        flags.add("total_mismatch")
    if prompt is None and answer is None and str(get(record, "level") or "").upper() != "ERROR":
        flags.add("usage_missing")
    return {
        "input_tokens": prompt,
        "output_tokens": answer,
        "cached_tokens": read,
        "cache_write_tokens": write,
        "reasoning_tokens": reasoning,
    }


def _stated(details: dict, old: Any, record: Any, new: str, then: tuple[str, ...]) -> Any:
    for place, names in ((details, (new, *then)), (old, then), (record, then[1:])):
        found = first(place, *names) if place else None
        if found is not None:
            return found
    return None


def _sum(details: dict, names: tuple[str, ...]) -> int | None:
    stated = [count(details[name], name) for name in names if details.get(name) is not None]
    return sum(value or 0 for value in stated) if stated else None


def settle(read: pl.DataFrame) -> pl.DataFrame:
    """Reject older copies of an updated record."""
    sound = pl.col("fault").is_null()
    newest = pl.when(sound).then("updated_us").max().over("request_id")
    older = sound & (pl.col("updated_us") < newest).fill_null(False)
    copy = pl.when(older).then(fault("superseded", "a newer copy of this record follows"))
    return read.with_columns(pl.coalesce("fault", copy).alias("fault"))


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
