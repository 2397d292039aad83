-- bucket_width_ns: which round width cuts a span into at most so many buckets?
-- kind:    macro
-- returns: BIGINT width, nanoseconds
-- params:  span_ns BIGINT, most INTEGER
-- note:    1, 2, 5, 10 ... 500 milliseconds, then round seconds, minutes, hours, days.
COALESCE(
    LIST_FILTER(
        [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
            600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000],
        LAMBDA ms: ms::BIGINT * 1_000_000 * $most >= $span_ns
    )[1],
    86_400_000 * ($span_ns // (86_400_000_000_000 * $most) + 1)
)::BIGINT * 1_000_000
