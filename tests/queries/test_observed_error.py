from tests.queries.conftest import table

REQUESTS = """
    request obs_ttft_us obs_e2e_us output_tokens
    0       100_000     300_000    3
    1       200_000     -          1
    2       -           -          5
    3       400_000     900_000    2"""
REPLAYED = """
    request completed ttft_ms tpot_ms e2e_ms
    0       true      110     90      290
    1       true      150     -       150
    2       true      1       1       1
    3       false     500     -       -"""


def test_both_sides_tell_of_the_same_requests(sql):
    sql.rows("requests", REQUESTS)
    sql.rows("request_latency", REPLAYED)
    assert sql.ask("FROM observed_latency ORDER BY metric, request") == table("""
        request metric observed_ms predicted_ms
        0       e2e    300         290
        0       tpot   100         90
        0       ttft   100         110
        1       ttft   200         150""")


def test_errors_are_those_of_the_replay_against_the_log(sql):
    sql.rows("requests", REQUESTS)
    sql.rows("request_latency", REPLAYED)
    # TTFT: 100, 200 in the log and 110, 150 in the replay; 10 % above and 25 % below
    assert sql.answer("observed_error") == table("""
        metric requests observed_mean_ms predicted_mean_ms mean_error_share p50_error_share request_error_share
        ttft   2        150              130               -0.133333333333 -0.133333333333 0.175
        tpot   1        100              90                -0.1                 -0.1                 0.1
        e2e    1        300              290               -0.0333333333333 -0.0333333333333 0.0333333333333""")


def test_a_log_without_times_has_no_rows(sql):
    sql.rows("requests", "request output_tokens\n0 3")
    sql.rows("request_latency", "request completed ttft_ms\n0 true 5")
    assert sql.answer("observed_error").rows == []
