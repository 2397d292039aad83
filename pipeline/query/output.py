"""Results on a terminal and in files: an aligned table, CSV, JSON or Parquet."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.errors import QueryError

if TYPE_CHECKING:
    import duckdb

FORMATS = ("table", "csv", "json", "parquet")
MOST_ROWS = 40


def write(relation: "duckdb.DuckDBPyRelation", kind: str, target: Path | IO[str], most: int = MOST_ROWS) -> None:
    """Write a result to a file or a text stream; `most` limits the rows of a table, nothing else is cut.

    A file appears whole or not at all. Raises QueryError for Parquet to a stream, for a statement that fails while it
    runs, and for a file that cannot be written.
    """
    import duckdb

    if kind not in FORMATS:
        raise QueryError(f"format {kind}: must be one of {', '.join(FORMATS)}")
    try:
        if isinstance(target, Path):
            _to_file(relation, kind, target, most)
        else:
            _to_stream(relation, kind, target, most)
    except duckdb.Error as error:
        raise QueryError(str(error)) from None


def show(columns: list[str], rows: list[tuple], console: Console, cut: int = 0) -> None:
    """Print rows as a table that fits the console; what does not fit is named under it, as is the number of rows `cut`.

    A result of one row that is too wide stands upright, one column per line. A run_id that is the same in all rows
    stands under the table.
    """
    notes = []
    if columns[0] == "run_id" and len(rows) > 1 and len({row[0] for row in rows}) == 1:
        notes.append(f"run_id: {rows[0][0]}")
        columns, rows = columns[1:], [row[1:] for row in rows]
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in texts), 1) for i, name in enumerate(columns)]
    if len(rows) == 1 and sum(widths) + 2 * len(widths) > console.width:
        _show_upright(columns, texts[0], console)
        return
    shown = _fitting(widths, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i in range(shown):
        right = rows and all(isinstance(row[i], int | float | Decimal) or row[i] is None for row in rows)
        table.add_column(Text(columns[i]), justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    for row in texts:
        table.add_row(*(Text(text) for text in row[:shown]))
    console.print(table)
    if not rows:
        notes.append("no rows")
    if cut:
        notes.append(f"{cut:,} more {'row' if cut == 1 else 'rows'}")
    if shown < len(columns):
        notes.append(f"columns that do not fit: {', '.join(columns[shown:])}")
    for note in notes:
        console.print(Text(note, style="dim"))


def _to_file(relation: "duckdb.DuckDBPyRelation", kind: str, target: Path, most: int) -> None:
    part = target.with_name(target.name + ".part")
    try:
        if kind == "parquet":
            relation.pl().write_parquet(part)
        else:
            with part.open("w", encoding="utf-8", newline="") as stream:
                _to_stream(relation, kind, stream, most)
        part.replace(target)
    except OSError as error:
        raise QueryError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def _to_stream(relation: "duckdb.DuckDBPyRelation", kind: str, stream: IO[str], most: int) -> None:
    if kind == "parquet":
        raise QueryError("format parquet goes to a file; name one with -o FILE")
    if kind == "table":
        rows, cut = _first_rows(relation, most)
        width = None if stream.isatty() else 80
        show(relation.columns, rows, Console(file=stream, width=width, highlight=False), cut)
    elif kind == "csv":
        relation.pl().write_csv(stream)
    else:
        stream.write(relation.pl().write_json())
        stream.write("\n")


def _first_rows(relation: "duckdb.DuckDBPyRelation", most: int) -> tuple[list[tuple], int]:
    """Return up to `most` rows, and how many there are beyond them; the result is never in memory as a whole."""
    rows: list[tuple] = []
    count = 0
    for batch in relation.to_arrow_reader(100_000):
        count += batch.num_rows
        head = batch.slice(0, max(most - len(rows), 0))
        rows += zip(*(column.to_pylist() for column in head.columns), strict=True)
    return rows, count - len(rows)


def _fitting(widths: list[int], width: int) -> int:
    """Return how many columns fit beside each other, at least one."""
    used = 0
    for count, column in enumerate(widths):
        used += column + (2 if count else 0)
        if used > width:
            return max(count, 1)
    return len(widths)


def _show_upright(columns: list[str], texts: list[str], console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right" if all(len(text) < 30 for text in texts) else "left")
    for name, text in zip(columns, texts, strict=True):
        table.add_row(Text(name, style="bold"), Text(text))
    console.print(table)


def _text(value: Any) -> str:
    """Return a value as people read it: six significant digits, null as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "milliseconds" if value.microsecond else "seconds")
    return str(value)
