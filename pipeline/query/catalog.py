"""The files of `queries/`: one object each, with a header that says what it answers.

A header is the run of `--` lines at the top of a file, `-- name: question` first, then `-- key: value`:

    kind    source, fact, macro, answer or check; the folder it lies in agrees
    grain   what a row is; absent from a macro that returns one value
    returns type and meaning of that value; only there
    needs   the other objects that the statement reads, sorted
    params  `name TYPE = default`, separated by commas; the statement writes `$name`
    column  name, type and sentence, one line per column, in order
    note    a rule

A line that is indented further goes on with the value above it. A parameter must not be named as a column of
anything the statement reads: DuckDB refuses that.
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


_INTRO = """\
# Queries

Every number of a report is an answer of this folder; none is computed anywhere else. `servecast sql RUN` loads them
all into DuckDB, together with the tables of the runs that are named.

An answer without parameters covers all loaded runs, one after the other: `FROM latency`. With parameters it is called
like a function: `FROM latency(run := '0123456789abcdef')`. Every result has `run_id` in front. Shares are between 0
and 1; other units end the name. Unknown is null, never zero.

One object per file. `sources/` are the stored tables, `facts/` what is derived from them at one grain, `macros/` what
several objects compute alike, `answers/` what a reader asks, `checks/` what must return no rows. A metric is defined in
one file. This page is printed from the headers of the files: `python -m pipeline.query.catalog > queries/README.md`.

## Questions of your own

The ten slowest first tokens, and why they waited:

```sql
SELECT request_id, tenant, input_tokens, ttft_ms, queue_ms, preemptions
FROM request_latency
ORDER BY ttft_ms DESC NULLS LAST
LIMIT 10;
```

Does a long prompt break the promise?

```sql
SELECT input_tokens // 1000 * 1000 AS prompt_tokens, COUNT(*) AS requests, AVG(within_slo::INTEGER) AS slo_share
FROM request_latency
GROUP BY ALL
ORDER BY prompt_tokens;
```

Two runs side by side:

```sql
SELECT run_id, gpu, max_num_seqs, ttft_p95_ms, tpot_p95_ms, kv_peak_share, slo_share
FROM headline
JOIN runs USING (run_id)
ORDER BY ttft_p95_ms;
```

Steps in which nobody got a new token although requests were waiting:

```sql
SELECT run_id, replica, COUNT(*) AS steps, SUM(duration_ns) / 1e9 AS seconds
FROM steps
WHERE waiting > 0 AND sampled = 0
GROUP BY ALL;
```

The log's own waiting times beside the replay's, for logs that have them:

```sql
SELECT run_id, QUANTILE_CONT(obs_ttft_us / 1e3, 0.95) AS logged_ms, QUANTILE_CONT(ttft_ms, 0.95) AS replayed_ms
FROM requests
JOIN request_latency USING (run_id, request)
WHERE obs_ttft_us IS NOT NULL
GROUP BY run_id;
```
"""


@cache
def load() -> dict[str, Query]:
    """Return every object of `queries/` by name, each after all that it needs; QueryError if a file is wrong."""
    root = resources.folder("queries")
    return order(parse(path) for folder in FOLDERS.values() for path in sorted((root / folder).glob("*.sql")))


def readme() -> str:
    """Return the text of queries/README.md: introduction, then every object by kind."""
    titles = {"answer": "Answers", "fact": "Facts", "source": "Tables", "check": "Checks", "macro": "Macros"}
    parts = [_INTRO]
    for kind, title in titles.items():
        parts.append(f"\n## {title}\n")
        parts += [_section(query) for _, query in sorted(load().items()) if query.kind == kind]
    return "".join(parts)


def _section(query: Query) -> str:
    lines = [f"\n### {query.name}\n", query.question[0].upper() + query.question[1:]]
    lines[-1] += f" {_sentence(query.grain or query.returns or '')}"
    if query.params:
        lines.append("\nParameters: " + ", ".join(f"`{parameter.declaration()}`" for parameter in query.params) + ".")
    if query.columns:
        lines += ["\n| column | type | |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {c.type} | {c.doc.replace('|', '&#124;')} |" for c in query.columns]
    if query.notes:
        lines += ["", *(f"- {_sentence(note)}" for note in query.notes)]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


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
    for number, line in _joined(lines[1:count]):
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


def _joined(lines: list[str]) -> list[tuple[int, str]]:
    """Return header lines with their numbers, from 2; a line indented under another one goes on with its value."""
    joined: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=2):
        if joined and line.startswith("--      "):
            joined[-1] = (joined[-1][0], f"{joined[-1][1]} {line[2:].strip()}")
        else:
            joined.append((number, line))
    return joined


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


if __name__ == "__main__":
    print(readme(), end="")
