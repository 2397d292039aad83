from tests.queries.conftest import table


def test_changes_at_one_moment_are_one_change(sql):
    sql.rows("run_span", "end_ns\n100")
    sql.rows(
        "request_latency",
        """
        request outcome        arrival_ns finish_ns
        0       finished       0          50
        1       finished       50         70
        2       queue_full     60         60
        3       rejected       65         -
        4       never_finished 80         -""",
    )
    assert sql.ask("FROM user_level ORDER BY start_ns") == table("""
        start_ns end_ns users
        0        50     1
        50       60     1
        60       65     1
        65       70     1
        70       80     0
        80       100    1""")


def test_levels_go_on_from_one_stretch_of_ten_minutes_to_the_next(sql):
    sql.rows("run_span", "end_ns\n3000000000000")
    sql.rows(
        "request_latency",
        """
        request outcome        arrival_ns    finish_ns
        0       finished       0             1900000000000
        1       finished       599999999999  600000000000
        2       finished       600000000000  650000000000
        3       never_finished 2400000000000 -""",
    )
    assert sql.ask("FROM user_level ORDER BY start_ns") == table("""
        start_ns      end_ns        users
        0             599999999999  1
        599999999999  600000000000  2
        600000000000  650000000000  2
        650000000000  1900000000000 1
        1900000000000 2400000000000 0
        2400000000000 3000000000000 1""")
