"""Recorded cases of an engine's scheduler: read from disk, and compared with what a simulator makes of them.

A case is a folder with `config.json` and tables as parquet files, `requests` at least; a bundle holds many small
cases in the same files, told apart by a column `case`. A module of this package speaks for one engine:

    RECOGNISES(config) -> bool   whether a folder's config.json is of this engine
    read(folder) -> list         its cases: `read` of this module, or one that returns a subclass of Case
    twin(case) -> Result         a plain simulator written from the engine's SEMANTICS.md
    kernel(case) -> Result       the compiled policy

A Result is a dict of tables in recorded names, each a dict of columns (arrays or lists), plus `summary`, a dict of what
config.json's own summary says of the run, as `stalled`. Every recorded column is compared except those of `requests`
that went in: those that do not begin with `out_`, and LENGTHS. No value is NONE in a column of integers, "" in one of
text and nan in one of floats. Rows may come in any order; ORDER brings both sides into one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

NONE = -1
ORDER = {"requests": ("req",), "steps": ("step",), "schedule": ("step", "late", "pos", "event", "req")}
LENGTHS = ("out_len", "out_lens")  # how long the answers are, where that is not max_tokens
Table = dict[str, np.ndarray]
Result = dict[str, Any]


class NotACaseError(Exception):
    """A folder does not hold a recorded case."""


@dataclass(frozen=True)
class Case:
    """One recorded case: `config` is its entry of config.json, `tables` what was recorded, by name and column."""

    name: str
    config: dict[str, Any]
    tables: dict[str, Table]

    @property
    def engine(self) -> dict[str, Any]:
        """The engine's settings."""
        return self.config["engine"]

    @property
    def requests(self) -> Table:
        """The table of requests: what went in, and in columns `out_...` what became of it."""
        return self.tables["requests"]


def find(folder: Path) -> list[Path]:
    """Return the folder itself if it holds a case or a bundle, else every case folder in it; NotACaseError if none."""
    if not folder.is_dir():
        raise NotACaseError(f"{folder}: no such folder")
    if (folder / "config.json").is_file():
        return [folder]
    inside = sorted(path.parent for path in folder.glob("*/config.json"))
    if not inside:
        raise NotACaseError(f"{folder}: no config.json in it or in a folder in it")
    return inside


def config(folder: Path) -> dict[str, Any]:
    """Return config.json of a case or a bundle; NotACaseError where there is none or it is not JSON."""
    try:
        return json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise NotACaseError(f"{folder}: {type(error).__name__}: {error}") from error


def read(folder: Path) -> list[Case]:
    """Return the cases of a case folder or of a bundle; NotACaseError where it is neither."""
    return [
        Case(name, entry, {table: in_order(table, columns(held)) for table, held in tables.items()})
        for name, entry, tables in parts(folder)
    ]


def parts(folder: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, pa.Table]]]:
    """Yield name, entry of config.json and tables as they lie on disk, of every case of a folder."""
    whole = config(folder)
    files = sorted(folder.glob("*.parquet"))
    if "requests" not in {path.stem for path in files}:
        raise NotACaseError(f"{folder}: no requests.parquet")
    try:
        tables = {path.stem: pq.read_table(path) for path in files}
        if "cases" not in whole:
            yield folder.name, whole, tables
            return
        by_case = {name: _by_case(table) for name, table in tables.items()}
        shared = {key: value for key, value in whole.items() if key != "cases"}
        for entry in whole["cases"]:
            number = entry["case"]
            part = {name: by_case[name].get(number, tables[name].slice(0, 0).drop_columns(["case"])) for name in tables}
            yield f"{folder.name}[{number}]", shared | entry, part
    except (KeyError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise NotACaseError(f"{folder}: {type(error).__name__}: {error}") from error


def _by_case(table: pa.Table) -> dict[int, pa.Table]:
    """Cut a bundle's table into one table per case, rows in the order that they have."""
    order = np.argsort(table["case"].to_numpy(), kind="stable")
    table = table.take(pa.array(order))
    numbers, starts, counts = np.unique(table["case"].to_numpy(), return_index=True, return_counts=True)
    table = table.drop_columns(["case"])
    return {
        int(number): table.slice(int(start), int(count))
        for number, start, count in zip(numbers, starts, counts, strict=True)
    }


def columns(table: pa.Table) -> Table:
    """Return a table's columns as arrays: int64, float64, bool, or objects (text, and a list for each row)."""
    return {name: _array(table[name].combine_chunks()) for name in table.column_names}


def _array(column: pa.Array) -> np.ndarray:
    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.int64()), NONE).to_numpy()
    if pa.types.is_floating(column.type):
        return pc.fill_null(column, np.nan).to_numpy()
    if pa.types.is_boolean(column.type):
        return column.to_numpy(zero_copy_only=False)
    values = np.empty(len(column), dtype=object)
    values[:] = [_plain(value) for value in column.to_pylist()]
    return values


def _plain(value):
    return "" if value is None else tuple(value) if isinstance(value, list) else value


def differences(case: Case, result: Result) -> list[str]:
    """Return one line per table that differs from the recording, naming its first difference; none if all agree.

    A table that is None in the result is one that the engine does not write; it is not compared.
    """
    found = []
    for name, recorded in case.tables.items():
        if name not in result:
            found.append(f"{name}: none, recorded {rows(recorded)} rows")
        elif result[name] is not None:
            line = _first_difference(name, recorded, in_order(name, result[name]))
            if line:
                found.append(line)
    for name, value in result.get("summary", {}).items():
        if case.config["summary"][name] != value:
            found.append(f"{name}: recorded {case.config['summary'][name]}, got {value}")
    return found


def _first_difference(table: str, recorded: Table, got: Table) -> str:
    """Return where two tables differ first, by row and then by column, or an empty text."""
    if not got:  # a table without rows need not name its columns
        return f"{table}: recorded {rows(recorded)} rows, got none" if rows(recorded) else ""
    compared = [name for name in recorded if table != "requests" or (name.startswith("out_") and name not in LENGTHS)]
    absent = [name for name in compared if name not in got]
    if absent:
        return f"{table}: no column {', '.join(absent)}"
    first: tuple[int, str, Any, Any] | None = None
    for name in compared:
        wanted, values = recorded[name], np.asarray(got[name])
        common = min(len(wanted), len(values))
        a, b = wanted[:common], values[:common]
        unequal = np.flatnonzero((a != b) & ~((a != a) & (b != b)))  # nan is unequal to itself
        if len(unequal) and (first is None or unequal[0] < first[0]):
            first = (int(unequal[0]), name, wanted[unequal[0]], values[unequal[0]])
    if first is not None:
        row, name, wanted, value = first
        place = f"step {recorded['step'][row]}, row {row}" if table != "steps" and "step" in recorded else f"row {row}"
        return f"{table}, {place}, {name}: recorded {wanted}, got {value}"
    if rows(recorded) != len(got[compared[0]]):
        return f"{table}: recorded {rows(recorded)} rows, got {len(got[compared[0]])}"
    return ""


def in_order(name: str, table: Table) -> Table:
    """Bring rows into ORDER, stably; in `schedule` what a step only took out or dropped comes after what it ran."""
    table = {key: np.asarray(values) for key, values in table.items()}
    keys = table | ({"late": table["n_sched"] == 0} if "n_sched" in table else {})
    used = [keys[key] for key in ORDER.get(name, ()) if key in keys]
    if not used:
        return table
    order = np.lexsort(used[::-1])
    return {key: values[order] for key, values in table.items()}


def rows(table: Table) -> int:
    """Return how many rows a table has."""
    return len(next(iter(table.values())))


def by_column(rows: list[dict[str, Any]]) -> dict[str, list]:
    """Turn records into columns."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
