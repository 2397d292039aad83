from tests.queries.conftest import table


def test_the_clock_goes_on_from_the_first_known_time(sql):
    sql.rows("runs", "rate_scale time_zone\n2 UTC")
    sql.rows("steps", "replica step start_ns duration_ns\n0 0 1_000_000_000 500_000_000\n1 0 0 1")
    # Twice the rate: replayed at 1 s, logged 2 s after the start of the trace.
    sql.rows(
        "requests",
        """
        request outcome      arrival_ns    finish_ns     arrival_time
        0       not_replayed 0             -             2026-01-01T00:00:00+00
        1       finished     1_000_000_000 1_400_000_000 2026-01-01T00:00:02+00
        2       queue_full   1_200_000_000 1_200_000_000 2026-01-01T00:00:02.4+00""",
    )
    assert sql.ask("SELECT *, EPOCH(origin_time) AS origin_s FROM run_span") == table("""
        first_ns   last_ns    end_ns     duration_s replicas origin_s
        1000000000 1200000000 1500000000 0.5        2        1767225600""")


def test_a_run_without_steps_ends_with_its_last_event(sql):
    sql.rows("runs", "rate_scale\n1")
    sql.rows("requests", "request outcome arrival_ns finish_ns\n0 rejected 0 0\n1 rejected 5 5")
    assert sql.ask("FROM run_span") == table("end_ns duration_s replicas origin_time\n5 5e-9 0 -")
