import pytest


def test_there_is_a_curve_for_each_side(sql):
    sql.rows("observed_latency", "request metric observed_ms predicted_ms\n0 ttft 0 50\n1 ttft 100 70")
    rows = sql.answer("observed_cdf").rows
    curves = {(row["side"], row["share"]): row["value_ms"] for row in rows}
    assert len(rows) == len(curves) == 2 * 106
    assert [curves["observed", share] for share in (0.0, 0.5, 1.0)] == pytest.approx([0, 50, 100])
    assert [curves["predicted", share] for share in (0.0, 0.5, 1.0)] == pytest.approx([50, 60, 70])
