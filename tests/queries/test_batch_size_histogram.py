from tests.queries.conftest import table


def test_small_batches_have_a_bin_each(sql):
    sql.rows("steps", "replica step scheduled duration_ns\n0 0 1 10\n0 1 1 10\n0 2 59 20")
    assert sql.answer("batch_size_histogram") == table("""
        from_requests to_requests steps step_share         time_share
        1             2           2     0.6666666666666666 0.5
        59            60          1     0.3333333333333333 0.5""")


def test_large_batches_share_bins(sql):
    sql.rows("steps", "replica step scheduled duration_ns\n0 0 0 10\n0 1 59 10\n0 2 60 20")
    # The largest batch is 60, one too many for 60 bins of one.
    assert sql.answer("batch_size_histogram") == table("""
        from_requests to_requests steps
        0             2           1
        58            60          1
        60            62          1""")
