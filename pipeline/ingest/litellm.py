"""What LiteLLM's two logs share: usage, errors and times."""

from typing import Any

from pipeline.ingest.events import Row
from pipeline.ingest.fields import (
    Rejected,
    cached_input,
    count,
    difference_us,
    first,
    get,
    http_status,
    name,
    small,
    truth,
)

_GENERATIONS = ("completion", "responses", "messages", "generate", "chat", "text_completion")


def generation(record: Any) -> None:
    """Reject calls that generate no text: embeddings, images, speech, moderation, batches."""
    kind = str(get(record, "call_type") or "completion").lower()
    if not any(word in kind for word in _GENERATIONS) or "batch" in kind or "image" in kind:
        raise Rejected("not_generation", "call_type is no generation")


def tokens(usage: Any, record: Any, flags: set[str]) -> Row:
    """Return the token columns; usage states cached tokens, the record the prompt and the answer."""
    extra = get(record, "metadata", "additional_usage_values")
    plain = count(first(record, "prompt_tokens"), "prompt_tokens")
    if plain is None:
        plain = count(first(usage, "prompt_tokens", "input_tokens"), "usage_object.prompt_tokens")
    output = count(first(record, "completion_tokens"), "completion_tokens")
    if output is None:
        output = count(first(usage, "completion_tokens", "output_tokens"), "usage_object.completion_tokens")
    details, answer = get(usage, "prompt_tokens_details"), get(usage, "completion_tokens_details")
    read = first(extra, "cache_read_input_tokens")
    read = get(details, "cached_tokens") if read is None else read
    read = get(usage, "cache_read_input_tokens") if read is None else read
    write = first(extra, "cache_creation_input_tokens")
    write = get(usage, "cache_creation_input_tokens") if write is None else write
    write = get(details, "cache_creation_tokens") if write is None else write
    cached, written = count(read, "cached_tokens"), count(write, "cache_creation_tokens")
    prompt = cached_input(plain, cached, written, inclusive=True, total_is_plain=False, flags=flags)
    total = small(get(record, "total_tokens"))
    if None not in (total, plain, output) and total not in (
        (plain or 0) + (output or 0),
        (prompt or 0) + (output or 0),
    ):
        flags.add("total_mismatch")
    return {
        "input_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "reasoning_tokens": count(get(answer, "reasoning_tokens"), "reasoning_tokens"),
    }


def times(row: Row, start: int, end: Any, opened: Any) -> None:
    """Set observed times; LiteLLM writes the end as the first token where it saw none."""
    e2e = difference_us(end[0] if end else None, start, row["flags"])
    ttft = opened[0] - start if opened and opened[0] >= start else None
    row["obs_e2e_us"] = e2e
    row["obs_ttft_us"] = None if e2e is None or ttft == e2e else ttft


def outcome(row: Row, status: str | None, error: Any, cache_hit: Any) -> None:
    """Set status, error and where the answer came from."""
    if status == "failure":
        code = small(get(error, "error_code"), 16)
        row |= {"status": http_status(code if code and code >= 300 else None), "http_status": code}
        row["error_type"] = name(get(error, "error_class"))
    else:
        row["status"] = "ok" if status == "success" else "unknown"
    if truth(cache_hit):
        row["served_from"] = "response_cache"
