from tests.queries.conftest import table


def test_batches_are_weighted_by_steps_and_by_time(sql):
    sql.rows("run_span", "first_ns end_ns duration_s replicas\n0 80_000_000 0.08 1")
    sql.rows(
        "step_load",
        """
        replica step duration_ns scheduled prefill_tokens decode_tokens
        0       0    10_000_000  1         0              1
        0       1    30_000_000  3         100            2""",
    )
    assert sql.answer("step_summary") == table("""
        steps busy_share step_mean_ms step_p50_ms step_p95_ms step_p99_ms step_max_ms
        2     0.5        20           20          29          29.8        30""")
    assert sql.answer("step_summary") == table("""
        batch_mean batch_time_mean batch_p95 batch_max tokens_mean prefill_step_share
        2          2.5             3         3         51.5        0.5""")
