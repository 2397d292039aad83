"""Results of `vllm bench serve --save-result --save-detailed` (one JSON object of parallel arrays).

`start_times` come from a monotonic clock: only differences mean anything. A failed request has zeros where values
are missing.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from pipeline.ingest import events
from pipeline.ingest.events import Row
from pipeline.ingest.fields import Rejected, count, duration_us, get, name, text
from pipeline.ingest.sources import Sample, Source

NAME = "vllm_bench_serve"
TITLE = "vllm bench serve result, JSON: input_lens, output_lens, start_times, ttfts"
LOCATOR = "index"
RELATIVE_CLOCK = True
PRIVATE = False
OPTIONS: dict[str, str] = {}
_KEYS = ("input_lens", "output_lens", "ttfts")


def looks(sample: Sample) -> str | None:
    """Return the reason if the first bytes name the arrays: the object itself may be longer than they are."""
    if events.shows(sample, *_KEYS):
        return "one JSON object with " + ", ".join(_KEYS)
    head = sample.head.decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    if head.startswith("{") and '"input_lens"' in head and '"num_prompts"' in head:
        return "one JSON object with num_prompts, input_lens"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per element of the arrays; runs that were appended to one file follow each other."""
    return events.tables(_rows(source))


def _rows(source: Source) -> Iterator[Row]:
    index = 0
    for event in events.events(source):
        if isinstance(event.value, Rejected):
            fault = {"reason": event.value.reason, "detail": event.value.detail}
            yield {"source_row": index + 1, "locator": f"index {index}", "fault": fault}
            index += 1
            continue
        arrays = {key: _list(get(event.value, key)) for key in (*_KEYS, "start_times", "errors", "latencies", "itls")}
        model = text(get(event.value, "model_id"))
        for place in range(max(map(len, arrays.values()), default=0)):
            row: Row = {"source_row": index + 1, "locator": f"index {index}"}
            try:
                row |= _row({key: _at(value, place) for key, value in arrays.items()}, model)
                row["request_id"] = f"{NAME}:{source.tag}{index}"
            except Rejected as fault:
                row["fault"] = {"reason": fault.reason, "detail": fault.detail}
            yield row
            index += 1


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _at(values: list, place: int) -> Any:
    return values[place] if place < len(values) else None


def _row(value: Row, model: str | None) -> Row:
    start = duration_us(value["start_times"], 6)
    if value["start_times"] is None:
        raise Rejected("missing_arrival", "start_times is absent or too short")
    if start is None:
        raise Rejected("bad_timestamp", "start_times is no number of seconds")
    prompt, output = count(value["input_lens"], "input_lens"), count(value["output_lens"], "output_lens")
    row: Row = {"clock_us": start, "input_tokens": prompt, "model": model, "stream": True}
    if value["errors"]:
        return row | _failure(str(value["errors"]))
    ttft, e2e = duration_us(value["ttfts"], 6), duration_us(value["latencies"], 6)
    if e2e is None and ttft is not None and isinstance(value["itls"], list):
        gaps = [duration_us(gap, 6) for gap in value["itls"]]
        e2e = None if None in gaps else ttft + sum(gap or 0 for gap in gaps)
    flags = {"negative_duration"} if any(t is not None and t < 0 for t in (ttft, e2e)) else set()
    return row | {
        "output_tokens": output,
        "obs_ttft_us": ttft if ttft is not None and ttft >= 0 else None,
        "obs_e2e_us": e2e if e2e is not None and e2e >= 0 else None,
        "flags": flags,
    }


def _failure(error: str) -> Row:
    """Return status and the class of an error from the last line of its text."""
    last = error.strip().splitlines()[-1] if error.strip() else ""
    if "too many requests" in last.lower():
        return {"status": "throttled", "http_status": 429}
    kind = name(last.split(":", 1)[0].rsplit(".", 1)[-1].strip())
    return {"status": "timeout" if kind and "timeout" in kind.lower() else "error", "error_type": kind}


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
