from tests.queries.conftest import table


def test_work_beyond_what_was_needed_is_recomputed(sql):
    # Needed: 100 - 20 cached + 11 - 1 = 90 tokens; computed 190, so 100 twice.
    sql.rows(
        "requests",
        """
        first_scheduled_ns input_tokens cached_tokens output_tokens computed_tokens preemptions resumed_cached_tokens
        0                  100          20            11            190             2           16
        0                  50           0             1             50              0           0
        -                  70           -             0             0               0           0""",
    )
    assert sql.answer("preemptions") == table("""
        preemptions requests_preempted preempted_share computed_tokens recomputed_tokens resumed_hit_tokens
        2           1                  0.5             240             100               16""")
    assert sql.answer("preemptions") == table("recomputed_share\n0.4166666666666667")
