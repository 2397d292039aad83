import io

import pytest

from pipeline.query import prompt, session


@pytest.fixture(scope="module")
def connection():
    return session.open()


def talk(connection, text: str) -> str:
    out = io.StringIO()
    prompt.Prompt(connection, io.StringIO(text), out).cmdloop()
    return out.getvalue()


def test_a_statement_goes_on_to_its_semicolon(connection):
    assert talk(connection, "SELECT 1 AS a,\n\n  2 AS b;\n").split() == ["a", "b", "1", "2"]


def test_an_error_does_not_end_it(connection):
    text = talk(connection, "SELECT nothing;\nSELECT 5 AS five;\n")
    assert 'Referenced column "nothing" was not found' in text
    assert "LINE 1: SELECT nothing;" in text
    assert text.split()[-2:] == ["five", "5"]


def test_quit_ends_it_and_so_does_the_end_of_input(connection):
    assert talk(connection, ".quit\nSELECT 1 AS a;\n") == ""
    assert talk(connection, "") == ""
    assert talk(connection, "SELECT 7 AS seven").split() == ["seven", "7"]


def test_an_empty_line_repeats_nothing(connection):
    assert talk(connection, "SELECT 1 AS a;\n\n\n").split() == ["a", "1"]


def test_dot_words(connection):
    text = talk(connection, ".tables\n")
    assert "  latency_by_tenant        how long do callers wait, by tenant?\n" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "p95_ms                   DOUBLE      95th percentile, milliseconds" in talk(connection, ".about latency\n")
    assert "nothing: unknown" in talk(connection, ".about nothing\n")
    assert ".quit" in talk(connection, ".help\n")
    assert ".tabels: unknown; .help lists" in talk(connection, ".tabels\n")


def test_a_dot_inside_a_statement_is_sql(connection):
    assert talk(connection, "SELECT\n.5 AS half;\n").split() == ["half", "0.5"]


def test_names_complete(connection):
    found = prompt.Prompt(connection, io.StringIO(), io.StringIO()).completenames("latency_by")
    assert found == ["latency_by_class", "latency_by_minute", "latency_by_model", "latency_by_tenant"]
