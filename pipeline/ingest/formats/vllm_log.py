"""Text log of `vllm serve` with --enable-log-requests: request lines, responses, aborts.

Times have no year and no zone; the year is stated (`first_line_year`) and rolls over where the month falls back. Only
the older style lists prompt token ids; no style states generated tokens. Other lines are skipped and not counted.
"""

import re
from collections.abc import Iterator

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest import clock, events
from pipeline.ingest.events import Row
from pipeline.ingest.fields import count, name, small, stamp_us
from pipeline.ingest.sources import Sample, Source, line_batches
from pipeline.ingest.text import blocks_of_tokens

NAME = "vllm_log"
TITLE = "vLLM server log with --enable-log-requests, text: Received request"
LOCATOR = "line"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC", "first_line_year": "unknown"}
_LINE = re.compile(
    r"^(?:\([^)]*\)\s*)?(?:\[?(?:INFO|DEBUG|WARNING)\]?)\s+(?:(\d{4})-)?(\d\d)-(\d\d) "
    r"(\d\d:\d\d:\d\d)\S* \[[^\]]*\] (.*)$"
)
_REQUEST = re.compile(r"Received request ([^\s:]+): ")
_RESPONSE = re.compile(r"Generated response ([^\s:]+?)(?: \((streaming)[^)]*\))?: ")
_ABORT = re.compile(r"(?:Aborted|Abort) request(?:\(s\))? ([^\s:,.]+)")
_TOKENS = re.compile(r".*prompt_token_ids: \[([\d, ]*)\]", re.DOTALL)
_LIMIT = re.compile(r".*\bmax_tokens=(\d+)", re.DOTALL)
_FINISH = re.compile(r".*finish_reason: (\w+)", re.DOTALL)


def looks(sample: Sample) -> str | None:
    """Return the reason if a line of the server's log receives a request."""
    if any((found := _LINE.match(line)) and _REQUEST.match(found[5]) for line in sample.lines):
        return "text lines of a vLLM server: Received request"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per received request, completed by its response line."""
    zone = clock.zone(options["naive_timestamps_are"])
    year = str(options["first_line_year"])
    if year != "unknown" and not re.fullmatch(r"[12]\d{3}", year):
        raise TraceError(f"read option first_line_year = {year}: must be a year of four digits")
    return events.tables(_requests(source, None if year == "unknown" else int(year), zone))


def _requests(source: Source, year: int | None, zone: str) -> Iterator[Row]:
    rows: dict[int, Row] = {}
    latest: dict[str, Row] = {}
    month = 0
    for frame in line_batches(source):
        for number, line in zip(frame["line_number"].to_list(), frame["line"], strict=True):
            match = _LINE.match(line) if line is not None and "re" in line else None
            if match is None or not _REQUEST.match(match[5]):
                rows[number] = {"source_row": number, "part": "other", "request_id": ""}
            if match is None:
                continue
            stated, logged_month, day, time, rest = match.groups()
            if year is None and stated is None and (_REQUEST.match(rest) or _RESPONSE.match(rest)):
                raise TraceError(
                    f"{source.path}: its times have no year; state that of the first line with "
                    "--read-option first_line_year=2026"
                )
            if year is not None and int(logged_month) < month - 6:
                year += 1
            month = int(logged_month)
            when = stamp_us(f"{stated or year}-{logged_month}-{day} {time}", zone)
            if found := _REQUEST.match(rest):
                row = _received(found[1], rest[found.end() :], when, stated is None)
                row["source_row"] = number
                rows[number] = latest[found[1]] = row
            elif found := _RESPONSE.match(rest):
                _answered(latest.get(found[1]), rest, found[2], when)
            elif (found := _ABORT.match(rest)) and found[1] in latest:
                latest[found[1]]["status"] = "cancelled"
    yield from rows.values()


def _received(request_id: str, rest: str, when: tuple[int, bool] | None, assumed: bool) -> Row:
    if when is None:
        return {"fault": {"reason": "bad_timestamp", "detail": "the time of the line is no date"}}
    listed, limit = _TOKENS.match(rest), _LIMIT.match(rest)
    ids = [int(token) for token in listed[1].split(",")] if listed and listed[1].strip() else None
    flags = set[str]()
    flags.add("output_tokens_missing")
    if assumed:
        flags.add("year_assumed")
    prompt = count(len(ids), "prompt_token_ids") if ids else None
    if prompt is None:
        flags.add("tokens_missing")
    return {
        "request_id": request_id,
        "clock_us": when[0],
        "naive": True,
        "input_tokens": prompt,
        "max_tokens": small(limit[1]) if limit else None,
        "status": "unknown",
        "flags": flags,
    } | blocks_of_tokens(ids, prompt)


def _answered(row: Row | None, rest: str, streaming: str | None, when: tuple[int, bool] | None) -> None:
    if row is None or "fault" in row:
        return
    finish = _FINISH.match(rest)
    row["finish_reason"] = name(finish[1]) if finish else None
    row["status"] = "cancelled" if row["finish_reason"] == "abort" else "ok"
    row["stream"] = streaming is not None
    if when is not None and when[0] >= row["clock_us"]:
        row["obs_e2e_us"] = when[0] - row["clock_us"]


def settle(read: pl.DataFrame) -> pl.DataFrame:
    """Keep the request lines; all others were read for what they say about these."""
    return read.filter(pl.col("part").is_null())


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
