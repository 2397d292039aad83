"""Text records: CSV lines and JSON lines as columns of text, with one reason per line that cannot be read."""

import json
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest.sources import Source, csv_cells

_MARK = "line number of this line"
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
            names = [cell.strip() for cell in csv_cells(header or "")]
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
        split = pl.col("line").map_elements(csv_cells, pl.List(pl.String))
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
    """Decode all lines at once; where that fails, halve until the lines at fault stand alone.

    The decoder reads the lines as one array, so that broken ones could run into each other: each object is given
    its line number, and the result counts only if every number is where it belongs.
    """
    if len(frame) == 1:
        return _decode_one(frame, dtype)
    marked = pl.concat_str(
        pl.lit(f'{{"{_MARK}":'), pl.col("line_number"), pl.lit(","), pl.col("line").str.strip_chars_start().str.slice(1)
    )
    texts = frame.select(pl.when(pl.col("line").str.contains(r"^\s*\{")).then(marked).otherwise(pl.lit("broken")))
    try:
        records = texts.to_series().str.json_decode(pl.Struct([*dtype.fields, pl.Field(_MARK, pl.Int64)]))
    except pl.exceptions.ComputeError:
        records = pl.Series([], dtype=dtype)
    if len(records) == len(frame) and (records.struct.field(_MARK) == frame["line_number"]).fill_null(False).all():
        plain = records.struct.unnest().drop(_MARK).to_struct("record")
        return frame.with_columns(plain, pl.lit(None, FAULT).alias("fault"))
    half = len(frame) // 2
    return pl.concat([_decode(frame[:half], dtype), _decode(frame[half:], dtype)])


def _decode_one(frame: pl.DataFrame, dtype: pl.Struct) -> pl.DataFrame:
    line = frame["line"]
    try:
        record = line.str.json_decode(dtype).alias("record")
    except pl.exceptions.ComputeError:
        record = pl.Series("record", [], dtype)
    if len(record) == 1 and record.is_not_null().all():
        return frame.with_columns(record, pl.lit(None, FAULT).alias("fault"))
    return frame.with_columns(pl.lit(None, dtype).alias("record"), _json_fault(line[0]).alias("fault"))


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
