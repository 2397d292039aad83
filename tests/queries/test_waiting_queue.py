from tests.queries.conftest import table


def test_the_queue_is_weighted_by_time(sql):
    sql.rows("run_span", "first_ns last_ns end_ns duration_s replicas\n0 2_000_000_000 4_000_000_000 4 1")
    # 1 s without anybody, 1 s with four, 1 s with two, and 1 s idle.
    sql.rows(
        "step_load",
        """
        replica step duration_ns   waiting
        0       0    1_000_000_000 0
        0       1    1_000_000_000 4
        0       2    1_000_000_000 2""",
    )
    sql.rows("request_latency", "queue_ms\n0\n10\n-")
    assert sql.answer("waiting_queue") == table("""
        mean_requests p95_requests peak_requests waiting_share wait_p50_ms wait_p95_ms wait_max_ms
        1.5           4            4             0.5           5           9.5         10""")


def test_a_run_without_steps_has_no_queue(sql):
    sql.rows("request_latency", "queue_ms\n-")
    assert sql.answer("waiting_queue") == table("mean_requests peak_requests wait_p95_ms\n- - -")
