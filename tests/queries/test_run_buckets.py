from tests.queries.conftest import table


def test_widths_are_round_and_few_enough(sql):
    # A bucket more may be needed where the run does not begin on an edge; equal spans must not need one more.
    assert sql.ask("""
        SELECT span_s, bucket_width_ns((span_s * 1e9)::BIGINT, 300) / 1e9 AS width_s
        FROM (VALUES (0.0), (0.25), (299), (300), (301), (3600), (86400), (864000), (1e8)) AS spans (span_s)
        ORDER BY span_s""") == table("""
        span_s width_s
        0      0.001
        0.25   0.001
        299    1
        300    1
        301    2
        3600   15
        86400  300
        864000 3600
        1e8    345600""")


def test_buckets_begin_where_the_run_does(sql):
    sql.rows(
        "run_span",
        """
        first_ns      last_ns       end_ns        origin_time            time_zone
        7_500_000_000 9_000_000_000 9_200_000_000 2026-07-01T22:00:00+00 Asia/Tokyo""",
    )
    assert sql.ask("FROM run_buckets(NULL, 2) ORDER BY bucket") == table("""
        bucket start_s width_s start_time
        7      7       1       2026-07-02T07:00:07
        8      8       1       2026-07-02T07:00:08
        9      9       1       2026-07-02T07:00:09""")


def test_a_run_of_one_moment_has_one_bucket(sql):
    sql.rows("run_span", "first_ns last_ns end_ns\n0 0 0")
    assert sql.ask("FROM run_buckets(NULL, 300)") == table("bucket width_s start_time\n0 0.001 -")
