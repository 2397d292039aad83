-- engine_over_time: what are batch, queue and memory of each replica doing?
-- kind:   answer
-- grain:  one row per run, replica and bucket
-- needs:  run_buckets, step_load, time_mean
-- params: run VARCHAR = NULL, points INTEGER = 300
-- column: run_id               VARCHAR   run
-- column: replica              SMALLINT  replica
-- column: bucket               BIGINT    number of the bucket, from 0
-- column: start_s              DOUBLE    start of the bucket, seconds from the start of the trace
-- column: width_s              DOUBLE    width of the bucket, seconds
-- column: start_time           TIMESTAMP start on the wall clock of report.time_zone; null for relative clocks
-- column: steps                BIGINT    steps that ended in the bucket
-- column: busy_share           DOUBLE    share of the bucket in which a step ran
-- column: step_mean_ms         DOUBLE    mean duration of those steps, milliseconds
-- column: running_mean         DOUBLE    requests running, time-weighted mean, idle time as zero
-- column: running_min          BIGINT    fewest
-- column: running_max          BIGINT    most
-- column: waiting_mean         DOUBLE    requests waiting, time-weighted mean
-- column: waiting_min          BIGINT    fewest
-- column: waiting_max          BIGINT    most
-- column: kv_mean_share        DOUBLE    KV blocks in use, time-weighted mean share
-- column: kv_min_share         DOUBLE    lowest share
-- column: kv_max_share         DOUBLE    highest share
-- column: cached_mean_share    DOUBLE    blocks holding cached prefixes, time-weighted mean share of the time with
--             steps
-- column: prefill_tokens_per_s DOUBLE    prefill tokens computed per second
-- column: output_tokens_per_s  DOUBLE    tokens generated per second
-- column: hit_tokens_per_s     DOUBLE    tokens found in the prefix cache per second
-- column: preempted_per_s      DOUBLE    preemptions per second
-- note:   time between steps counts as empty in the means and not at all in least and most, which are 0 in a bucket
--         without steps.
-- note:   rates are per second of the whole bucket; tokens count when their step ends.
WITH span AS (
    SELECT
        step_load.*,
        width_ns,
        start_ns // width_ns AS first_bucket,
        GREATEST(end_ns - 1, start_ns) // width_ns AS last_bucket
    FROM step_load
    JOIN (SELECT DISTINCT run_id, width_ns FROM run_buckets($run, $points)) USING (run_id)
),
part AS (
    SELECT *, first_bucket AS bucket, duration_ns AS part_ns
    FROM span
    WHERE first_bucket = last_bucket
    UNION ALL
    SELECT *, LEAST(end_ns, (bucket + 1) * width_ns) - GREATEST(start_ns, bucket * width_ns) AS part_ns
    FROM (SELECT *, UNNEST(RANGE(first_bucket, last_bucket + 1)) AS bucket FROM span WHERE first_bucket < last_bucket)
),
level AS (
    SELECT
        run_id,
        replica,
        bucket,
        COUNT(*) FILTER (WHERE bucket = last_bucket) AS steps,
        SUM(part_ns) AS busy_ns,
        AVG(duration_ns) FILTER (WHERE bucket = last_bucket) / 1e6 AS step_mean_ms,
        SUM(running * part_ns) AS running_ns,
        MIN(running)::BIGINT AS running_min,
        MAX(running)::BIGINT AS running_max,
        SUM(waiting * part_ns) AS waiting_ns,
        MIN(waiting)::BIGINT AS waiting_min,
        MAX(waiting)::BIGINT AS waiting_max,
        SUM(used_blocks * part_ns) / ANY_VALUE(usable_blocks) AS kv_ns,
        MIN(kv_share) AS kv_min_share,
        MAX(kv_share) AS kv_max_share,
        time_mean(cached_blocks, part_ns) / ANY_VALUE(usable_blocks) AS cached_mean_share,
        SUM(prefill_tokens) FILTER (WHERE bucket = last_bucket) AS prefill_tokens,
        SUM(sampled) FILTER (WHERE bucket = last_bucket) AS output_tokens,
        SUM(hit_tokens) FILTER (WHERE bucket = last_bucket) AS hit_tokens,
        SUM(preempted) FILTER (WHERE bucket = last_bucket) AS preempted
    FROM part
    GROUP BY run_id, replica, bucket
),
grid AS (
    SELECT *
    FROM run_buckets($run, $points)
    JOIN (SELECT DISTINCT run_id, replica FROM level) USING (run_id)
)
SELECT
    run_id,
    replica,
    bucket - MIN(bucket) OVER (PARTITION BY run_id) AS bucket,
    start_s,
    width_s,
    start_time,
    COALESCE(steps, 0) AS steps,
    COALESCE(busy_ns, 0) / width_ns AS busy_share,
    step_mean_ms,
    COALESCE(running_ns, 0) / width_ns AS running_mean,
    COALESCE(running_min, 0) AS running_min,
    COALESCE(running_max, 0) AS running_max,
    COALESCE(waiting_ns, 0) / width_ns AS waiting_mean,
    COALESCE(waiting_min, 0) AS waiting_min,
    COALESCE(waiting_max, 0) AS waiting_max,
    COALESCE(kv_ns, 0) / width_ns AS kv_mean_share,
    COALESCE(kv_min_share, 0) AS kv_min_share,
    COALESCE(kv_max_share, 0) AS kv_max_share,
    cached_mean_share,
    COALESCE(prefill_tokens, 0) / width_s AS prefill_tokens_per_s,
    COALESCE(output_tokens, 0) / width_s AS output_tokens_per_s,
    COALESCE(hit_tokens, 0) / width_s AS hit_tokens_per_s,
    COALESCE(preempted, 0) / width_s AS preempted_per_s
FROM grid
LEFT JOIN level USING (run_id, replica, bucket)
ORDER BY run_id, replica, bucket;
