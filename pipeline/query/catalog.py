"""The files of `queries/`: one object each, with a header that says what it answers.

A header is the run of `--` lines at the top of a file, `-- name: question` first, then `-- key: value`:

    kind    source, fact, macro, answer or check; the folder it lies in agrees
    grain   what a row is; absent from a macro that returns one value
    returns type and meaning of that value; only there
    needs   the other objects that the statement reads, sorted
    params  `name TYPE = default`, separated by commas; the statement writes `$name`
    column  name, type and sentence, one line per column, in order
    note    a rule, one line each

A parameter must not be named as a column of anything the statement reads: DuckDB refuses that.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pipeline import resources
from pipeline.errors import QueryError

FOLDERS = {"source": "sources", "macro": "macros", "fact": "facts", "answer": "answers", "check": "checks"}
_KEYS = ("kind", "grain", "returns", "needs", "params", "column", "note")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PARAMETER = re.compile(r"\$([a-z_][a-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a macro or an answer takes; `default` is SQL text, or None where it must be given."""

    name: str
    type: str
    default: str | None = None

    def declaration(self) -> str:
        """Return it as CREATE MACRO wants it."""
        words = [self.name] if self.type == "ANY" else [self.name, self.type]
        return " ".join(words if self.default is None else [*words, ":=", self.default])


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result."""

    name: str
    type: str
    doc: str


@dataclass(frozen=True, slots=True)
class Query:
    """One file of `queries/`: its header, and the statement under it with `$name` for parameters."""

    name: str
    kind: str
    question: str
    grain: str | None
    returns: str | None
    needs: tuple[str, ...]
    params: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    notes: tuple[str, ...]
    body: str
    path: Path

    @property
    def is_view(self) -> bool:
        """Whether it can be read without parameters."""
        return self.kind != "macro"

    def statements(self) -> list[str]:
        """Return the SQL that creates it: a view, a macro, or for an answer both."""
        if self.kind in ("source", "fact", "check"):
            return [f"CREATE VIEW {self.name} AS\n{self.body}"]
        declared = ", ".join(parameter.declaration() for parameter in self.params)
        body = _PARAMETER.sub(r"\1", self.body)
        if self.returns is not None:
            return [f"CREATE MACRO {self.name}({declared}) AS (\n{body}\n)"]
        macro = f"CREATE MACRO {self.name}({declared}) AS TABLE\n{body}"
        return [macro, f"CREATE VIEW {self.name} AS FROM {self.name}()"] if self.kind == "answer" else [macro]

    def comments(self) -> list[str]:
        """Return the SQL that loads its header as comments."""
        text = _quoted(" ".join([self.question, *([self.grain + "."] if self.grain else []), *self.notes]))
        if self.kind == "macro":
            kind = "MACRO" if self.returns is not None else "MACRO TABLE"
            return [f"COMMENT ON {kind} {self.name} IS {text}"]
        columns = [f"COMMENT ON COLUMN {self.name}.{c.name} IS {_quoted(c.doc)}" for c in self.columns]
        macro = [f"COMMENT ON MACRO TABLE {self.name} IS {text}"] if self.kind == "answer" else []
        return [f"COMMENT ON VIEW {self.name} IS {text}", *macro, *columns]


@cache
def load() -> dict[str, Query]:
    """Return every object of `queries/` by name, each after all that it needs; QueryError if a file is wrong."""
    root = resources.folder("queries")
    return order(parse(path) for folder in FOLDERS.values() for path in sorted((root / folder).glob("*.sql")))


def order(queries: Iterable[Query]) -> dict[str, Query]:
    """Return the queries by name, each after all that it needs; QueryError for a name twice, unknown or in a circle."""
    by_name: dict[str, Query] = {}
    for query in queries:
        if query.name in by_name:
            raise QueryError(f"{query.path}: {query.name} is also the name of {by_name[query.name].path}")
        by_name[query.name] = query
    for query in by_name.values():
        for name in query.needs:
            if name not in by_name:
                raise QueryError(f"{query.path}: needs {name}, which is no file in queries/")
    try:
        names = list(TopologicalSorter({name: query.needs for name, query in by_name.items()}).static_order())
    except CycleError as error:
        raise QueryError(f"queries/: these need each other: {', '.join(error.args[1])}") from None
    return {name: by_name[name] for name in names}


def parse(path: Path) -> Query:
    """Read one file; QueryError names the file and the line that is wrong."""
    lines = path.read_text(encoding="utf-8").splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    if count == 0:
        raise QueryError(f"{path}:1: must begin with `-- {path.stem}: question`")
    name, question = _field(path, 1, lines[0])
    if name != path.stem or not _NAME.fullmatch(name):
        raise QueryError(f"{path}:1: is named {name}; must be the file's name, {path.stem}")
    fields: dict[str, list[tuple[int, str]]] = {key: [] for key in _KEYS}
    for number, line in enumerate(lines[1:count], start=2):
        key, value = _field(path, number, line)
        if key not in fields:
            raise QueryError(f"{path}:{number}: unknown key {key}; known are {', '.join(_KEYS)}")
        fields[key].append((number, value))
    query = Query(
        name=name,
        kind=_one(path, fields, "kind") or "",
        question=question,
        grain=_one(path, fields, "grain"),
        returns=_one(path, fields, "returns"),
        needs=_split(_one(path, fields, "needs")),
        params=tuple(_parameter(path, text) for text in _split(_one(path, fields, "params"))),
        columns=tuple(_column(path, number, text) for number, text in fields["column"]),
        notes=tuple(text for _, text in fields["note"]),
        body="\n".join(lines[count:]).strip().removesuffix(";").rstrip(),
        path=path,
    )
    _check(query)
    return query


def _check(query: Query) -> None:
    """Raise QueryError if header and statement contradict each other."""

    def fail(problem: str) -> None:
        raise QueryError(f"{query.path}: {problem}")

    if FOLDERS.get(query.kind) != query.path.parent.name:
        fail(f"kind is {query.kind or 'missing'}; must be one of {', '.join(FOLDERS)} and agree with the folder")
    if not query.body:
        fail("has no statement")
    if query.returns is not None and (query.kind != "macro" or query.columns or query.grain):
        fail("`returns` is for macros of one value, which have neither grain nor columns")
    if query.returns is None and not (query.grain and query.columns):
        fail("grain and columns are missing")
    if query.kind in ("source", "fact", "check") and query.params:
        fail(f"a {query.kind} takes no parameters")
    if query.kind == "answer" and any(parameter.default is None for parameter in query.params):
        fail("every parameter of an answer needs a default")
    used, declared = set(_PARAMETER.findall(query.body)), {parameter.name for parameter in query.params}
    for name in sorted(used ^ declared):
        fail(f"parameter {name} is " + ("not declared" if name in used else "never used"))


def _field(path: Path, number: int, line: str) -> tuple[str, str]:
    key, colon, value = line.removeprefix("--").partition(":")
    if not colon or not value.strip():
        raise QueryError(f"{path}:{number}: must be `-- key: value`")
    return key.strip(), value.strip()


def _one(path: Path, fields: dict[str, list[tuple[int, str]]], key: str) -> str | None:
    if len(fields[key]) > 1:
        raise QueryError(f"{path}:{fields[key][1][0]}: a second `{key}` line")
    return fields[key][0][1] if fields[key] else None


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _parameter(path: Path, text: str) -> Parameter:
    declared, equals, default = (part.strip() for part in text.partition("="))
    words = declared.split()
    if len(words) != 2 or bool(equals) != bool(default):
        raise QueryError(f"{path}: parameter {text!r} must be `name TYPE` or `name TYPE = default`")
    return Parameter(words[0], words[1], default or None)


def _column(path: Path, number: int, text: str) -> Column:
    words = text.split(None, 2)
    if len(words) != 3:
        raise QueryError(f"{path}:{number}: must be `-- column: name TYPE sentence`")
    return Column(*words)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
