import pytest


def test_the_curve_goes_from_least_to_most(sql):
    sql.rows("request_latency", "ttft_ms\n0\n100")
    rows = sql.answer("latency_cdf").rows
    curve = {row["share"]: row["value_ms"] for row in rows}
    assert len(rows) == len(curve) == 106
    assert {row["metric"] for row in rows} == {"ttft"}
    assert [curve[0.0], curve[0.25], curve[0.5], curve[1.0]] == pytest.approx([0, 25, 50, 100])


def test_token_gaps_have_a_curve(sql):
    sql.rows(
        "steps",
        """
        replica step start_ns    duration_ns
        0       0    0           10_000_000
        0       1    10_000_000  20_000_000
        0       2    30_000_000  30_000_000
        0       3    60_000_000  40_000_000""",
    )
    sql.rows("requests", "request replica first_token_step finish_step\n0 0 0 3")
    curve = {row["share"]: row["value_ms"] for row in sql.answer("latency_cdf").rows if row["metric"] == "itl"}
    assert [curve[0.0], curve[0.25], curve[0.5], curve[1.0]] == pytest.approx([20, 25, 30, 40])
