"""`sql`: ask one object of queries/ about a few rows that stand in the test, and compare with a table that does too.

    sql.rows("request_latency", '''
        tenant ttft_ms
        x      100''')
    assert sql.answer("latency_by_tenant") == table('''
        tenant metric p50_ms
        x      ttft   100''')

In both, `-` is null. Rows leave out columns that do not matter (null; run_id is a). An expected table names the columns
that it speaks about, and every row of the answer.
"""

import pytest

from pipeline.query import catalog, session


class Expected:
    """A table as a test writes it; equal to an answer whose rows agree in these columns."""

    def __init__(self, text: str):
        header, *lines = [line.split() for line in text.strip().splitlines()]
        self.columns, self.rows = header, lines
        assert all(len(row) == len(header) for row in lines), f"a row of another width than {header}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and self.matches(other)

    def __repr__(self) -> str:
        return "\n" + "\n".join("  ".join(row) for row in [self.columns, *self.rows])

    def matches(self, answer: "Answer") -> bool:
        rows = [[row[name] for name in self.columns] for row in answer.rows]
        return len(rows) == len(self.rows) and all(
            _agree(value, text)
            for got, row in zip(rows, self.rows, strict=True)
            for value, text in zip(got, row, strict=True)
        )


class Answer:
    """Rows that an object returned, in order."""

    def __init__(self, rows: list[dict]):
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expected) and other.matches(self)

    def __repr__(self) -> str:
        return "\n" + "\n".join(str(row) for row in self.rows)


class Sql:
    """A session without runs, whose views can be replaced by rows of a test."""

    def __init__(self) -> None:
        self.connection = session.open()
        session.load_all(self.connection)

    def rows(self, name: str, text: str) -> None:
        """Let the view `name` hold these rows."""
        header, *lines = [line.split() for line in text.strip().splitlines()]
        columns = catalog.load()[name].columns
        unknown = set(header) - {column.name for column in columns}
        assert not unknown, f"{name} has no {unknown}"
        selects = []
        for line in lines:
            given = {"run_id": "a"} | dict(zip(header, line, strict=True))
            selects.append(", ".join(f"{_sql(given.get(c.name, '-'))}::{c.type} AS {c.name}" for c in columns))
        body = " UNION ALL ".join(f"SELECT {select}" for select in selects)
        self.connection.execute(f"CREATE OR REPLACE VIEW {name} AS {body}")

    def answer(self, name: str, **parameters) -> Answer:
        """Ask an answer."""
        return Answer(session.answer(self.connection, name, **parameters).to_dicts())

    def ask(self, statement: str) -> Answer:
        """Ask anything else."""
        return Answer(session.frame(self.connection, statement).to_dicts())


@pytest.fixture(scope="session")
def _loaded():
    return Sql()


@pytest.fixture
def sql(_loaded):
    yield _loaded
    # Give every view that a test replaced back to its file.
    for query in catalog.load().values():
        if query.kind in ("source", "fact"):
            _loaded.connection.execute(query.statements()[0].replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))


def table(text: str) -> Expected:
    return Expected(text)


def _sql(text: str) -> str:
    return "NULL" if text == "-" else "'" + text.replace("_", "" if text.replace("_", "").isdigit() else "_") + "'"


def _agree(value: object, text: str) -> bool:
    if value is None or text == "-":
        return value is None and text == "-"
    if isinstance(value, bool):
        return str(value).lower() == text
    if isinstance(value, int | float):
        return value == pytest.approx(float(text), rel=1e-9, abs=1e-12)
    return str(value).replace(" ", "T") == text
