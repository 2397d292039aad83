from tests.queries.conftest import table


def test_arrivals_completions_and_users_of_each_second(sql):
    sql.rows(
        "run_span",
        "first_ns last_ns end_ns origin_time time_zone\n0 1_500_000_000 2_500_000_000 2026-01-01T00:00:00+00 UTC",
    )
    sql.rows(
        "request_latency",
        """
        arrival_ns    first_scheduled_ns finish_ns     completed ran   within_slo input_tokens cached_tokens ttft_ms
        0             0                  1_500_000_000 true      true  true       100          50            10
        500_000_000   1_200_000_000      2_500_000_000 true      true  false      300          0             30
        1_500_000_000 -                  2_000_000_000 false     false false      200          -             -""",
    )
    sql.rows("steps", "replica step start_ns duration_ns sampled\n0 0 0 1_000_000_000 5\n0 1 1_000_000_000 1 2")
    assert sql.answer("load_over_time", points=3) == table("""
        bucket start_s start_time          arrivals_per_s completed_per_s unanswered_per_s
        0      0       2026-01-01T00:00:00 2              0               0
        1      1       2026-01-01T00:00:01 1              1               1
        2      2       2026-01-01T00:00:02 0              1               0""")
    # Users: 1, from 0.5 s 2 (at 1.5 s one leaves as another arrives), from 2 s 1, from 2.5 s none.
    assert sql.answer("load_over_time", points=3) == table("""
        users_mean users_min users_max
        1.5        1         2
        2          2         2
        0.5        1         1""")
    assert sql.answer("load_over_time", points=3) == table("""
        input_tokens_per_s output_tokens_per_s hit_share slo_share ttft_p95_ms
        400                5                   0.5       0.5       29
        200                2                   0         0         -
        0                  0                   -         -         -""")
