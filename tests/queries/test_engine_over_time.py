from tests.queries.conftest import table


def test_a_step_is_split_over_the_buckets_it_touches(sql):
    sql.rows("run_span", "first_ns last_ns end_ns replicas\n0 0 2_500_000_000 1")
    # Buckets of 1 s. Step 0 fills 0 to 0.5 s; step 1 runs from 0.5 s to 1.5 s; the rest is idle until step 2.
    load = "running waiting used_blocks usable_blocks kv_share sampled prefill_tokens"
    sql.rows(
        "step_load",
        f"""
        replica step start_ns      end_ns        duration_ns   {load}
        0       0    0             500_000_000   500_000_000   2 0 10 100 0.1 2 7
        0       1    500_000_000   1_500_000_000 1_000_000_000 4 1 40 100 0.4 4 0
        0       2    2_200_000_000 2_500_000_000 300_000_000   1 0 50 100 0.5 1 0""",
    )
    assert sql.answer("engine_over_time", points=3) == table("""
        bucket start_s width_s steps busy_share running_mean running_min running_max waiting_mean waiting_max
        0      0       1       1     1          3            2           4           0.5          1
        1      1       1       1     0.5        2            4           4           0.5          1
        2      2       1       1     0.3        0.3          1           1           0            0""")
    assert sql.answer("engine_over_time", points=3) == table("""
        kv_mean_share kv_min_share kv_max_share output_tokens_per_s prefill_tokens_per_s step_mean_ms
        0.25          0.1          0.4          2                   7                    500
        0.2           0.4          0.4          4                   0                    1000
        0.15          0.5          0.5          1                   0                    300""")


def test_replicas_have_rows_of_their_own_and_idle_buckets_are_empty(sql):
    sql.rows("run_span", "first_ns last_ns end_ns replicas\n0 0 2_000_000_000 2")
    sql.rows(
        "step_load",
        """
        replica step start_ns      end_ns        duration_ns   running
        0       0    0             1_000_000_000 1_000_000_000 3
        1       0    1_000_000_000 2_000_000_000 1_000_000_000 5""",
    )
    assert sql.answer("engine_over_time", points=3) == table("""
        replica bucket steps running_mean running_max
        0       0      1     3            3
        0       1      0     0            0
        1       0      0     0            0
        1       1      1     5            5""")
