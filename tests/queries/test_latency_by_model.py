from tests.queries.conftest import table


def test_each_model_has_its_own_percentiles(sql):
    sql.rows(
        "request_latency",
        """
        model ttft_ms
        x      100
        x      300
        y      7
        -      9""",
    )
    assert sql.answer("latency_by_model") == table("""
        model metric samples p50_ms p99_ms
        x      ttft   2       200    298
        y      ttft   1       7      7
        -      ttft   1       9      9""")


def test_token_gaps_belong_to_the_model_of_their_request(sql):
    sql.rows(
        "steps",
        """
        replica step start_ns    duration_ns
        0       0    0           10_000_000
        0       1    10_000_000  20_000_000
        0       2    30_000_000  30_000_000
        0       3    60_000_000  40_000_000""",
    )
    sql.rows(
        "requests",
        """
        request model replica first_token_step finish_step
        0       x      0       0                2
        1       y      0       2                3""",
    )
    assert sql.answer("latency_by_model") == table("""
        model metric samples mean_ms p50_ms max_ms
        x      itl    2       25      25     30
        y      itl    1       40      40     40""")
