"""From the records of a format to the rows of a trace: faults, defaults, order, flags.

A format returns frames with one row per physical record:

    file        Int32          number of the source
    source_row  Int64          line, row or element in that file, from 1
    fault       {reason, detail} or null
    clock_us    Int64          microseconds, since 1970 UTC or on the log's own clock
    flag:NAME   Boolean        one column per flag it may set
    ...                        any columns of the trace; those it leaves out get their defaults
"""

from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa

from pipeline.ingest.lines import FAULT, fault
from pipeline.ingest.sources import Source
from pipeline.schema import REJECTS, TRACE

MAX_TOKENS = 10_000_000
REPLAYED_STATUSES = ("ok", "unknown", "cancelled")
_FLAG = "flag:"
_DEFAULTS = {
    "attempt": pl.lit(0, pl.Int16),
    "n": pl.lit(1, pl.Int16),
    "status": pl.lit("ok"),
    "served_from": pl.lit("engine"),
}


def _polars_type(arrow: pa.DataType) -> pl.DataType:
    if pa.types.is_dictionary(arrow):
        return pl.String()
    if pa.types.is_list(arrow):
        return pl.List(_polars_type(arrow.value_type))
    return pl.DataFrame(pa.table({"x": pa.array([], arrow)})).schema["x"]


TYPES = {column.name: _polars_type(column.type) for column in TRACE.columns}


def count(name: str) -> pl.Expr:
    """Turn the text of a whole number (`36` or `36.0`) into Int64; null where it is empty or no such number."""
    digits = pl.col(name).str.strip_chars().str.extract(r"^([+-]?\d+)(?:\.0*)?$", 1)
    return digits.cast(pl.Int64, strict=False)


def count_faults(names: Sequence[str]) -> Iterable[tuple[pl.Expr, pl.Expr]]:
    """Yield (condition, fault) for text columns of token counts, in the order in which faults apply."""
    for name in names:
        yield pl.col(name).is_not_null() & count(name).is_null(), fault("bad_row", f"{name} is no whole number")
        yield count(name) > MAX_TOKENS, fault("bad_row", f"{name} is above {MAX_TOKENS:,} tokens")


def negative_faults(names: Sequence[str]) -> Iterable[tuple[pl.Expr, pl.Expr]]:
    """Yield (condition, fault) for negative counts."""
    for name in names:
        yield count(name) < 0, fault("negative_tokens", f"{name} is below 0")


def first_fault(checks: Iterable[tuple[pl.Expr, pl.Expr]], known: pl.Expr | None = None) -> pl.Expr:
    """Return the fault of the first condition that holds, after a fault that is known already."""
    faults = [known] if known is not None else []
    faults += [pl.when(condition).then(found) for condition, found in checks]
    return pl.coalesce(*faults, pl.lit(None, FAULT)).alias("fault")


def flag(name: str, condition: pl.Expr) -> pl.Expr:
    """Name a Boolean column that becomes an entry of `flags`."""
    return condition.fill_null(False).alias(_FLAG + name)


def request_id(source_name: str, source: Source) -> pl.Expr:
    """Return ids of the form `<source>:<n>`, n with the file's tag where several files are read."""
    return pl.format(f"{source_name}:{source.tag}{{}}", pl.col("source_row"))


def repeated(records: pl.DataFrame) -> pl.DataFrame:
    """Mark records that repeat a request id: `duplicate` if all columns agree, else the flag `id_repeated`.

    Only records without a fault count; the first one of an id stands.
    """
    sound = records.with_row_index("at").filter(pl.col("fault").is_null())
    sound = sound.filter(pl.col("request_id").is_duplicated())
    content = pl.struct(name for name in records.columns if name not in ("file", "source_row", "locator", "fault"))
    again = sound.filter(~pl.col("request_id").is_first_distinct())["at"].implode()
    same = sound.filter(~content.is_first_distinct())["at"].implode()
    at = pl.int_range(pl.len(), dtype=pl.UInt32)
    copy = pl.when(at.is_in(same)).then(fault("duplicate", "request id and content repeat an earlier record"))
    return records.with_columns(
        pl.coalesce("fault", copy).alias("fault"),
        flag("id_repeated", at.is_in(again) & ~at.is_in(same) & ~_names_call(records)),
    )


def _names_call(records: pl.DataFrame) -> pl.Expr:
    """Tell where the request id is the id of the call: then its attempts share it."""
    if "logical_id" not in records.columns:
        return pl.lit(False)
    return (pl.col("request_id") == pl.col("logical_id")).fill_null(False)


def rejects(records: pl.DataFrame, sources: Sequence[Source], word: str) -> pl.DataFrame:
    """Return the records with a fault as rows of the rejects table, in input order."""
    names = pl.DataFrame(
        {"file": [s.number for s in sources], "source_file": [s.name for s in sources]},
        schema={"file": pl.Int32, "source_file": pl.String},
    )
    if "locator" not in records.columns:
        records = records.with_columns(pl.lit(None, pl.String).alias("locator"))
    bad = records.filter(pl.col("fault").is_not_null()).select("file", "source_row", "locator", "fault").unnest("fault")
    bad = bad.join(names, on="file", how="left", maintain_order="left").sort("file", "source_row", maintain_order=True)
    place = pl.coalesce("locator", pl.format(word + " {}", "source_row"))
    return bad.with_columns(place.alias("locator")).select([column.name for column in REJECTS.columns])


def valid(records: pl.DataFrame) -> pl.DataFrame:
    """Return the records without a fault by arrival, then by place in the input."""
    sound = records.filter(pl.col("fault").is_null()).drop("fault")
    return sound.sort("clock_us", "file", "source_row", maintain_order=True)


def unknown_usage(frame: pl.DataFrame) -> pl.DataFrame:
    """Apply the common rules of usage: nothing at all is unknown, no output on a success is flagged."""
    for name, default in _DEFAULTS.items():
        if name not in frame.columns:
            frame = frame.with_columns(default.alias(name))
    ok = pl.col("status") == "ok"
    stated = pl.col("zero_stated") if "zero_stated" in frame.columns else pl.lit(False)
    ok &= ~stated
    nothing = ok & (pl.col("input_tokens") == 0) & (pl.col("output_tokens") == 0)
    return frame.with_columns(
        flag("usage_missing", nothing),
        flag("zero_output", ok & (pl.col("output_tokens") == 0) & ~nothing),
        *[pl.when(~nothing.fill_null(False)).then(name).alias(name) for name in ("input_tokens", "output_tokens")],
    )


def trace(frame: pl.DataFrame) -> pl.DataFrame:
    """Return exactly the columns of the trace, defaults filled in, with `replayable` and sorted `flags`."""
    named = sorted(name for name in frame.columns if name.startswith(_FLAG))
    flags = pl.concat_list(
        [pl.when(pl.col(name)).then(pl.lit(name.removeprefix(_FLAG))) for name in named] or [pl.lit(None, pl.String)]
    ).list.drop_nulls()
    if "flags" in frame.columns:
        flags = pl.concat_list(pl.col("flags").fill_null([]), flags).list.unique().list.sort()
    runs = (
        pl.col("status").is_in(REPLAYED_STATUSES)
        & (pl.col("served_from") == "engine")
        & (pl.col("input_tokens") > 0)
        & (pl.col("output_tokens") > 0)
    )
    if "replayable" in frame.columns:
        runs &= pl.col("replayable").fill_null(True)
    frame = frame.with_columns(flags.alias("flags"), runs.fill_null(False).alias("replayable"))
    blank = [pl.lit(None, dtype).alias(name) for name, dtype in TYPES.items() if name not in frame.columns]
    return frame.with_columns(blank).select(pl.col(name).cast(dtype) for name, dtype in TYPES.items())
