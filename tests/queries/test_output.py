import io
import json

import polars as pl
import pytest
from rich.console import Console

from pipeline.errors import QueryError
from pipeline.query import output, session


@pytest.fixture(scope="module")
def connection():
    return session.open()


def printed(connection, statement: str, kind: str = "table", most: int = 40) -> str:
    stream = io.StringIO()
    output.write(session.run(connection, statement), kind, stream, most)
    return stream.getvalue()


def test_numbers_stand_right_and_unknown_is_blank(connection):
    text = printed(
        connection, "SELECT * FROM (VALUES ('x', 1.5, 10), ('long', NULL, 2)) AS t (tenant, wait_ms, n) ORDER BY n"
    )
    assert [line.rstrip() for line in text.splitlines()] == [
        "tenant  wait_ms   n",
        "long              2",
        "x           1.5  10",
    ]


def test_a_table_says_how_many_rows_it_cut(connection):
    text = printed(connection, "SELECT range AS i FROM range(250000)", most=2)
    assert text.splitlines()[-1].strip() == "249,998 more rows"
    assert "1 more row\n" in printed(connection, "SELECT range AS i FROM range(3)", most=2)
    assert "more" not in printed(connection, "SELECT range AS i FROM range(2)", most=2)


def test_a_table_is_not_wider_than_80_columns_and_names_what_it_left_out(connection):
    columns = ", ".join(f"range AS a_long_name_{i}" for i in range(12))
    text = printed(connection, f"SELECT {columns} FROM range(2)")
    assert max(map(len, text.splitlines())) <= 80
    assert "columns that do not fit: a_long_name_5, a_long_name_6" in text


def test_one_wide_row_stands_upright(connection):
    columns = ", ".join(f"{i} AS a_long_name_{i}" for i in range(12))
    lines = printed(connection, f"SELECT {columns}").splitlines()
    assert len(lines) == 12
    assert lines[11].split() == ["a_long_name_11", "11"]


def test_the_same_run_in_every_row_is_said_once(connection):
    text = printed(connection, "SELECT * FROM (VALUES ('r', 1), ('r', 2)) AS t (run_id, n) ORDER BY n")
    assert [line.split() for line in text.splitlines()] == [["n"], ["1"], ["2"], ["run_id:", "r"]]


def test_no_rows(connection):
    assert printed(connection, "FROM latency").splitlines()[-1].strip() == "no rows"


def test_csv_and_json_hold_everything(connection):
    statement = "SELECT range AS i, NULL::DOUBLE AS x, 'a,b' AS text FROM range(50)"
    lines = printed(connection, statement, "csv").splitlines()
    assert (len(lines), lines[0], lines[50]) == (51, "i,x,text", '49,,"a,b"')
    rows = json.loads(printed(connection, statement, "json"))
    assert (len(rows), rows[49]) == (50, {"i": 49, "x": None, "text": "a,b"})


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_files(connection, tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    output.write(session.run(connection, "SELECT 1 AS a, 'é' AS b"), kind, path)
    read = {"csv": pl.read_csv, "json": pl.read_json, "parquet": pl.read_parquet}[kind]
    assert read(path).rows() == [(1, "é")]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_failure_leaves_no_file(connection, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("before")
    relation = session.run(
        connection, "SELECT (CASE WHEN range = 9 THEN 'a' ELSE '1' END)::INTEGER AS i FROM range(10)"
    )
    with pytest.raises(QueryError, match="Could not convert"):
        output.write(relation, "csv", path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]
    assert path.read_text() == "before"
    with pytest.raises(QueryError, match=r"nowhere/x\.csv: cannot be written: No such file"):
        output.write(session.run(connection, "SELECT 1"), "csv", tmp_path / "nowhere" / "x.csv")


def test_formats_that_make_no_sense(connection):
    with pytest.raises(QueryError, match="format parquet goes to a file"):
        printed(connection, "SELECT 1", "parquet")
    with pytest.raises(QueryError, match="format xml: must be one of table, csv, json, parquet"):
        printed(connection, "SELECT 1", "xml")


def test_large_and_small_numbers_are_readable():
    stream = io.StringIO()
    output.show(["x"], [(123456789.4,), (0.000012345678,), (2.0,), (True,)], Console(file=stream, width=80))
    assert [line.strip() for line in stream.getvalue().splitlines()] == ["x", "123456789", "1.23457e-05", "2", "true"]
