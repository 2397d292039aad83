"""A trace of the user's own, checked: columns first, then every row, one check per line."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import TraceError
from pipeline.ingest import clock, lines, records
from pipeline.ingest.records import MAX_TOKENS
from pipeline.ingest.sources import Source
from pipeline.schema import CAPACITY_CLASSES, PREFIX_KINDS, REQUEST_STATUSES, TRACE, TRACE_VERSION

REQUIRED = ("input_tokens", "output_tokens")
CLOCKS = ("arrival_time", "arrival_us")
COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "max_tokens",
    "prefix_tokens",
)
VALUES = {
    "status": REQUEST_STATUSES,
    "served_from": ("engine", "response_cache"),
    "capacity_class": CAPACITY_CLASSES,
    "prefix_kind": PREFIX_KINDS,
}
LOWEST = {"attempt": 0, "n": 1, "turn": 1, "think_us": 0, "prefix_block_tokens": 1}
DURATIONS = ("obs_ttft_us", "obs_e2e_us", "obs_queue_us")
_INTEGERS = {c.name: 2 ** (c.type.bit_width - 1) for c in TRACE.columns if pa.types.is_integer(c.type)}


@dataclass(frozen=True, slots=True)
class Check:
    """What must not be true of a row: a name, the reason it is rejected for, and the sentence for the user."""

    name: str
    reason: str
    bad: pl.Expr
    detail: str


def _outside(name: str, known: tuple[str, ...]) -> pl.Expr:
    return pl.col(name).is_not_null() & ~pl.col(name).is_in(known)


_prompt, _answer = pl.col("input_tokens"), pl.col("output_tokens")
_hashes, _covered, _block = pl.col("prefix_hashes"), pl.col("prefix_tokens"), pl.col("prefix_block_tokens")
_listed = _hashes.list.len().cast(pl.Int64)
_needed, _CEIL = -(-_covered // _block), "ceil(prefix_tokens / prefix_block_tokens)"
_BAD, _LATE, _STAMP, _NEGATIVE = "bad_row", "missing_arrival", "bad_timestamp", "negative_tokens"

# In the order in which reasons apply; every expression sees the trace's columns with whole numbers as Int64.
CHECKS = (
    *(Check(f"{n}_absurd", _BAD, pl.col(n) > MAX_TOKENS, f"{n} is above {MAX_TOKENS:,}") for n in COUNTS),
    *(Check(f"{n}_unknown", _BAD, _outside(n, v), f"{n} is none of " + ", ".join(v)) for n, v in VALUES.items()),
    *(Check(f"{n}_too_low", _BAD, pl.col(n) < low, f"{n} is below {low}") for n, low in LOWEST.items()),
    Check("hash_null", _BAD, _hashes.list.eval(pl.element().is_null()).list.any(), "prefix_hashes holds a null"),
    Check("no_block_size", _BAD, (_listed > 0) & _block.is_null(), "prefix_hashes without prefix_block_tokens"),
    Check("no_cover", _BAD, (_listed > 0) & _covered.is_null(), "prefix_hashes without prefix_tokens"),
    Check("hash_count", _BAD, (_covered >= 0) & (_listed.fill_null(0) != _needed), f"not {_CEIL} prefix_hashes"),
    Check("cover_too_long", _BAD, _covered > _prompt + _answer.fill_null(0), "prefix_tokens above input + output"),
    Check("cached_too_long", _BAD, pl.col("cached_tokens") > _prompt, "cached_tokens is above input_tokens"),
    Check("arrival_missing", _LATE, pl.col("clock_us").is_null() & ~pl.col("clock_bad"), "no arrival"),
    Check("arrival_no_time", _STAMP, pl.col("clock_us").is_null() & pl.col("clock_bad"), "arrival is no time"),
    *(Check(f"{n}_negative", _NEGATIVE, pl.col(n) < 0, f"{n} is below 0") for n in COUNTS),
)  # fmt: skip


def records_of(source: Source, naive_zone: str) -> pl.DataFrame:
    """Read a canonical Parquet file as records, every fault noted; TraceError if the file as a whole is of no use."""
    frame = _read(source)
    _check_columns(frame, source)
    frame = frame.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("source_row"))
    frame = _with_clock(frame, source, naive_zone)
    frame = frame.with_columns(_number_faults(frame)).with_columns(*_whole_numbers(frame), *_plain(frame))
    frame = frame.with_columns(_defaults(frame, source))
    checks = [(check.bad.fill_null(False), _fault(check)) for check in CHECKS]
    frame = frame.with_columns(records.first_fault(checks, pl.col("fault")))
    negative = [records.flag("negative_duration", pl.any_horizontal(pl.col(DURATIONS) < 0))]
    kept = [pl.when(pl.col(name) >= 0).then(name).alias(name) for name in DURATIONS]
    return frame.with_columns(*negative, *kept).drop("arrival_time", "arrival_us", "clock_bad")


def _read(source: Source) -> pl.DataFrame:
    try:
        schema = pq.read_schema(source.path)
        version = (schema.metadata or {}).get(b"servecast", TRACE_VERSION.encode()).decode(errors="replace")
        if version != TRACE_VERSION:
            raise TraceError(f"{source.path}: is a {version} file; a trace is {TRACE_VERSION}")
        frame = pl.read_parquet(source.path)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(f"{source.path}: is no whole Parquet file ({type(error).__name__})") from error
    if frame.is_empty():
        raise TraceError(f"{source.path}: has columns and no rows")
    return frame


def _check_columns(frame: pl.DataFrame, source: Source) -> None:
    """Raise TraceError on columns that are missing, misspelt or of a type that cannot be read as theirs."""
    known = list(records.TYPES)
    extra = [name for name in frame.columns if name not in known]
    for name in extra:
        near = difflib.get_close_matches(name, [k for k in known if k not in frame.columns], 1, 0.8)
        if near:
            raise TraceError(f"{source.path}: column {name} is unknown; did you mean {near[0]}?")
    if extra:
        source.notes.append(f"{source.name}: {len(extra)} columns that a trace does not have are not read")
    missing = [name for name in REQUIRED if name not in frame.columns]
    if not any(name in frame.columns for name in CLOCKS):
        missing.append(" or ".join(CLOCKS))
    if missing:
        raise TraceError(f"{source.path}: columns missing: {', '.join(missing)}")
    for name in known:
        if name in frame.columns and not _readable(name, frame.schema[name]):
            wanted = TRACE.column(name).type
            raise TraceError(f"{source.path}: column {name} is {frame.schema[name]}; {wanted} is needed")


def _readable(name: str, dtype: pl.DataType) -> bool:
    if dtype == pl.Null:
        return True
    if name == "arrival_time":
        return dtype.base_type() is pl.Datetime
    if name in _INTEGERS:
        return dtype.is_numeric()
    if name == "prefix_hashes":
        return isinstance(dtype, pl.List) and (dtype.inner.is_integer() or dtype.inner == pl.Null)
    if name == "flags":
        return isinstance(dtype, pl.List) and dtype.inner in (pl.String, pl.Null)
    if records.TYPES[name] == pl.Boolean:
        return dtype == pl.Boolean
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def _with_clock(frame: pl.DataFrame, source: Source, naive_zone: str) -> pl.DataFrame:
    """Add clock_us, clock_bad, naive and relative: arrival_time is the clock if it has any value, else arrival_us."""
    null = [pl.lit(None).alias(name) for name in CLOCKS if name not in frame.columns]
    frame = frame.with_columns(null)
    offset = _as_whole(frame, "arrival_us")
    if frame["arrival_time"].null_count() == len(frame):
        bad = pl.col("arrival_us").is_not_null() & offset.is_null()
        return frame.with_columns(offset.alias("clock_us"), bad.alias("clock_bad"), relative=True, naive=False)
    dtype = frame.schema["arrival_time"]
    assert isinstance(dtype, pl.Datetime)
    naive = dtype.time_zone is None
    stamp = pl.col("arrival_time")
    if naive:
        stamp = stamp.dt.replace_time_zone(clock.zone(naive_zone), ambiguous="earliest", non_existent="null")
    ticks_per_us = {"ns": 1000, "us": 1, "ms": 1}[dtype.time_unit]
    time_us = stamp.dt.epoch("ns" if ticks_per_us == 1000 else "us") // ticks_per_us
    bad = pl.col("arrival_time").is_not_null() & time_us.is_null()
    frame = frame.with_columns(time_us.alias("clock_us"), bad.alias("clock_bad"), relative=False, naive=naive)
    apart = frame.select("source_row", (pl.col("clock_us") - offset).alias("start")).drop_nulls()
    wrong = apart.filter(pl.col("start") != pl.col("start").first())
    if len(wrong):
        raise TraceError(
            f"{source.path}: arrival_us and arrival_time disagree in {len(wrong):,} rows, first in row "
            f"{wrong['source_row'][0]:,}; leave one of them out"
        )
    return frame


def _as_whole(frame: pl.DataFrame, name: str) -> pl.Expr:
    """Return a numeric column as Int64; null where it is NaN, infinite, fractional or out of range."""
    column, dtype = pl.col(name), frame.schema[name]
    if dtype == pl.Null:
        return pl.lit(None, pl.Int64)
    if not dtype.is_integer():
        column = pl.when(column == column.floor()).then(column)
    return column.cast(pl.Int64, strict=False)


def _numbers(frame: pl.DataFrame) -> Iterator[tuple[str, int]]:
    for name, limit in _INTEGERS.items():
        if name in frame.columns and name not in CLOCKS:
            yield name, limit


def _number_faults(frame: pl.DataFrame) -> pl.Expr:
    """Return the fault of the first column whose number is none or does not fit."""
    checks = []
    for name, limit in _numbers(frame):
        whole = _as_whole(frame, name)
        checks.append((pl.col(name).is_not_null() & whole.is_null(), lines.fault(_BAD, f"{name} is no whole number")))
        wide = ~whole.is_between(-limit, limit - 1)
        checks.append((wide, lines.fault(_BAD, f"{name} is out of the range of {TRACE.column(name).type}")))
    return records.first_fault(checks)


def _whole_numbers(frame: pl.DataFrame) -> Iterator[pl.Expr]:
    for name, _ in _numbers(frame):
        yield _as_whole(frame, name).alias(name)


def _plain(frame: pl.DataFrame) -> Iterator[pl.Expr]:
    """Turn labels into plain strings, hashes into uint64 (bits kept), and add the columns that are left out."""
    for name, dtype in records.TYPES.items():
        if name in _INTEGERS or name == "arrival_time":
            if name not in frame.columns and name not in CLOCKS:
                yield pl.lit(None, pl.Int64).alias(name)
        elif name not in frame.columns:
            yield pl.lit(None, dtype).alias(name)
        elif name == "prefix_hashes" and frame.schema[name] == pl.List(pl.Int64):
            yield pl.col(name).list.eval(pl.element().reinterpret(signed=False)).alias(name)
        else:
            yield pl.col(name).cast(dtype).alias(name)


def _defaults(frame: pl.DataFrame, source: Source) -> list[pl.Expr]:
    """Fill what the rule gives where a trace leaves it out; see traces/README.md."""
    return [
        pl.col("request_id").fill_null(records.request_id("trace", source)),
        pl.col("attempt").fill_null(0),
        pl.col("n").fill_null(1),
        pl.col("status").fill_null("ok"),
        pl.col("served_from").fill_null("engine"),
        pl.col("prefix_kind").fill_null(pl.when(_listed > 0).then(pl.lit("given_hashes"))),
    ]


def _fault(check: Check) -> pl.Expr:
    return lines.fault(check.reason, check.detail)


def links(frame: pl.DataFrame) -> pl.DataFrame:
    """Flag parents that the trace does not hold; a predecessor it does not hold is dropped and flagged."""
    ids = frame["request_id"].implode()
    parent, after = pl.col("parent_request_id"), pl.col("after_request_id")
    lost = after.is_not_null() & ~after.is_in(ids)
    return frame.with_columns(
        records.flag("parent_outside_window", parent.is_not_null() & ~parent.is_in(ids)),
        records.flag("after_outside_window", lost),
        pl.when(~lost).then(after).alias("after_request_id"),
    )
