"""OpenTelemetry GenAI spans (OTLP JSON, either case): current and older conventions, OpenInference, vLLM's engine.

A client span and the engine span of the same request are one: the engine's tokens and times stand, session, model and
stream come from the client. Agents and tools sum what their children did and are no requests.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from pipeline.ingest import events
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import (
    Rejected,
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
    truth,
)
from pipeline.ingest.lines import fault
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages

NAME = "otel_genai"
TITLE = "OpenTelemetry GenAI spans, OTLP JSON: resourceSpans, scopeSpans, spans"
LOCATOR = "span"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS: dict[str, str] = {"naive_timestamps_are": "UTC"}
_ENGINE = "llm_request"
_GENERATIONS = ("chat", "text_completion", "generate_content", "completion", "llm")
_FIRST_TOKEN = ("First Token Stream Event", "gen_ai.first_token", "first_token")


def looks(sample: Sample) -> str | None:
    """Return the reason if an object holds spans of resources."""
    for keys in (("resourceSpans",), ("resource_spans",), ("scopeSpans",), ("scope_spans",)):
        if events.shows(sample, *keys):
            return f"OTLP JSON with {keys[0]}"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per span."""
    return events.tables(events.rows(_spans(source), _row))


def _spans(source: Source) -> Iterator[Event]:
    """Yield spans with the attributes of their resource; what is no span list is one faulty record."""
    number = 0
    for event in events.events(source):
        if isinstance(event.value, Rejected):
            number += 1
            yield Event(number, number, event.value)
            continue
        for resource in _list(first(event.value, "resourceSpans")) or [event.value]:
            service = _attributes(get(resource, "resource", "attributes")).get("service.name")
            scopes = _list(first(resource, "scopeSpans", "instrumentationLibrarySpans"))
            for scope in scopes:
                label = get(scope, "scope", "name") or get(scope, "instrumentationLibrary", "name")
                for span in _list(get(scope, "spans")):
                    number += 1
                    yield Event(number, number, {"span": span, "service": service, "scope": label})


def _list(value: Any) -> list:
    value = parsed(value)
    return value if isinstance(value, list) else []


def _attributes(value: Any) -> dict[str, Any]:
    """Return attributes as a plain mapping; OTLP writes them as keys and typed values."""
    value = parsed(value)
    if isinstance(value, Mapping):
        return {key: _value(inner) for key, inner in value.items()}
    pairs = value if isinstance(value, list) else []
    return {str(get(pair, "key")): _value(get(pair, "value")) for pair in pairs}


def _value(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for kind in ("stringValue", "intValue", "doubleValue", "boolValue"):
        if (found := get(value, kind)) is not None:
            return found
    values = get(value, "arrayValue", "values")
    return [_value(inner) for inner in values] if isinstance(values, list) else None


def _id(value: Any) -> str | None:
    """Return a span or trace id in hex; protobuf's own JSON writes it in base64."""
    found = text(value)
    if found is None or all(c in "0123456789abcdefABCDEF" for c in found):
        return found.lower() if found else None
    try:
        return base64.b64decode(found, validate=True).hex()
    except (binascii.Error, ValueError):
        return found


def _row(event: Event) -> Row:
    span, service = get(event.value, "span"), get(event.value, "service")
    span_id = _id(get(span, "spanId"))
    sound = span_id is not None and len(span_id) == 16 and all(c in "0123456789abcdef" for c in span_id)
    place: Row = {"source_row": event.row, "locator": f"span {span_id if sound else event.row}"}
    try:
        return _request(span, text(service), span_id, event.number) | place
    except Rejected as found:
        found.place = place  # type: ignore[attr-defined]
        raise


def _request(span: Any, service: str | None, span_id: str | None, number: int) -> Row:
    given, flags = _attributes(get(span, "attributes")), set[str]()
    start, end = (_nanos_us(get(span, key)) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    if start is None:
        raise Rejected("missing_arrival", "startTimeUnixNano is absent or zero")
    prompt, output, cached, written, reasoning = _tokens(given, flags)
    engine = get(span, "name") == _ENGINE or "gen_ai.latency.e2e" in given
    if not _is_generation(given, engine):
        raise Rejected("not_generation", "the span is no generation")
    asked = parsed(given.get("llm.invocation_parameters"))
    stream = _stream(given, asked, engine)
    ttft, e2e, queue = _times(span, given, start, end, flags)
    error = given.get("error.type")
    failed = error is not None or small(get(span, "status", "code")) == 2 or _is_error(get(span, "status", "code"))
    reasons = parsed(given.get("gen_ai.response.finish_reasons"))
    reasons = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return {
        "request_id": text(_any(given, "gen_ai.request.id", "gen_ai.response.id")) or span_id or f"{NAME}:{number}",
        "logical_id": _id(get(span, "traceId")),
        "part": "engine" if engine else "client",
        "span": span_id,
        "parent_span": _id(get(span, "parentSpanId")),
        "clock_us": start,
        "input_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "reasoning_tokens": reasoning,
        "max_tokens": small(
            _any(given, "gen_ai.request.max_tokens", "llm.request.max_tokens")
            or first(asked, "max_tokens", "max_completion_tokens")
        ),
        "model": text(_any(given, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name")),
        "deployment": service if engine else None,
        "session_id": text(_any(given, "gen_ai.conversation.id", "session.id")),
        "stream": stream,
        "n": small(given.get("gen_ai.request.n"), 16) or 1,
        "finish_reason": name(reasons),
        "obs_ttft_us": ttft,
        "obs_e2e_us": e2e,
        "obs_queue_us": queue,
        "flags": flags,
        **(_failure(error) if failed else {"status": "ok"}),
        **blocks_of_messages(_any(given, "gen_ai.input.messages", "gen_ai.prompt", "input.value"), prompt),
    }


def _any(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) not in (None, "")), None)


def _nanos_us(value: Any) -> int | None:
    nanos = small(value, 64)
    return None if nanos is None or nanos <= 0 else nanos // 1000


def _is_generation(given: Mapping[str, Any], engine: bool) -> bool:
    kind = _any(given, "gen_ai.operation.name", "llm.request.type", "openinference.span.kind", "traceloop.span.kind")
    if kind is not None:
        return str(kind).lower() in _GENERATIONS
    return engine or _any(given, "gen_ai.request.model", "llm.model_name") is not None


def _is_error(code: Any) -> bool:
    return isinstance(code, str) and code.endswith("ERROR")


def _failure(error: Any) -> Row:
    code = small(error, 16)
    kind = name(error)
    if code is not None:
        return {"status": http_status(code), "http_status": code, "error_type": kind}
    return {"status": "timeout" if kind and "timeout" in kind.lower() else "error", "error_type": kind}


def _stream(given: Mapping[str, Any], asked: Any, engine: bool) -> bool | None:
    stated = truth(_any(given, "gen_ai.request.stream", "llm.is_streaming", "llm.request.stream"))
    stated = truth(get(asked, "stream")) if stated is None else stated
    if stated is None and not engine and "gen_ai.provider.name" in given:
        return False
    return stated


def _tokens(given: Mapping[str, Any], flags: set[str]) -> tuple[int | None, ...]:
    names = (
        ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
        ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
        (
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.cached_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
        (
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "llm.token_count.prompt_details.cache_write",
        ),
        (
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.reasoning_tokens",
            "llm.token_count.completion_details.reasoning",
        ),
    )
    plain, output, cached, written, reasoning = (count(_any(given, *each), each[0]) for each in names)
    total = small(_any(given, "llm.usage.total_tokens", "gen_ai.usage.total_tokens", "llm.token_count.total"))
    if None not in (total, plain, output) and total != (plain or 0) + (output or 0):
        flags.add("total_mismatch")
    prompt = cached_input(plain, cached, written, inclusive=True, total_is_plain=False, flags=flags)
    return prompt, output, cached, written, reasoning


def _times(span: Any, given: Mapping[str, Any], start: int, end: int | None, flags: set[str]) -> list[int | None]:
    """Return time to first token, total time and time in queue, microseconds."""
    ttft = duration_us(
        _any(
            given,
            "gen_ai.latency.time_to_first_token",
            "gen_ai.response.time_to_first_chunk",
            "gen_ai.server.time_to_first_token",
        ),
        6,
    )
    for event in _list(get(span, "events")):
        if ttft is None and get(event, "name") in _FIRST_TOKEN:
            at = _nanos_us(get(event, "timeUnixNano"))
            ttft = None if at is None else at - start
    e2e = duration_us(given.get("gen_ai.latency.e2e"), 6)
    if e2e is None and end is not None:
        e2e = end - start
    found = [ttft, e2e, duration_us(given.get("gen_ai.latency.time_in_queue"), 6)]
    if any(value is not None and value < 0 for value in found):
        flags.add("negative_duration")
    return [value if value is not None and value >= 0 else None for value in found]


def settle(read: pl.DataFrame) -> pl.DataFrame:
    """Reject client spans of requests that the engine reported too, after giving the engine span what it lacks.

    The engine span is a child of the client span; where spans between them are missing, a trace with one of each is
    one request.
    """
    sound = read.with_row_index("at").filter(pl.col("fault").is_null())
    engine, client = sound.filter(pl.col("part") == "engine"), sound.filter(pl.col("part") != "engine")
    taken = ("model", "session_id", "stream")
    give = client.select(
        "logical_id", "span", pl.col("at").alias("client"), *[pl.col(n).alias(f"{n}_c") for n in taken]
    )
    child = engine.select("logical_id", pl.col("parent_span").alias("span"), "at")
    direct = child.join(give, on=["logical_id", "span"], nulls_equal=False).drop("span")
    only = give.filter(pl.len().over("logical_id") == 1).drop("span")
    lone = engine.filter(pl.len().over("logical_id") == 1).select("logical_id", "at")
    lone = lone.join(direct.select("at"), on="at", how="anti").join(only, on="logical_id")
    pairs = pl.concat([direct, lone.select(direct.columns)]).unique("at", keep="first").drop("logical_id")
    clients = pairs["client"].implode()
    marked = read.with_row_index("at").join(pairs, on="at", how="left", maintain_order="left")
    twin = pl.when(pl.col("at").is_in(clients)).then(
        fault("duplicate_layer", "client span of a request that the engine reported")
    )
    return marked.with_columns(
        pl.coalesce("fault", twin).alias("fault"),
        *[pl.coalesce(f"{name}_c", name).alias(name) for name in taken],
        pl.col("client").is_not_null().alias("flag:merged_client_span"),
    ).drop("at", "client", *[f"{name}_c" for name in taken])


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows of the order."""
    return frame
