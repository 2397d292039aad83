"""Amazon Bedrock model invocation logs (JSON), from S3 or wrapped in log events.

`inputTokenCount` leaves out cache reads and writes. `timestamp` has whole seconds and is the start of the call;
`--read-option timestamp_is=end` takes it for the end. A wrapping event's own time is delivery time and not used.
"""

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
    name,
    parsed,
    small,
    text,
)
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages

NAME = "bedrock_invocation"
TITLE = "Bedrock model invocation log, JSON: schemaType ModelInvocationLog, modelId, operation, input"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC", "timestamp_is": "start"}
_STATUS = {
    "ThrottlingException": "throttled",
    "ValidationException": "rejected",
    "ModelTimeoutException": "timeout",
}


def looks(sample: Sample) -> str | None:
    """Return the reason if a record is a ModelInvocationLog."""
    found = any(record.get("schemaType") == "ModelInvocationLog" for record in events.sampled(sample))
    if found or events.shows(sample, "modelId", "operation", "input", "requestId"):
        return "JSON of schemaType ModelInvocationLog" if found else "JSON with modelId, operation, input, requestId"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per invocation."""
    if options["timestamp_is"] not in ("start", "end"):
        raise TraceError(f"read option timestamp_is = {options['timestamp_is']}: must be start or end")
    return events.frames(source, lambda event: _row(event, options))


def _row(event: Event, options: dict[str, str]) -> Row:
    record, flags = event.value, set[str]()
    start, naive = arrival_us(get(record, "timestamp"), "timestamp", options["naive_timestamps_are"])
    model = text(get(record, "modelId"))
    body, answer = get(record, "input", "inputBodyJson"), parsed(get(record, "output", "outputBodyJson"))
    chunks = answer if isinstance(answer, list) else [answer]
    plain = count(get(record, "input", "inputTokenCount"), "inputTokenCount")
    read = count(_stated(record, "cacheReadInputTokenCount"), "cacheReadInputTokenCount")
    write = count(_stated(record, "cacheWriteInputTokenCount"), "cacheWriteInputTokenCount")
    output = count(get(record, "output", "outputTokenCount"), "outputTokenCount")
    if any(word in (model or "").lower() for word in ("embed", "rerank", "stability.", "image", "canvas", "reel")):
        raise Rejected("not_generation", "modelId names no text generation")
    operation = str(get(record, "operation") or "")
    if operation and not operation.startswith(("InvokeModel", "Converse")):
        raise Rejected("not_generation", "operation is no generation")
    usage = next((u for u in (get(chunk, "usage") for chunk in chunks) if get(u, "totalTokens") is not None), None)
    total = small(get(usage, "totalTokens"))
    inclusive = (
        "openai." in (model or "")
        and operation == "ConverseStream"
        and plain is not None
        and plain >= (read or 0) + (write or 0) > 0
    )
    same = total is not None and plain is not None and total == plain + (output or 0)
    prompt = cached_input(plain, read, write, inclusive=inclusive, total_is_plain=same, flags=flags)
    error = name(get(record, "errorCode"))
    counts: Row = {
        "input_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": read,
        "cache_write_tokens": write,
    }
    row: Row = {"status": "ok"}
    if get(record, "errorCode"):
        row = {"status": _STATUS.get(error or "", "error"), "error_type": error}
        counts = dict.fromkeys(counts)
    elif plain is None or output is None:
        flags.add("tokens_missing")
    if _guarded(chunks):
        flags.add("guardrail")
        row |= {"status": "rejected", "zero_stated": True}
    e2e = _metric(chunks, "invocationLatency", "latencyMs")
    if options["timestamp_is"] == "end":
        start -= e2e or 0
        if e2e is None:
            flags.add("arrival_is_end")
    return (
        row
        | counts
        | {
            "request_id": text(get(record, "requestId")) or f"{NAME}:{event.number}",
            "clock_us": start,
            "naive": naive,
            "model": model,
            "tenant": _tenant(record),
            "max_tokens": small(_limit(body)),
            "capacity_class": "provisioned" if ":provisioned-model/" in (model or "") else "on_demand",
            "service_tier": name(first(record, "serviceTier")),
            "stream": operation in ("InvokeModelWithResponseStream", "ConverseStream") if operation else None,
            "finish_reason": _finish(chunks),
            "obs_ttft_us": _metric(chunks, "firstByteLatency"),
            "obs_e2e_us": e2e,
            "flags": flags,
        }
        | blocks_of_messages(get(body, "messages") or get(body, "prompt"), prompt)
    )


def _stated(record: Any, field: str) -> Any:
    value = get(record, "input", field)
    return get(record, "output", field) if value is None else value


def _metric(chunks: list, *names: str) -> int | None:
    """Return a time in ms from the last chunk's metrics or the answer's, as microseconds."""
    for chunk in reversed(chunks):
        for place in ("amazon-bedrock-invocationMetrics", "metrics"):
            for part in (chunk, get(chunk, "metadata")):
                found = next((v for v in (duration_us(get(part, place, n), 3) for n in names) if v is not None), None)
                if found is not None and found >= 0:
                    return found
    return None


def _finish(chunks: list) -> str | None:
    for chunk in chunks:
        places = [chunk, get(chunk, "delta"), get(chunk, "messageStop"), *(_list(get(chunk, "outputs"))[:1])]
        places += _list(get(chunk, "choices"))[:1] + _list(get(chunk, "results"))[:1]
        for place in places:
            found = name(first(place, "stopReason", "stop_reason", "finish_reason", "completionReason"))
            if found:
                return found
    return None


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _guarded(chunks: list) -> bool:
    marks = ("INTERVENED", "guardrail_intervened")
    actions = (first(c, "amazon-bedrock-guardrailAction", "stopReason", "stop_reason") for c in chunks)
    return any(action in marks for action in actions if isinstance(action, str))


def _limit(body: Any) -> Any:
    config = get(body, "inferenceConfig") or get(body, "textGenerationConfig")
    found = first(body, "max_tokens", "maxTokens", "max_gen_len", "max_completion_tokens", "max_tokens_to_sample")
    return first(config, "maxTokens", "max_new_tokens", "maxTokenCount") if found is None else found


def _tenant(record: Any) -> str | None:
    """Return the stated tenant, else the role or user of the caller's ARN."""
    stated = text(get(record, "requestMetadata", "tenant"))
    arn = text(get(record, "identity", "arn"))
    if stated or not arn:
        return stated
    parts = arn.split("/")
    return parts[1] if len(parts) > 1 and ":assumed-role" in parts[0] else parts[-1].split(":")[-1]


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
