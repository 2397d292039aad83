-- load_over_time: what arrives, what is in the system, and what comes out?
-- kind:   answer
-- grain:  one row per run and bucket
-- needs:  request_latency, run_buckets, steps, user_level
-- params: run VARCHAR = NULL, points INTEGER = 300
-- column: run_id              VARCHAR   run
-- column: bucket              BIGINT    number of the bucket, from 0
-- column: start_s             DOUBLE    start of the bucket, seconds from the start of the trace
-- column: width_s             DOUBLE    width of the bucket, seconds
-- column: start_time          TIMESTAMP start on the wall clock of report.time_zone; null for relative clocks
-- column: arrivals_per_s      DOUBLE    requests arriving per second
-- column: completed_per_s     DOUBLE    requests answered in full per second
-- column: unanswered_per_s    DOUBLE    requests refused, given up or never finished per second, by arrival
-- column: users_mean          DOUBLE    requests in the system, time-weighted mean
-- column: users_min           BIGINT    fewest at once
-- column: users_max           BIGINT    most at once
-- column: input_tokens_per_s  DOUBLE    prompt tokens arriving per second
-- column: output_tokens_per_s DOUBLE    tokens generated per second
-- column: hit_share           DOUBLE    share of prompt tokens found in the prefix cache, by first admission
-- column: slo_share           DOUBLE    share of requests within the SLO, by arrival
-- column: ttft_p95_ms         DOUBLE    95th percentile of ttft by arrival, milliseconds
-- note:   rates are per second of the whole bucket, also in the first and the last one, which the run may fill in part.
-- note:   a request within the SLO was answered in full and kept every limit of its class; one that was refused,
--         given up or never finished misses it.
-- note:   rows of the trace that were not replayed count nowhere.
WITH width AS (
    SELECT DISTINCT run_id, width_ns FROM run_buckets($run, $points)
),
arrived AS (
    SELECT
        run_id,
        arrival_ns // width_ns AS bucket,
        COUNT(*) AS arrivals,
        COUNT(*) FILTER (WHERE NOT completed) AS unanswered,
        SUM(input_tokens) AS input_tokens,
        COUNT(*) FILTER (WHERE within_slo) / COUNT(*) AS slo_share,
        QUANTILE_CONT(ttft_ms, 0.95) AS ttft_p95_ms
    FROM request_latency
    JOIN width USING (run_id)
    GROUP BY ALL
),
admitted AS (
    SELECT
        run_id,
        first_scheduled_ns // width_ns AS bucket,
        SUM(cached_tokens) / NULLIF(SUM(input_tokens), 0) AS hit_share
    FROM request_latency
    JOIN width USING (run_id)
    WHERE ran
    GROUP BY ALL
),
left_system AS (
    SELECT run_id, GREATEST(finish_ns - 1, 0) // width_ns AS bucket, COUNT(*) AS completions
    FROM request_latency
    JOIN width USING (run_id)
    WHERE completed
    GROUP BY ALL
),
sampled AS (
    SELECT run_id, GREATEST(start_ns + duration_ns - 1, 0) // width_ns AS bucket, SUM(sampled) AS output_tokens
    FROM steps
    JOIN width USING (run_id)
    GROUP BY ALL
),
stretch AS (
    SELECT
        run_id,
        start_ns,
        end_ns,
        users,
        width_ns,
        UNNEST(RANGE(start_ns // width_ns, (end_ns - 1) // width_ns + 1)) AS bucket
    FROM user_level
    JOIN width USING (run_id)
),
users AS (
    SELECT
        run_id,
        bucket,
        SUM(users * (LEAST(end_ns, (bucket + 1) * width_ns) - GREATEST(start_ns, bucket * width_ns))) AS users_ns,
        MIN(users) AS users_min,
        MAX(users) AS users_max
    FROM stretch
    GROUP BY run_id, bucket
)
SELECT
    run_id,
    bucket - MIN(bucket) OVER (PARTITION BY run_id) AS bucket,
    start_s,
    width_s,
    start_time,
    COALESCE(arrivals, 0) / width_s AS arrivals_per_s,
    COALESCE(completions, 0) / width_s AS completed_per_s,
    COALESCE(unanswered, 0) / width_s AS unanswered_per_s,
    COALESCE(users_ns, 0) / width_ns AS users_mean,
    COALESCE(users_min, 0) AS users_min,
    COALESCE(users_max, 0) AS users_max,
    COALESCE(input_tokens, 0) / width_s AS input_tokens_per_s,
    COALESCE(output_tokens, 0) / width_s AS output_tokens_per_s,
    hit_share,
    slo_share,
    ttft_p95_ms
FROM run_buckets($run, $points)
LEFT JOIN arrived USING (run_id, bucket)
LEFT JOIN admitted USING (run_id, bucket)
LEFT JOIN left_system USING (run_id, bucket)
LEFT JOIN sampled USING (run_id, bucket)
LEFT JOIN users USING (run_id, bucket)
ORDER BY run_id, bucket;
