from tests.queries.conftest import table

ROWS = """
    request outcome     completed arrival_ns    finish_ns     output_tokens
    0       finished    true      0             1_000_000_000 5
    1       timed_out   false     1_000_000_000 3_500_000_000 2
    2       queue_full  false     500_000_000   500_000_000   0
    3       never_finished false  2_000_000_000 -             1"""


def test_first_arrivals_come_first(sql):
    sql.rows("request_latency", ROWS)
    assert sql.answer("unfinished_requests") == table("""
        request outcome        arrival_s stay_s output_tokens
        2       queue_full     0.5       0      0
        1       timed_out      1         2.5    2
        3       never_finished 2         -      1""")


def test_the_list_has_a_limit(sql):
    sql.rows("request_latency", ROWS)
    assert sql.answer("unfinished_requests", most=1) == table("request\n2")
