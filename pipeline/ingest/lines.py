"""Text records: CSV lines and JSON lines as columns of text, with one reason per line that cannot be read."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest.sources import Source

FAULT = pl.Struct({"reason": pl.String, "detail": pl.String})


def fault(reason: str, detail: str) -> pl.Expr:
    """Return the literal that marks a record as rejected."""
    return pl.struct(pl.lit(reason).alias("reason"), pl.lit(detail).alias("detail"))


def csv_batches(batches: Iterator[pl.DataFrame], wanted: Sequence[str], source: Source) -> Iterator[pl.DataFrame]:
    """Yield frames (source_row, fault, the wanted columns as text); rows are counted from the line after the header.

    Raises TraceError if there is no row after the header.
    """
    names: list[str] | None = None
    rows = 0
    for frame in batches:
        if names is None:
            header_number, header = frame.row(0)
            names = [cell.strip() for cell in _quoted_cells(header or "")]
            frame = frame[1:]
            unread = [name for name in names if name not in wanted]
            if unread:
                source.notes.append(f"{source.name}: {len(unread)} further columns are not read")
        rows += len(frame)
        columns = csv_columns(frame, names, wanted)
        yield columns.rename({"line_number": "source_row"}).with_columns(pl.col("source_row") - header_number)
    if rows == 0:
        raise TraceError(f"{source.path}: has a header and no rows")


def csv_columns(frame: pl.DataFrame, names: Sequence[str], wanted: Sequence[str]) -> pl.DataFrame:
    """Split `line` at its commas and return the wanted columns as text (empty cells null) beside `fault`.

    names  : the header of the file
    wanted : names of the columns to keep; one that the header lacks is null
    """
    cells = pl.col("line").str.split(",")
    if frame["line"].str.contains('"', literal=True).any():
        quoted = pl.col("line").str.contains('"', literal=True)
        split = pl.col("line").map_elements(_quoted_cells, pl.List(pl.String))
        cells = pl.when(quoted).then(split).otherwise(cells)
    frame = frame.with_columns(cells.alias("cells"))
    width = pl.col("cells").list.len()
    counted = pl.format(f"{{}} cells, the header has {len(names)}", width)
    frame = frame.with_columns(
        pl.when(pl.col("line").is_null())
        .then(fault("bad_row", "not valid UTF-8"))
        .when(width != len(names))
        .then(pl.struct(pl.lit("bad_row").alias("reason"), counted.alias("detail")))
        .otherwise(pl.lit(None, FAULT))
        .alias("fault")
    )
    return frame.select("line_number", "fault", *[_cell(name, names) for name in wanted])


def _cell(name: str, names: Sequence[str]) -> pl.Expr:
    if name not in names:
        return pl.lit(None, pl.String).alias(name)
    text = pl.col("cells").list.get(names.index(name), null_on_oob=True).str.strip_chars()
    return pl.when(text != "").then(text).alias(name)


def _quoted_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def json_columns(frame: pl.DataFrame, fields: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Decode `line` as a JSON object and return its fields beside `fault` and the raw `line`.

    fields : name -> String for a scalar (numbers become their text) or List(String) for an array of scalars
    """
    decoded = _decode(frame.filter(pl.col("line").is_not_null()), pl.Struct(fields))
    missing = frame.filter(pl.col("line").is_null()).with_columns(
        pl.lit(None, pl.Struct(fields)).alias("record"), fault("bad_json", "not valid UTF-8").alias("fault")
    )
    return pl.concat([decoded, missing]).sort("line_number").unnest("record")


def _decode(frame: pl.DataFrame, dtype: pl.Struct) -> pl.DataFrame:
    """Decode all lines at once; where that fails, halve until the lines at fault stand alone."""
    try:
        record = frame["line"].str.json_decode(dtype).alias("record")
    except pl.exceptions.ComputeError:
        if len(frame) > 1:
            half = len(frame) // 2
            return pl.concat([_decode(frame[:half], dtype), _decode(frame[half:], dtype)])
        return frame.with_columns(pl.lit(None, dtype).alias("record"), _json_fault(frame["line"][0]).alias("fault"))
    no_object = pl.when(pl.col("record").is_null()).then(fault("bad_json", "not a JSON object"))
    return frame.with_columns(record).with_columns(no_object.otherwise(pl.lit(None, FAULT)).alias("fault"))


def _json_fault(line: str) -> pl.Expr:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return fault("bad_json", "not valid JSON")
    if not isinstance(value, dict):
        return fault("bad_json", "not a JSON object")
    return fault("bad_row", "a field holds NaN or a value of another kind than expected")


def json_number(name: str) -> pl.Expr:
    """Return the digits of a number exactly as the line writes them.

    A quote inside a JSON string is always escaped, so the pattern finds keys alone.
    """
    raw = pl.col("line").str.extract(r'[{,]\s*"' + name + r'"\s*:\s*"?([+-]?\d[\d.eE+-]*)', 1)
    return pl.when(pl.col(name).is_not_null()).then(pl.coalesce(raw, pl.col(name)))
