import pytest

from tests.queries.conftest import table


def test_edges_are_evenly_spaced_logarithms(sql):
    sql.rows("steps", "replica step duration_ns\n0 0 1_000_000\n0 1 9_999_999\n0 2 100_000_000")
    rows = sql.answer("step_time_histogram", bins=2).rows
    assert [row["steps"] for row in rows] == [2, 1]
    edges = [rows[0]["from_ms"], rows[0]["to_ms"], rows[1]["to_ms"]]
    assert edges == pytest.approx([1, 10, 100], rel=1e-6)
    assert [row["time_share"] for row in rows] == pytest.approx([10.999999 / 110.999999, 100 / 110.999999])


def test_equal_steps_fill_one_bin(sql):
    sql.rows("steps", "replica step duration_ns\n0 0 5_000_000\n0 1 5_000_000")
    assert sql.answer("step_time_histogram") == table("steps step_share\n2 1")
