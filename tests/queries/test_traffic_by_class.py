from tests.queries.conftest import table


def test_shares_are_of_the_whole_run(sql):
    sql.rows(
        "request_latency",
        """
        class completed ran   input_tokens cached_tokens output_tokens preemptions within_slo ttft_ms
        x      true      true  60           15            20            1           true       100
        x      true      true  40           10            30            0           false      300
        y      true      true  40           -             10            0           true       7
        y      false     false 900          -             0             -           false      -""",
    )
    assert sql.answer("traffic_by_class") == table("""
        class requests request_share completed input_tokens hit_tokens hit_share output_tokens token_share preemptions
        x      2        0.5           2         100          25         0.25      50            0.75        1
        y      2        0.5           1         40           0          0         10            0.25        0""")
    assert sql.answer("traffic_by_class") == table("""
        class ttft_p95_ms slo_share
        x      290         0.5
        y      7           0.5""")
