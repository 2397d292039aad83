"""JSON logs as records: lines, arrays or documents one after another, with or without a delivery envelope.

A format states which field is where in a function from one event to one row; everything else is here.
"""

import base64
import binascii
import csv
import difflib
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest import prefix, records
from pipeline.ingest.fields import Rejected, parsed
from pipeline.ingest.lines import FAULT
from pipeline.ingest.sources import Sample, Source, blocks, line_batches

MAX_LINE_BYTES = 1 << 28
MAX_DOCUMENT_BYTES = 1 << 30
BATCH_RECORDS = 20_000
_LISTS = ("records", "Records", "logEvents", "events", "data", "value", "logs", "rows")
_INSIDE = ("jsonPayload", "_source", "event", "message", "@message", "textPayload", "log")
_COLUMNS = {
    "source_row": pl.Int64(),
    "locator": pl.String(),
    "fault": FAULT,
    "clock_us": pl.Int64(),
    "naive": pl.Boolean(),
    "relative": pl.Boolean(),
    "zero_stated": pl.Boolean(),
    "updated_us": pl.Int64(),
    "part": pl.String(),
    "span": pl.String(),
    "parent_span": pl.String(),
    "blocks": pl.List(pl.UInt64()),
    **{
        name: kind
        for name, kind in records.TYPES.items()
        if name not in ("arrival_time", "arrival_us", "replayable", "prefix_hashes")
    },
}
_FILLED = {
    "attempt": 0,
    "n": 1,
    "status": "ok",
    "served_from": "engine",
    "naive": False,
    "relative": False,
    "zero_stated": False,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a log before it is read.

    row    : line or element of the file, from 1
    number : place among all records of the file, from 1
    value  : the decoded object, or why there is none
    """

    row: int
    number: int
    value: Mapping[str, Any] | Rejected


Row = dict[str, Any]


def events(source: Source) -> Iterator[Event]:
    """Yield the records of a file in order, envelopes taken off."""
    number = 0
    for row, value in _values(source):
        for inner in unwrap(value):
            number += 1
            yield Event(row, number, inner)


def frames(source: Source, read: Callable[[Event], Row | None]) -> Iterator[pl.DataFrame]:
    """Yield records as pipeline.ingest.records describes them.

    read : makes a row of columns of the trace, clock_us and flags out of an event; raises Rejected, or returns
           None for what is no record
    """
    yield from tables(rows(events(source), read))


def rows(found: Iterable[Event], read: Callable[[Event], Row | None]) -> Iterator[Row]:
    """Yield a row for each event, a faulty one where it cannot be read; the text of no error is kept."""
    for event in found:
        row: Row | None = None
        try:
            if isinstance(event.value, Rejected):
                raise event.value
            row = read(event)
        except Rejected as fault:
            row = {"fault": {"reason": fault.reason, "detail": fault.detail}, **getattr(fault, "place", {})}
        except (RecursionError, OverflowError, TypeError, AttributeError, ValueError):
            row = {"fault": {"reason": "bad_row", "detail": "a field holds a value of another kind than expected"}}
        if row is not None:
            row.setdefault("source_row", event.row)
            yield row


def tables(rows: Iterable[Row]) -> Iterator[pl.DataFrame]:
    """Yield rows as frames; at least one, so that an empty file has its columns."""
    batch: list[Row] = []
    done = False
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH_RECORDS:
            yield _table(batch)
            batch, done = [], True
    if batch or not done:
        yield _table(batch)


def _table(rows: list[Row]) -> pl.DataFrame:
    columns = {}
    for name, kind in _COLUMNS.items():
        default = _FILLED.get(name)
        values = [row.get(name, default) for row in rows]
        if name == "flags":
            values = [sorted(value) if value else [] for value in values]
        columns[name] = pl.Series(name, values, kind, strict=False)
    frame = pl.DataFrame(columns)
    return frame.with_columns(prefix.chain(frame["blocks"]).alias("prefix_hashes")).drop("blocks")


def unwrap(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any] | Rejected]:
    """Yield the records inside a value: arrays, lists of a delivery service, its text or base64 of each record."""
    if isinstance(value, Rejected):
        yield value
    elif depth > 6:
        yield Rejected("bad_json", "envelopes inside envelopes")
    elif isinstance(value, list):
        for inner in value:
            yield from unwrap(inner, depth + 1)
    elif isinstance(value, str):
        yield from _text(value, depth)
    elif isinstance(value, Mapping):
        yield from _object(value, depth)
    else:
        yield Rejected("bad_json", "not a JSON object")


def _object(value: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any] | Rejected]:
    if value.get("messageType") == "CONTROL_MESSAGE":
        return
    listed = next((name for name in _LISTS if isinstance(value.get(name), list)), None)
    if listed and len(value) <= 12 and all(isinstance(inner, (Mapping, str)) for inner in value[listed]):
        yield from unwrap(value[listed], depth + 1)
        return
    if isinstance(value.get("data"), str) and len(value) <= 8:
        yield from _text(value["data"], depth)
        return
    for name in _INSIDE:
        inner = parsed(value.get(name)) if len(value) <= 16 else None
        if isinstance(inner, Mapping) and name not in ("event",):
            yield from unwrap(inner, depth + 1)
            return
        if name in ("message", "@message") and isinstance(inner, str) and "timestamp" in "".join(value).lower():
            yield Rejected("bad_json", "the message inside a log event is no JSON object")
            return
    yield value


def _text(value: str, depth: int) -> Iterator[Mapping[str, Any] | Rejected]:
    content = value
    if value.lstrip()[:1] not in ("{", "["):
        try:
            raw = base64.b64decode(value, validate=True)
            if raw.startswith(b"\x1f\x8b"):
                raw = gzip.decompress(raw)
            content = raw.decode()
        except (binascii.Error, ValueError, OSError, EOFError, zlib.error):
            yield Rejected("bad_json", "text inside an envelope is neither JSON nor base64 of it")
            return
    for _, inner in documents(content):
        yield from unwrap(inner, depth + 1)


def _values(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield (row, value): one per line where the first line is a whole value, else one per document of the file."""
    by_line = None
    for frame in line_batches(source):
        for row, line in zip(frame["line_number"].to_list(), frame["line"], strict=True):
            if by_line is None:
                by_line = line is None or is_whole(line) or line.lstrip()[:1] not in ("{", "[")
                if not by_line:
                    yield from documents(_whole_text(source))
                    return
            yield row, _line(line)


def _line(line: str | None) -> Any:
    if line is None:
        return Rejected("bad_json", "not valid UTF-8")
    if len(line) > MAX_LINE_BYTES:
        return Rejected("bad_json", f"a line above {MAX_LINE_BYTES >> 20} MiB")
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        found = [value for _, value in documents(line)]
        if len(found) > 1 and not any(isinstance(value, Rejected) for value in found):
            return found
        return Rejected("bad_json", "not valid JSON")


def is_whole(line: str) -> bool:
    """Tell whether a line is a JSON value by itself, or as much of one as a cut off line can be."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        # A broken record ends inside a value; a document that goes on ends after an opening, a comma or a value.
        return line.lstrip()[:2] not in ("[", "{") and line.rstrip()[-1:] not in ("{", "[", ",") and len(line) > 200
    return True


def _whole_text(source: Source) -> str:
    parts, size = [], 0
    for block in blocks(source):
        size += len(block)
        if size > MAX_DOCUMENT_BYTES:
            raise TraceError(
                f"{source.path}: one JSON document of more than {MAX_DOCUMENT_BYTES >> 30} GiB; write one record a line"
            )
        parts.append(block)
    return b"".join(parts).decode("utf-8", "replace").removeprefix("\ufeff")


def documents(content: str) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of JSON values one after another, the elements of outer arrays one by one."""
    decoder = json.JSONDecoder()
    at, number, size = 0, 0, len(content)
    while at < size:
        while at < size and content[at] in " \t\r\n,[]\x1e":
            at += 1
        if at == size:
            return
        number += 1
        try:
            value, at = decoder.raw_decode(content, at)
        except (ValueError, RecursionError):
            yield number, Rejected("bad_json", "not valid JSON")
            following = content.find("\n{", at + 1)
            if following < 0:
                return
            at = following
            continue
        yield number, value


def csv_events(source: Source, needed: Sequence[str] = ()) -> Iterator[Event]:
    """Yield the rows of a CSV whose quoted cells may hold line ends; TraceError if it lacks a needed column."""
    csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.reader(_csv_lines(source), strict=True)
    header = [cell.strip() for cell in next(rows, [])]
    need(source, needed, header)
    number = 0
    while True:
        number += 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield Event(number, number, Rejected("bad_row", "not valid CSV"))
            continue
        if not cells:
            number -= 1
            continue
        if len(cells) != len(header):
            fault = Rejected("bad_row", f"{len(cells)} cells, the header has {len(header)}")
            yield Event(number, number, fault)
            continue
        yield Event(number, number, {key: cell for key, cell in zip(header, cells, strict=True) if cell != ""})


def _csv_lines(source: Source) -> Iterator[str]:
    """Yield decoded lines, line ends kept, bytes that are not UTF-8 replaced."""
    rest, first = b"", True
    for block in blocks(source):
        block = rest + block
        if first:
            block, first = block.removeprefix(b"\xef\xbb\xbf"), False
        cut = block.rfind(b"\n") + 1
        rest = block[cut:]
        yield from io.StringIO(block[:cut].decode("utf-8", "replace").replace("\0", ""), newline="\n")
    if rest:
        yield rest.decode("utf-8", "replace").replace("\0", "")


def need(source: Source, needed: Sequence[str], columns: Sequence[str]) -> None:
    """Raise TraceError naming the columns that a file lacks, with the ones it has."""
    missing = [name for name in needed if name not in columns]
    if missing:
        near = difflib.get_close_matches(missing[0], columns, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TraceError(f"{source.path}: has no column {', '.join(missing)}{hint}")


def sampled(sample: Sample) -> list[Mapping[str, Any]]:
    """Return the first records of a file, envelopes taken off; what its format is told from."""
    found: list[Mapping[str, Any]] = []
    content = sample.head.decode("utf-8", "replace").removeprefix("\ufeff")
    if content.lstrip()[:1] not in ("{", "["):
        return found
    whole = sample.lines and sample.lines[0].lstrip()[:1] == "{" and is_whole(sample.lines[0])
    values = [_line(line) for line in sample.lines[:50]] if whole else [value for _, value in documents(content)][:50]
    for value in values:
        found += [inner for inner in unwrap(value) if isinstance(inner, Mapping)]
    return found


def shows(sample: Sample, *names: str) -> bool:
    """Tell whether a record among the first ones has all these fields."""
    return any(all(name in record for name in names) for record in sampled(sample))


def attempts(frame: pl.DataFrame) -> pl.DataFrame:
    """Number the attempts of a logical call by arrival."""
    known = pl.col("logical_id").is_not_null()
    place = pl.int_range(pl.len()).over("logical_id")
    return frame.with_columns(pl.when(known).then(pl.min_horizontal(place, 32_767)).otherwise(0).alias("attempt"))
