from tests.queries.conftest import table

BASE = "request outcome arrival_ns first_scheduled_ns first_token_ns finish_ns output_tokens replica finish_step class"


def ready(sql, slo: str = "class ttft_ms tpot_ms e2e_ms\n- 1000 50 -") -> None:
    sql.rows("runs", "run_id frontend_ms usable_blocks\na 20 100")
    sql.rows("slo", slo)


def test_definitions(sql):
    ready(sql)
    sql.rows("requests", f"{BASE}\n0 finished 1_000_000 5_000_000 101_000_000 501_000_000 5 0 9 -")
    assert sql.ask("FROM request_latency") == table("""
        ttft_ms tpot_ms e2e_ms queue_ms itl_request_mean_ms completed ran  within_slo
        120     100     520    4        100                 true      true false""")


def test_one_token_has_no_time_per_token_and_can_keep_the_slo(sql):
    ready(sql)
    sql.rows("requests", f"{BASE}\n0 finished 0 0 100_000_000 100_000_000 1 0 0 -")
    assert sql.ask("FROM request_latency") == table("""
        ttft_ms tpot_ms itl_request_mean_ms e2e_ms within_slo
        120     -       -                   120    true""")


def test_a_client_that_gave_up_has_a_first_token_and_misses_the_slo(sql):
    ready(sql)
    sql.rows("steps", "replica step start_ns duration_ns\n0 3 290_000_000 10_000_000")
    sql.rows("requests", f"{BASE}\n0 timed_out 0 0 100_000_000 305_000_000 3 0 3 -")
    # Its last token came at 300 ms, five milliseconds before it left.
    assert sql.ask("FROM request_latency") == table("""
        ttft_ms tpot_ms itl_request_mean_ms e2e_ms completed within_slo
        120     -       100                 -      false     false""")


def test_refused_requests_miss_the_slo_and_unreplayed_rows_are_left_out(sql):
    ready(sql)
    sql.rows(
        "requests",
        f"""
        {BASE}
        0 queue_full   0 - - 0 0 - - -
        1 rejected     0 - - 0 0 - - -
        2 not_replayed 0 - - - - - - -""",
    )
    assert sql.ask("FROM request_latency ORDER BY request") == table("""
        request ran   completed ttft_ms within_slo
        0       false false     -       false
        1       false false     -       false""")


def test_limits_of_a_class_replace_the_general_ones_even_by_none(sql):
    ready(sql, "class ttft_ms tpot_ms e2e_ms\n- 100 50 -\nbulk - - 600")
    sql.rows(
        "requests",
        f"""
        {BASE}
        0 finished 0 0 200_000_000 500_000_000 2 0 9 bulk
        1 finished 0 0 200_000_000 600_000_000 2 0 9 bulk
        2 finished 0 0 200_000_000 210_000_000 2 0 9 chat
        3 finished 0 0 20_000_000  60_000_000  2 0 9 -""",
    )
    assert sql.ask("FROM request_latency ORDER BY request") == table("""
        request ttft_slo_ms tpot_slo_ms e2e_slo_ms within_slo
        0       -           -           600        true
        1       -           -           600        false
        2       100         50          -          false
        3       100         50          -          true""")
