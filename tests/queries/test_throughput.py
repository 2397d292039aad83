from tests.queries.conftest import table


def test_only_requests_within_the_slo_are_goodput(sql):
    sql.rows("run_span", "first_ns last_ns end_ns duration_s replicas\n0 2_000_000_000 4_000_000_000 4 1")
    sql.rows(
        "request_latency",
        """
        completed ran   within_slo input_tokens output_tokens computed_tokens
        true      true  true       100          40            120
        true      true  false      200          20            250
        false     false false      4000         0             0""",
    )
    # 3 requests over 2 s of arrivals: 2 intervals, 1 request/s. Work is spread over the 4 s until the end.
    assert sql.answer("throughput") == table("""
        requests completed within_slo offered_rps completed_rps goodput_rps
        3        2         1          1           0.5           0.25""")
    assert sql.answer("throughput") == table("""
        slo_share          input_tokens_per_s computed_tokens_per_s output_tokens_per_s goodput_output_tokens_per_s
        0.3333333333333333 75                 92.5                  15                  10""")


def test_one_request_offers_no_rate(sql):
    sql.rows("run_span", "first_ns last_ns end_ns duration_s replicas\n0 0 1_000_000_000 1 1")
    sql.rows("request_latency", "completed ran within_slo\ntrue true true")
    assert sql.answer("throughput") == table("requests offered_rps completed_rps\n1 - 1")
