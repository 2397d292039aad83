from tests.queries.conftest import table


def test_a_run_of_two_requests_by_hand(sql):
    sql.rows("runs", "run_id usable_blocks frontend_ms rate_scale time_zone\na 100 20 1 UTC")
    sql.rows("slo", "class ttft_ms tpot_ms\n- 1000 50")
    sql.rows(
        "steps",
        """
        replica step start_ns    duration_ns scheduled waiting sampled prefill_tokens decode_tokens free_blocks
        0       0    0           100_000_000 1         0       1       40             0             90
        0       1    100_000_000 100_000_000 2         0       2       60             1             75
        0       2    200_000_000 200_000_000 2         0       2       0              2             50""",
    )
    names = "request outcome arrival_ns first_scheduled_ns first_token_ns finish_ns first_token_step finish_step"
    sql.rows(
        "requests",
        f"""
        {names} input_tokens output_tokens cached_tokens preemptions replica
        0 finished 0          0           100_000_000 400_000_000 0 2 40 3 0  0 0
        1 finished 50_000_000 100_000_000 200_000_000 400_000_000 1 2 80 2 20 0 0
        2 not_replayed 0      -           -           -           - - -  - -  - -""",
    )
    # Users: 1 for 50 ms, 2 for 350 ms. Requests: ttft 120 and 170 ms; tpot 150 and 200 ms, both over 50.
    assert sql.answer("headline") == table("""
        requests not_replayed duration_s offered_rps completed_rps goodput_rps slo_share users_mean users_peak
        2        1            0.4        20          5             0           0         1.875      2""")
    assert sql.answer("headline") == table("""
        ttft_p50_ms ttft_p95_ms tpot_p50_ms tpot_p95_ms e2e_p50_ms e2e_p95_ms queue_p95_ms
        145         167.5       175         197.5       395        417.5     47.5""")
    # Token gaps 100, 200, 200 ms. Blocks in use: 10, 25 and 50 % for 100, 100 and 200 ms.
    assert sql.answer("headline") == table("""
        itl_p95_ms kv_mean_share kv_peak_share busy_share hit_share           preemptions
        200        0.3375        0.5           1          0.16666666666666666 0""")
    assert sql.answer("headline") == table("input_tokens_per_s output_tokens_per_s\n300 12.5")


def test_a_run_that_replayed_nothing_has_a_row_of_unknowns(sql):
    sql.rows("runs", "usable_blocks rate_scale\n100 1")
    assert sql.answer("headline") == table("""
        run_id requests not_replayed duration_s ttft_p95_ms itl_p95_ms kv_peak_share slo_share
        a      0        0            -          -           -          -             -""")
