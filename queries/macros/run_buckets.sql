-- run_buckets: into which stretches of time is a run cut for charts?
-- kind:   macro
-- grain:  one row per run and bucket
-- needs:  bucket_width_ns, run_span
-- params: run VARCHAR, points INTEGER
-- column: run_id     VARCHAR   run
-- column: bucket     BIGINT    number of the bucket; bucket times width_ns is its start
-- column: width_ns   BIGINT    width, nanoseconds
-- column: start_s    DOUBLE    start, seconds from the start of the trace
-- column: width_s    DOUBLE    width, seconds
-- column: start_time TIMESTAMP start on the wall clock of report.time_zone; null for relative clocks
-- note:   all buckets of a run are equally wide, at most $points + 1 of them.
WITH width AS (
    SELECT *, bucket_width_ns(end_ns - first_ns, $points) AS width_ns
    FROM run_span
    WHERE $run IS NULL OR run_id = $run
),
bucket AS (
    -- The last instant belongs to the bucket that ends with it, unless a request arrives then.
    SELECT *, UNNEST(RANGE(first_ns // width_ns, GREATEST(end_ns - 1, last_ns) // width_ns + 1)) AS bucket
    FROM width
)
SELECT
    run_id,
    bucket,
    width_ns,
    bucket * width_ns / 1e9 AS start_s,
    width_ns / 1e9 AS width_s,
    TIMEZONE(time_zone, origin_time + TO_MICROSECONDS(bucket * width_ns // 1000)) AS start_time
FROM bucket;
