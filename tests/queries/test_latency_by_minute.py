from tests.queries.conftest import table


def span(sql):
    sql.rows("run_span", "time_zone origin_time\nEurope/Berlin 2026-07-01T10:00:00+00")


def test_a_request_belongs_to_the_minute_of_its_arrival(sql):
    span(sql)
    sql.rows(
        "request_latency",
        """
        arrival_ns      ttft_ms
        0               1
        59_999_999_999  3
        60_000_000_000  10""",
    )
    assert sql.answer("latency_by_minute") == table("""
        start_s start_time          metric samples p50_ms
        0       2026-07-01T12:00:00 ttft   2       2
        60      2026-07-01T12:01:00 ttft   1       10""")


def test_a_token_gap_belongs_to_the_minute_in_which_it_ends(sql):
    span(sql)
    sql.rows(
        "steps",
        """
        replica step start_ns        duration_ns
        0       0    59_000_000_000  500_000_000
        0       1    59_500_000_000  500_000_000
        0       2    60_000_000_000  100_000_000""",
    )
    sql.rows("requests", "request replica first_token_step finish_step\n0 0 0 2")
    # The first gap ends at 60.0 s sharp: that is minute 1.
    assert sql.answer("latency_by_minute") == table("""
        start_s metric samples mean_ms
        60      itl    2       300""")


def test_stretches_can_be_longer(sql):
    span(sql)
    sql.rows("request_latency", "arrival_ns ttft_ms\n0 1\n119_000_000_000 3\n120_000_000_000 5")
    assert sql.answer("latency_by_minute", minutes=2) == table("""
        start_s metric samples p50_ms
        0       ttft   2       2
        120     ttft   1       5""")
