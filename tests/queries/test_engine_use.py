from tests.queries.conftest import table


def test_memory_places_and_recomputed_tokens_by_hand(sql):
    """Two steps, of 10 and 30 ms; 100 blocks of 16 tokens; 4 places."""
    sql.rows("runs", "run_id usable_blocks block_size max_num_seqs frontend_ms\na 100 16 4 0")
    sql.rows(
        "steps",
        """
        run_id replica step start_ns    duration_ns free_blocks held_tokens running waiting
        a      0       0    0           10_000_000  60          320         1       2
        a      0       1    10_000_000  30_000_000  20          1024        3       0
        a      0       2    40_000_000  0           20          1024        3       5""",
    )
    # The first was preempted: 100 + 5 - 1 = 104 needed, 160 computed. The second found 32 of its 80 tokens.
    sql.rows(
        "requests",
        """
        run_id request outcome  replica arrival_ns first_scheduled_ns first_token_ns finish_ns finish_step input_tokens output_tokens cached_tokens computed_tokens
        a      0       finished 0       0          0                  10_000_000     40_000_000 1          100          5             0             160
        a      1       finished 0       0          0                  10_000_000     40_000_000 1          80           2             32            49
        a      2       finished 0       0          -                  -              -          -          80           -             -             -""",  # noqa: E501
    )
    # used: (40 * 10 + 80 * 30) / (100 * 40) = 0.7; held: (320 * 10 + 1024 * 30) / (1600 * 40) = 0.53
    # places: (1 * 10 + 3 * 30) / (4 * 40); idle while others wait: 3 * 10 / (4 * 40)
    assert sql.answer("engine_use") == table("""
        run_id kv_used_share kv_held_share kv_fill_share  place_share place_idle_share
        a      0.7           0.53          0.757142857143 0.625       0.1875""")
    assert sql.answer("engine_use") == table("""
        computed_tokens recomputed_tokens recomputed_share
        209             56                0.267942583732""")
