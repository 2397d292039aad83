from tests.queries.conftest import table


def test_time_weighs_and_idle_time_is_empty(sql):
    sql.rows("run_span", "first_ns last_ns end_ns duration_s replicas\n0 2_000_000_000 4_000_000_000 4 1")
    # 1 s at 10 %, 1 s at 100 %, 1 s at 50 %, and 1 s idle.
    sql.rows(
        "step_load",
        """
        replica step duration_ns   used_blocks usable_blocks cached_blocks
        0       0    1_000_000_000 10          100           20
        0       1    1_000_000_000 100         100           100
        0       2    1_000_000_000 50          100           60""",
    )
    assert sql.answer("kv_memory") == table("""
        usable_blocks mean_share p95_share peak_share above_90_share cached_mean_share cached_peak_share
        100           0.4        1         1          0.25           0.6               1""")


def test_ninety_percent_itself_is_not_above(sql):
    sql.rows("run_span", "first_ns end_ns duration_s replicas\n0 100 1e-7 1")
    sql.rows(
        "step_load", "replica step duration_ns used_blocks usable_blocks cached_blocks\n0 0 95 90 100 1\n0 1 5 91 100 1"
    )
    assert sql.answer("kv_memory") == table("p95_share above_90_share\n0.9 0.05")


def test_replicas_are_pooled(sql):
    sql.rows("run_span", "first_ns end_ns duration_s replicas\n0 100 1e-7 2")
    sql.rows(
        "step_load", "replica step duration_ns used_blocks usable_blocks cached_blocks\n0 0 100 5 10 1\n1 0 50 5 10 1"
    )
    assert sql.answer("kv_memory") == table("mean_share\n0.375")
