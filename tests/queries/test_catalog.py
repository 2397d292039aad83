import re
import textwrap

import pytest

from pipeline import resources, schema
from pipeline.errors import QueryError
from pipeline.query import catalog, session

GOOD = """\
-- waits: how long?
-- kind:   answer
-- grain:  one row per run
-- needs:  requests
-- params: run VARCHAR = NULL, most INTEGER = 5
-- column: run_id VARCHAR run
-- column: wait_ms DOUBLE wait, milliseconds
-- note:   a rule that
--         takes two lines
SELECT run_id, 1.0::DOUBLE AS wait_ms
FROM requests
WHERE run_id = $run
LIMIT $most;
"""


def parse(tmp_path, text: str = GOOD, name: str = "waits", folder: str = "answers") -> catalog.Query:
    path = tmp_path / folder / f"{name}.sql"
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return catalog.parse(path)


def test_a_header_is_read(tmp_path):
    query = parse(tmp_path)
    assert (query.name, query.kind, query.question, query.grain) == ("waits", "answer", "how long?", "one row per run")
    assert query.needs == ("requests",)
    assert query.params == (catalog.Parameter("run", "VARCHAR", "NULL"), catalog.Parameter("most", "INTEGER", "5"))
    assert query.columns[1] == catalog.Column("wait_ms", "DOUBLE", "wait, milliseconds")
    assert query.notes == ("a rule that takes two lines",)
    macro, view = query.statements()
    assert macro.startswith("CREATE MACRO waits(run VARCHAR := NULL, most INTEGER := 5) AS TABLE\nSELECT")
    assert macro.endswith("WHERE run_id = run\nLIMIT most")
    assert view == "CREATE VIEW waits AS FROM waits()"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("-- waits: how", "-- delays: how", "waits.sql:1: is named delays"),
        ("-- kind:   answer", "-- kind:   fact", "kind is fact"),
        ("-- grain:  one row per run\n", "", "grain and columns are missing"),
        ("-- grain: ", "-- grian: ", "waits.sql:3: unknown key grian"),
        (
            "-- column: wait_ms DOUBLE wait, milliseconds",
            "-- column: wait_ms DOUBLE",
            "waits.sql:7: must be `-- column",
        ),
        ("-- grain:  one row per run", "-- grain:", "waits.sql:3: must be `-- key: value`"),
        (", most INTEGER = 5", "", "parameter most is not declared"),
        ("LIMIT $most", "", "parameter most is never used"),
        ("most INTEGER = 5", "most INTEGER", "every parameter of an answer needs a default"),
        ("most INTEGER = 5", "most = 5", "'most = 5' must be `name TYPE`"),
        (GOOD[GOOD.index("SELECT") :], "", "has no statement"),
        ("-- kind:   answer", "-- kind:   answer\n-- kind:   answer", "waits.sql:3: a second `kind` line"),
    ],
)
def test_a_wrong_header_is_an_error_that_names_the_place(tmp_path, before, after, message):
    assert before in GOOD
    with pytest.raises(QueryError, match=re.escape(message)):
        parse(tmp_path, GOOD.replace(before, after))


def test_needs_must_exist_and_not_run_in_circles(tmp_path):
    with pytest.raises(QueryError, match="needs requests, which is no file"):
        catalog.order([parse(tmp_path)])
    one = parse(tmp_path, GOOD.replace("requests", "delays"))
    other = parse(tmp_path, GOOD.replace("requests", "waits").replace("-- waits", "-- delays"), "delays")
    with pytest.raises(QueryError, match="need each other: "):
        catalog.order([one, other])


QUERIES = catalog.load()


@pytest.mark.parametrize("name", QUERIES)
def test_the_header_tells_the_truth(sql, name):
    query = QUERIES[name]
    if query.returns is None:
        arguments = ", ".join(f"NULL::{p.type}" if p.name != "shares" else "[0.5]" for p in query.params)
        source = name if query.is_view else f"{name}({arguments})"
        described = sql.connection.execute(f"DESCRIBE FROM {source}").fetchall()
        types = [(row[0], row[1].replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")) for row in described]
        assert types == [(column.name, column.type) for column in query.columns]
    assert set(query.needs) == named_in(query)


def named_in(query: catalog.Query) -> set[str]:
    """Return the objects that a statement reads: after FROM or JOIN, or called."""
    text = re.sub(r"'[^']*'|--.*", "", query.body)
    return {
        name
        for name in QUERIES
        if name != query.name
        and (re.search(rf"(?<![\w.]){name}\(", text) or re.search(rf"\b(FROM|JOIN)\s+{name}\b", text))
        and not re.search(rf"(WITH|,)\s+{name} AS \(", text)
    }


def test_sources_hold_every_stored_column():
    for stored in (schema.REQUESTS, schema.STEPS, schema.GAPS, schema.DECISIONS):
        columns = {column.name: column.doc for column in QUERIES[stored.name].columns}
        for column in stored.columns:
            assert columns[column.name] == column.doc


def test_headers_are_loaded_as_comments(sql):
    (row,) = sql.ask(
        "SELECT comment FROM duckdb_columns() WHERE table_name = 'latency' AND column_name = 'p95_ms'"
    ).rows
    assert row["comment"] == "95th percentile, milliseconds"
    (row,) = sql.ask("SELECT comment FROM duckdb_views() WHERE view_name = 'latency'").rows
    assert row["comment"].startswith("how long do callers wait? one row per run and metric.")


def test_the_readme_is_printed_from_the_headers():
    path = resources.folder("queries") / "README.md"
    assert path.read_text(encoding="utf-8") == catalog.readme(), (
        "run: python -m pipeline.query.catalog > queries/README.md"
    )


def test_the_examples_of_the_readme_run(sql):
    examples = re.findall(r"```sql\n(.*?)```", catalog.readme(), re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        assert session.frame(sql.connection, example).is_empty()
