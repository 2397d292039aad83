"""A DuckDB connection with runs loaded: their tables, the views and macros of `queries/`, their headers as comments.

Stored tables are views over the runs' Parquet files with the run's id in front, in the schema `stored`; nothing is
read until a statement asks for it. An answer is a view over all loaded runs, `FROM latency`, and a table macro with
named parameters, `FROM latency(run := '0123456789abcdef')`.

DuckDB checks a view when it is created, which takes a second for all of `queries/`. So an object is created when a
statement first names it, and all of them, with their comments, for a statement that asks what there is.
"""

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from pipeline import schema
from pipeline.errors import QueryError, RunError
from pipeline.query import catalog, purchases, runs
from pipeline.query.purchases import Purchase
from pipeline.query.runs import Run

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

# Facts that most answers read: where answers are asked one after the other, they are computed once.
_KEPT = ("request_latency", "run_gaps", "run_latency", "run_span")
_MEMORY = "1GB"  # beyond it, DuckDB goes on in files of its own
_PARTS = ("object", "call", "comment")
_STORED = (schema.REQUESTS, schema.STEPS, schema.GAPS, schema.DECISIONS)
_NAME = re.compile(r"([a-z_][a-z0-9_]*)(\s*\()?")
# Words of statements that ask what objects there are.
_LISTING = re.compile(r"show|pragma|describe|summarize|export|information_schema|pg_catalog|sqlite_master|duckdb_\w+")


def open(
    folders: Iterable[Path | str] = (), threads: int | None = None, keep: bool = False
) -> duckdb.DuckDBPyConnection:
    """Return a connection with these folders of runs and purchases loaded; without any, all tables are empty.

    keep : compute facts that most answers read only once, and hold them in memory; for many answers in a row

    Raises RunError for a folder that is missing, unfinished, of another version, or named twice.
    """
    paths = [Path(folder) for folder in folders]
    loaded = [runs.read(path) for path in paths if not purchases.is_one(path)]
    bought = [purchases.read(path) for path in paths if purchases.is_one(path)]
    seen: dict[str, Path] = {}
    for run in loaded:
        if run.run_id in seen:
            raise RunError(f"{run.folder}: is the same run as {seen[run.run_id]}, {run.run_id}; name it once")
        seen[run.run_id] = run.folder
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "temp_directory": str(Path(tempfile.gettempdir(), f"servecast-{os.getpid()}")),
    }
    if threads is not None:
        limits["threads"] = threads
    connection = duckdb.connect(config=limits)
    # Instants would otherwise be printed in the zone of the machine; and a check looks at the order of rows.
    connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true; CREATE SCHEMA stored")
    connection.execute("SET enable_progress_bar = false")  # it would stand among the results
    for table in _STORED:
        _store(connection, table, loaded)
    _insert(connection, "runs", [(n, t) for n, t, _ in runs.RUN_COLUMNS], [run.row() for run in loaded])
    _insert(connection, "slo", runs.SLO_COLUMNS, [row for run in loaded for row in run.slo_rows()])
    _insert(connection, "run_config", runs.CONFIG_COLUMNS, [row for run in loaded for row in run.config_rows()])
    _insert(connection, "run_counts", runs.COUNT_COLUMNS, [row for run in loaded for row in run.count_rows()])
    for table in schema.PURCHASE_TABLES:
        _store_purchases(connection, table, bought)
    _insert(connection, "purchases", [(n, t) for n, t, _ in purchases.COLUMNS], [one.row() for one in bought])
    gpu_rows = [row for one in bought for row in one.gpu_rows()]
    _insert(connection, "purchase_gpu_terms", purchases.GPU_COLUMNS, gpu_rows)
    connection.execute("CREATE TABLE stored.loaded (name VARCHAR, part VARCHAR)")
    if keep:
        _note(connection, [("", "keep")])
    return connection


def load_all(connection: duckdb.DuckDBPyConnection) -> None:
    """Create all of `queries/` as far as it is not there, and load the headers as comments."""
    _load(connection, dict.fromkeys(catalog.load(), _PARTS))


def run(connection: duckdb.DuckDBPyConnection, statement: str) -> duckdb.DuckDBPyRelation | None:
    """Run a statement and return its result, None if it has none; QueryError with DuckDB's message and position."""
    try:
        _load_named(connection, statement)
        try:
            return connection.sql(statement)
        except duckdb.CatalogException:
            if len(connection.extract_statements(statement)) > 1:
                raise
            load_all(connection)  # only then does DuckDB suggest the right name
            return connection.sql(statement)
    except duckdb.Error as error:
        raise QueryError(_with_position(connection, statement, error)) from None


def rows(connection: duckdb.DuckDBPyConnection, statement: str) -> list[tuple]:
    """Run a statement and return the rows of its result; QueryError as `run`."""
    return _fetched(run(connection, statement), lambda relation: relation.fetchall())


def frame(connection: duckdb.DuckDBPyConnection, statement: str) -> "pl.DataFrame":
    """Run a statement that has a result and return it as a polars frame; QueryError as `run`."""
    return _fetched(run(connection, statement), lambda relation: relation.pl())


def answer(connection: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> "pl.DataFrame":
    """Return an answer as a polars frame; parameters left out keep their defaults, as in its header.

    Raises QueryError for an unknown answer or parameter, naming those there are.
    """
    return _fetched(_ask(connection, name, parameters), lambda relation: relation.pl())


def answer_rows(connection: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> list[dict[str, Any]]:
    """Return an answer as rows, NaN as None, without loading polars; parameters and errors as `answer`."""
    relation = _ask(connection, name, parameters)
    found = _fetched(relation, lambda relation: relation.fetchall())
    # NaN is the only value that differs from itself.
    return [{k: v if v == v else None for k, v in zip(relation.columns, row, strict=True)} for row in found]


def _ask(connection: duckdb.DuckDBPyConnection, name: str, parameters: dict[str, Any]) -> duckdb.DuckDBPyRelation:
    query = catalog.load().get(name)
    if query is None or query.kind != "answer":
        raise QueryError(f"no answer is named {name}; there are {', '.join(answers())}")
    known = [parameter.name for parameter in query.params]
    for parameter in parameters:
        if parameter not in known:
            raise QueryError(f"answer {name} has no parameter {parameter}; it takes {', '.join(known)}")
    arguments = ", ".join(f"{parameter} := {_literal(value)}" for parameter, value in parameters.items())
    try:
        _load(connection, {name: ("object",)})
        return connection.sql(f"FROM {name}({arguments})")
    except duckdb.Error as error:
        raise QueryError(str(error)) from None


def _fetched(relation: duckdb.DuckDBPyRelation | None, fetch: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
    if relation is None:
        raise QueryError("the statement has no result")
    try:
        return fetch(relation)
    except duckdb.Error as error:
        raise QueryError(str(error)) from None


def answers() -> list[str]:
    """Return the names of all answers, sorted."""
    return sorted(query.name for query in catalog.load().values() if query.kind == "answer")


def failed_checks(connection: duckdb.DuckDBPyConnection) -> "dict[str, pl.DataFrame]":
    """Run every check on the loaded runs and return, by name, the rows of those that found something."""
    names = sorted(query.name for query in catalog.load().values() if query.kind == "check")
    found = {name: frame(connection, f"FROM {name}") for name in names}
    return {name: rows for name, rows in found.items() if len(rows)}


def _with_position(connection: duckdb.DuckDBPyConnection, statement: str, error: duckdb.Error) -> str:
    """Return DuckDB's message with line and column, which `sql` leaves out of some and `execute` does not."""
    if "LINE " in str(error) or len(connection.extract_statements(statement)) != 1:
        return str(error)
    try:
        connection.execute(statement)
    except duckdb.Error as again:
        return str(again)
    return str(error)


def _store(connection: duckdb.DuckDBPyConnection, table: schema.Table, loaded: list[Run]) -> None:
    """Create stored.<table> over the files of all runs, each row with its run's id."""
    parts = [_empty(connection, table)]
    for one in loaded:
        files = one.files(table.name)
        if files:
            names = ", ".join(_literal(str(path)) for path in files)
            hive = "hive_partitioning = true, hive_types = {'replica': SMALLINT}" if table is schema.STEPS else ""
            source = f"read_parquet([{names}]{', ' + hive if hive else ', hive_partitioning = false'})"
            parts.append(f"SELECT {_literal(one.run_id)} AS run_id, {_columns(table)} FROM {source}")
    try:
        connection.execute(f"CREATE VIEW stored.{table.name} AS\n" + "\nUNION ALL\n".join(parts))
    except duckdb.Error as error:
        folders = ", ".join(str(one.folder) for one in loaded)
        raise RunError(f"{table.name} of {folders} cannot be read: {error}") from None


def _store_purchases(connection: duckdb.DuckDBPyConnection, table: schema.Table, bought: list[Purchase]) -> None:
    """Create stored.<table> over the files of all purchases, each row with its purchase's id."""
    parts = [_empty(connection, table, "purchase_id")]
    for one in bought:
        source = f"read_parquet({_literal(str(one.file(table.name)))}, hive_partitioning = false)"
        parts.append(f"SELECT {_literal(one.purchase_id)} AS purchase_id, {_columns(table)} FROM {source}")
    try:
        connection.execute(f"CREATE VIEW stored.{table.name} AS\n" + "\nUNION ALL\n".join(parts))
    except duckdb.Error as error:
        raise RunError(
            f"{table.name} of {', '.join(str(one.folder) for one in bought)} cannot be read: {error}"
        ) from None


def _empty(connection: duckdb.DuckDBPyConnection, table: schema.Table, key: str = "run_id") -> str:
    """Create a table with the columns of `table` and no rows, and return the SELECT that reads it."""
    fields = [pa.field(key, pa.string())]
    fields += [pa.field("replica", pa.int16())] if table is schema.STEPS else []
    rows = pa.schema([*fields, *schema.arrow_schema(table)]).empty_table()
    connection.register("empty_rows", rows)
    connection.execute(f"CREATE TABLE stored.no_{table.name} AS SELECT {key}, {_columns(table)} FROM empty_rows")
    connection.unregister("empty_rows")
    return f"SELECT * FROM stored.no_{table.name}"


def _columns(table: schema.Table) -> str:
    names = [column.name for column in table.columns]
    texts = {column.name for column in table.columns if pa.types.is_dictionary(column.type)}
    extra = ["replica"] if table is schema.STEPS else []
    # A label arrives as ENUM from Arrow and as VARCHAR from Parquet.
    return ", ".join(f'"{name}"::VARCHAR AS "{name}"' if name in texts else f'"{name}"' for name in [*extra, *names])


def _insert(connection: duckdb.DuckDBPyConnection, name: str, columns: Iterable[tuple[str, str]], rows: list) -> None:
    declared = ", ".join(f'"{column}" {kind}' for column, kind in columns)
    connection.execute(f"CREATE TABLE stored.{name} ({declared})")
    if rows:  # all in one statement: each takes a millisecond
        places = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        connection.execute(f"INSERT INTO stored.{name} VALUES {places}", [value for row in rows for value in row])


def _load_named(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Create what a statement names; all there is if it asks for that."""
    named: dict[str, set[str]] = {}
    for name, bracket in _NAME.findall(statement.lower()):
        if _LISTING.fullmatch(name):
            load_all(connection)
            return
        if name in catalog.load():
            named.setdefault(name, {"object"}).add("object" if bracket else "call")
    if named:
        _load(connection, named)


def _load(connection: duckdb.DuckDBPyConnection, names: Mapping[str, Collection[str]]) -> None:
    """Create objects and all that they need, as far as they are not there.

    names : what to create of each: the `object`, the `call` of an answer without parameters, the `comment`
    """
    there = set(connection.execute("SELECT name, part FROM stored.loaded").fetchall())
    wanted = dict(names)
    for query in reversed(catalog.load().values()):
        if query.name in wanted:
            wanted |= {need: ("object",) for need in query.needs if need not in wanted}
    missing = [
        (query, part)
        for query in catalog.load().values()
        for part in _PARTS
        if part in wanted.get(query.name, ()) and (query.name, part) not in there
    ]
    for query, part in missing:
        _create(connection, query, part, keep=("", "keep") in there)
    _note(connection, [(query.name, part) for query, part in missing])


def _create(connection: duckdb.DuckDBPyConnection, query: catalog.Query, part: str, keep: bool) -> None:
    if part == "comment":
        statements = query.comments()
    elif part == "call":
        statements = query.statements()[1:]
    elif keep and query.name in _KEPT:
        statements = [f"CREATE TABLE {query.name} AS\n{query.body}"]
    else:
        statements = query.statements()[:1]
    try:
        for statement in statements:
            connection.execute(statement)
    except duckdb.Error as error:
        raise QueryError(f"{query.path}: {error}") from None


def _note(connection: duckdb.DuckDBPyConnection, rows: list[tuple[str, str]]) -> None:
    if rows:
        values = ", ".join(f"({_literal(name)}, {_literal(part)})" for name, part in rows)
        connection.execute(f"INSERT INTO stored.loaded VALUES {values}")


def _literal(value: Any) -> str:
    """Return a Python value as a SQL literal: text, number, truth value or None."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value).upper()
    return "'" + str(value).replace("'", "''") + "'"
