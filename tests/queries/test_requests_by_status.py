from tests.queries.conftest import table


def test_every_row_of_the_trace_is_counted(sql):
    sql.rows(
        "requests",
        """
        request log_status outcome      input_tokens output_tokens
        0       ok         finished     10           5
        1       ok         finished     20           6
        2       ok         timed_out    30           0
        3       error      not_replayed -            -""",
    )
    assert sql.answer("requests_by_status") == table("""
        log_status outcome      requests request_share input_tokens output_tokens
        ok         finished     2        0.5           30           11
        error      not_replayed 1        0.25          -            -
        ok         timed_out    1        0.25          30           0""")
