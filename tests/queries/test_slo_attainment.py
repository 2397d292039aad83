from tests.queries.conftest import table


def test_each_limit_counts_its_own_misses(sql):
    sql.rows("run_span", "first_ns last_ns end_ns duration_s replicas\n0 2_000_000_000 4_000_000_000 4 1")
    sql.rows(
        "request_latency",
        """
        class completed ttft_ms tpot_ms e2e_ms ttft_slo_ms tpot_slo_ms e2e_slo_ms within_slo
        chat  true      900     40      5000   1000        50          -          true
        chat  true      1100    60      5000   1000        50          -          false
        chat  false     -       -       -      1000        50          -          false
        bulk  true      9000    70      5000   10000       -           4000       false""",
    )
    assert sql.answer("slo_attainment") == table("""
        class requests within_slo slo_share          ttft_missed tpot_missed e2e_missed unanswered goodput_rps
        bulk  1        0          0                  0           0           1          0          0
        chat  3        1          0.3333333333333333 1           1           0          1          0.25""")
