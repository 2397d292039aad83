"""Vertex AI request-response logs (the BigQuery table exported as JSON).

`logging_time` is when the answer was returned. JSON columns may be objects or text. Gemini's prompt count holds cached
tokens and leaves out tool prompts; its candidates leave out thoughts. Partner models state their own usage.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

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
    name,
    parsed,
    small,
    text,
)
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages

NAME = "vertex_request_response"
TITLE = "Vertex AI request-response log, JSON: logging_time, api_method, full_request, full_response"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC"}
_KEYS = ("logging_time", "api_method", "full_response")
_GENERATIONS = ("generatecontent", "rawpredict", "chat", "completion", "messages")
_TRAFFIC = {"ON_DEMAND": "on_demand", "PROVISIONED_THROUGHPUT": "provisioned"}
_REFUSED = ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII")


def looks(sample: Sample) -> str | None:
    """Return the reason if a record has the columns of the table."""
    for keys in (_KEYS, ("logging_time", "api_method", "response_payload")):
        if events.shows(sample, *keys):
            return "JSON with " + ", ".join(keys)
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per row."""
    return events.frames(source, lambda event: _row(event, options["naive_timestamps_are"]))


def _row(event: Event, zone: str) -> Row:
    record, flags = event.value, set[str]()
    end, naive = arrival_us(get(record, "logging_time"), "logging_time", zone)
    latency = duration_us(get(record, "metadata", "request_latency"), 3)
    if latency is not None and latency < 0:
        flags.add("negative_duration")
        latency = None
    if latency is None:
        flags.add("arrival_is_end")
    request = _payload(record, "full_request", "request_payload")
    response = _payload(record, "full_response", "response_payload")
    counts = _gemini(response) if get(response, "usageMetadata") else _partner(response, flags)
    method = str(get(record, "api_method") or "").lower()
    model = (text(get(record, "model")) or "").rsplit("/", 1)[-1] or None
    if (method and not any(word in method for word in _GENERATIONS)) or "embedding" in (model or ""):
        raise Rejected("not_generation", "api_method or model is no generation")
    finish = name(get(_first(get(response, "candidates")), "finishReason") or get(response, "stop_reason"))
    finish = finish or name(get(_first(get(response, "choices")), "finish_reason"))
    error = get(response, "error")
    row: Row = {"status": "rejected" if finish in _REFUSED or get(response, "promptFeedback", "blockReason") else "ok"}
    if error:
        code = small(get(error, "code"), 16)
        row = {"status": http_status(code), "http_status": code, "error_type": name(first(error, "status", "type"))}
        counts = dict.fromkeys(counts)
    return (
        row
        | counts
        | {
            "request_id": text(get(record, "request_id")) or f"{NAME}:{event.number}",
            "clock_us": end - (latency or 0),
            "naive": naive,
            "model": model,
            "tenant": text(get(request, "labels", "team")),
            "max_tokens": small(get(request, "generationConfig", "maxOutputTokens") or get(request, "max_tokens")),
            "capacity_class": _TRAFFIC.get(str(get(response, "usageMetadata", "trafficType"))),
            "stream": "stream" in method if method else None,
            "finish_reason": finish,
            "obs_e2e_us": latency,
            "flags": flags,
        }
        | blocks_of_messages(get(request, "messages") or get(request, "contents"), counts["input_tokens"])
    )


def _first(value: Any) -> Any:
    value = parsed(value)
    return value[0] if isinstance(value, list) and value else None


def _payload(record: Any, full: str, raw: str) -> Any:
    """Return the full JSON column, else the first, or for the answer the last, part of the raw one."""
    found = parsed(get(record, full))
    if isinstance(found, list):  # a stream that was logged in parts: usage is in the last
        found = found[-1] if found else None
    if found:
        return found
    parts = parsed(get(record, raw))
    if isinstance(parts, list) and parts:
        return parsed(parts[-1])
    return parts


def _gemini(response: Any) -> Row:
    usage = get(response, "usageMetadata")
    prompt = count(get(usage, "promptTokenCount"), "promptTokenCount")
    tools = count(get(usage, "toolUsePromptTokenCount"), "toolUsePromptTokenCount")
    answer = count(get(usage, "candidatesTokenCount"), "candidatesTokenCount")
    thoughts = count(get(usage, "thoughtsTokenCount"), "thoughtsTokenCount")
    return {
        "input_tokens": None if prompt is None and tools is None else (prompt or 0) + (tools or 0),
        "output_tokens": None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0),
        "cached_tokens": count(get(usage, "cachedContentTokenCount"), "cachedContentTokenCount"),
        "cache_write_tokens": None,
        "reasoning_tokens": thoughts,
    }


def _partner(response: Any, flags: set[str]) -> Row:
    usage = get(response, "usage")
    own = get(usage, "input_tokens") is not None  # Anthropic's usage, which leaves out the cache
    plain = count(first(usage, "input_tokens", "prompt_tokens"), "usage.input_tokens")
    read = count(first(usage, "cache_read_input_tokens"), "usage.cache_read_input_tokens")
    if read is None:
        read = count(get(usage, "prompt_tokens_details", "cached_tokens"), "usage.cached_tokens")
    write = count(get(usage, "cache_creation_input_tokens"), "usage.cache_creation_input_tokens")
    return {
        "input_tokens": cached_input(plain, read, write, inclusive=not own, total_is_plain=False, flags=flags),
        "output_tokens": count(first(usage, "output_tokens", "completion_tokens"), "usage.output_tokens"),
        "cached_tokens": read,
        "cache_write_tokens": write,
        "reasoning_tokens": count(get(usage, "completion_tokens_details", "reasoning_tokens"), "reasoning_tokens"),
    }


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
