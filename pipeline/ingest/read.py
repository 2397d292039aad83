"""A trace for replay: checked against the schema, filtered by an SQL condition."""

import difflib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import TraceError
from pipeline.schema import TRACE, TRACE_VERSION, arrow_schema

_COMPARE, _TEXT = r"(?:<=|>=|<>|!=|==|=|<|>)", r"'([^']*)'"
_BETWEEN = re.compile(rf'("?\barrival_time\b"?\s+(?:NOT\s+)?BETWEEN\s+){_TEXT}(\s+AND\s+){_TEXT}', re.IGNORECASE)
_AFTER = re.compile(rf'("?\barrival_time\b"?\s*{_COMPARE}\s*){_TEXT}', re.IGNORECASE)
_BEFORE = re.compile(rf'(?<!TIMESTAMP ){_TEXT}(\s*{_COMPARE}\s*"?\barrival_time\b)', re.IGNORECASE)


def read_trace(path: Path, where: str | None = None) -> pl.LazyFrame:
    """Return the rows of a trace that meet an SQL condition, in order, labels as plain strings.

    where : condition over columns of the trace, as `model = 'm' AND arrival_time >= '2026-01-31T09:00:00Z'`
    arrival_us keeps its zero, the earliest record of the whole trace.
    Raises TraceError if the file is no trace of this version or the condition cannot be used.
    """
    path = Path(path)
    check(path)
    labels = [c.name for c in TRACE.columns if pa.types.is_dictionary(c.type)]
    rows = pl.scan_parquet(path).with_columns(pl.col(labels).cast(pl.String))
    if where is None:
        return rows
    naive = rows.with_columns(pl.col("arrival_time").dt.replace_time_zone(None))
    kept = naive.filter(condition(where, naive))
    return kept.with_columns(pl.col("arrival_time").dt.replace_time_zone("UTC"))


def batches(
    path: Path, columns: Sequence[str], where: str | None = None, rows: int = 1 << 20
) -> Iterator[pl.DataFrame]:
    """Yield some columns of the rows that meet a condition, in order, from at most `rows` rows of the file at a time.

    Labels are plain strings, arrival_time is UTC. Raises TraceError as `read_trace`.
    """
    check(path)
    kept = None
    if where is not None:
        naive = pl.col("arrival_time").dt.replace_time_zone(None)
        kept = condition(where, read_trace(path).with_columns(naive))
    wanted = list(dict.fromkeys([*columns, *(kept.meta.root_names() if kept is not None else [])]))
    try:
        for batch in pq.ParquetFile(path).iter_batches(rows, columns=wanted):
            frame = pl.DataFrame(pl.from_arrow(batch))
            labels = [
                name for name, kind in frame.schema.items() if kind == pl.Categorical or isinstance(kind, pl.Enum)
            ]
            frame = frame.with_columns(pl.col(labels).cast(pl.String))
            if kept is not None:
                times = [pl.col("arrival_time").dt.replace_time_zone(None)] if "arrival_time" in wanted else []
                frame = frame.filter(frame.with_columns(times).select(kept.fill_null(False)).to_series())
            if len(frame):
                yield frame.select(columns)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: cannot be read to its end: {error}") from error


def check(path: Path) -> None:
    """Raise TraceError unless the file is Parquet with the columns and types of the trace."""
    if not path.is_file():
        raise TraceError(f"{path}: no such file")
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path}: is no Parquet file; make a trace of it with `servecast ingest`") from error
    version = (schema.metadata or {}).get(b"servecast", b"").decode(errors="replace")
    if version != TRACE_VERSION or not schema.equals(arrow_schema(TRACE)):
        raise TraceError(
            f"{path}: is no {TRACE_VERSION} file as servecast writes it; run it through `servecast ingest`"
        )


def condition(where: str, rows: pl.LazyFrame) -> pl.Expr:
    """Return the condition as an expression over rows whose arrival_time is UTC without zone.

    Text beside arrival_time is read as ISO 8601 time, UTC where it states no offset.
    Raises TraceError if it names unknown columns, is no condition, or asks for times that the trace does not have.
    """
    try:
        expression = pl.sql_expr(_with_times(where))
        names = expression.meta.root_names()
    except pl.exceptions.PolarsError as error:
        raise TraceError(
            f"--where {where}: is no SQL condition; an example: model = 'm' AND input_tokens > 100"
        ) from error
    _check_names(where, names)
    if "arrival_time" in names and rows.select(pl.col("arrival_time").is_null().all()).collect().item():
        raise TraceError(f"--where {where}: the trace has a relative clock, arrival_time is empty; use arrival_us")
    try:
        dtype = rows.head(0).select(expression.alias("x")).collect().schema["x"]
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"--where {where}: compares values of different kinds") from error
    if dtype != pl.Boolean or not names:
        raise TraceError(f"--where {where}: is no condition on the columns of a row")
    return expression


def _check_names(where: str, names: list[str]) -> None:
    known = [column.name for column in TRACE.columns]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TraceError(f"--where {where}: column {name} is unknown{hint} (known: {', '.join(known)})")


def _with_times(where: str) -> str:
    """Rewrite the text compared with arrival_time as SQL timestamps."""
    where = _BETWEEN.sub(lambda m: f"{m[1]}{_timestamp(m[2])}{m[3]}{_timestamp(m[4])}", where)
    where = _AFTER.sub(lambda m: m[1] + _timestamp(m[2]), where)
    return _BEFORE.sub(lambda m: _timestamp(m[1]) + m[2], where)


def _timestamp(text: str) -> str:
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError as error:
        raise TraceError(f"--where: '{text}' is no time; write 2026-01-31T09:00:00Z") from error
    stamp = stamp.replace(tzinfo=UTC) if stamp.tzinfo is None else stamp.astimezone(UTC)
    return f"TIMESTAMP '{stamp:%Y-%m-%d %H:%M:%S.%f}'"
