from tests.queries.conftest import table


def test_bins_are_tenths_of_a_power_of_ten(sql):
    sql.rows("request_latency", "ttft_ms\n0\n1\n1.2\n10\n-")
    assert sql.answer("latency_histogram") == table("""
        metric from_ms to_ms             samples sample_share
        ttft   0       0                 1       0.25
        ttft   1       1.2589254117941673 2       0.5
        ttft   10      12.589254117941675 1       0.25""")


def test_token_gaps_are_counted_once_per_request(sql):
    sql.rows(
        "steps",
        """
        replica step start_ns    duration_ns
        0       0    0           10_000_000
        0       1    10_000_000  20_000_000
        0       2    30_000_000  30_000_000
        0       3    60_000_000  40_000_000""",
    )
    sql.rows("requests", "request replica first_token_step finish_step\n0 0 0 1\n1 0 0 1")
    assert sql.answer("latency_histogram") == table("""
        metric from_ms            to_ms             samples sample_share
        itl    19.952623149688797 25.118864315095795 2       1""")
