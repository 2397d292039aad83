from tests.queries.conftest import table


def test_percentiles_interpolate_between_two_values(sql):
    sql.rows(
        "request_latency",
        """
        ttft_ms tpot_ms e2e_ms itl_request_mean_ms queue_ms
        100     10      1000   11                  0
        300     30      2000   -                   50""",
    )
    assert sql.answer("latency") == table("""
        run_id metric           samples mean_ms p50_ms p90_ms p95_ms p99_ms max_ms
        a      ttft             2       200     200    280    290    298    300
        a      tpot             2       20      20     28     29     29.8   30
        a      itl_request_mean 1       11      11     11     11     11     11
        a      e2e              2       1500    1500   1900   1950   1990   2000
        a      queue            2       25      25     45     47.5   49.5   50""")


def test_token_gaps_are_pooled_over_requests(sql):
    sql.rows(
        "steps",
        """
        replica step start_ns    duration_ns
        0       0    0           10_000_000
        0       1    10_000_000  20_000_000
        0       2    30_000_000  30_000_000
        0       3    60_000_000  40_000_000""",
    )
    # Request 0 has tokens in steps 0 to 3: gaps of 20, 30 and 40 ms. Request 1 in steps 2 and 3: one of 40 ms.
    sql.rows(
        "requests",
        """
        request replica first_token_step finish_step
        0       0       0                3
        1       0       2                3
        2       0       1                1
        3       -       -                -""",
    )
    assert sql.answer("latency") == table("""
        metric samples mean_ms p50_ms p90_ms p95_ms p99_ms max_ms
        itl    4       32.5    35     40     40     40     40""")


def test_a_gap_over_a_preemption_counts_once_and_whole(sql):
    sql.rows(
        "steps",
        """
        replica step start_ns    duration_ns
        0       0    0           10_000_000
        0       1    10_000_000  20_000_000
        0       2    30_000_000  30_000_000
        0       3    60_000_000  40_000_000""",
    )
    # Tokens in steps 0, 1 and 3: gaps of 20 ms and, over the missing step, of 70 ms.
    sql.rows("requests", "request replica first_token_step finish_step\n0 0 0 3")
    sql.rows("gaps", "request replica step previous_step gap_ns\n0 0 3 1 70_000_000")
    assert sql.answer("latency") == table("""
        metric samples mean_ms p50_ms p90_ms p95_ms p99_ms max_ms
        itl    2       45      45     65     67.5   69.5   70""")


def test_one_run_can_be_asked_for(sql):
    sql.rows("request_latency", "run_id ttft_ms\na 1\nb 2")
    assert sql.answer("latency", run="b") == table("run_id metric p50_ms\nb ttft 2")


def test_requests_without_a_value_are_left_out(sql):
    sql.rows("request_latency", "ttft_ms tpot_ms\n- -\n5 -")
    assert sql.answer("latency") == table("metric samples p50_ms\nttft 1 5")
