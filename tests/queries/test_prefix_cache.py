from tests.queries.conftest import table


def test_hits_are_worth_the_slope_of_step_time(sql):
    # 10 ms plus 20 microseconds per prefill token; the decode step must not bend the slope.
    sql.rows(
        "steps",
        """
        replica step prefill_tokens duration_ns
        0       0    100            12_000_000
        0       1    300            16_000_000
        0       2    0              90_000_000""",
    )
    sql.rows(
        "requests",
        """
        request first_scheduled_ns input_tokens cached_tokens resumed_cached_tokens
        0       0                  1000         500           0
        1       5                  1000         100           30
        2       -                  1000         -             0""",
    )
    # 600 tokens at 20 microseconds: 12 ms on top of 118 ms.
    assert sql.answer("prefix_cache") == table("""
        prompt_tokens hit_tokens hit_share resumed_hit_tokens estimated_us_per_token estimated_saved_s
        2000          600        0.3       30                 20                     0.012""")
    assert sql.answer("prefix_cache") == table("estimated_saved_share\n0.09230769230769231")


def test_one_size_of_prefill_gives_no_estimate(sql):
    sql.rows("steps", "replica step prefill_tokens duration_ns\n0 0 100 12_000_000\n0 1 100 12_000_000")
    sql.rows("requests", "request first_scheduled_ns input_tokens cached_tokens\n0 0 100 50")
    assert sql.answer("prefix_cache") == table("hit_share estimated_us_per_token estimated_saved_s\n0.5 - -")
