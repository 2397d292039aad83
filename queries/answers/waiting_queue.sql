-- waiting_queue: how long is the queue?
-- kind:   answer
-- grain:  one row per run
-- needs:  level_time, request_latency, time_mean, time_quantile
-- params: run VARCHAR = NULL
-- column: run_id        VARCHAR run
-- column: mean_requests DOUBLE  requests waiting, time-weighted mean per replica
-- column: p95_requests  BIGINT  requests waiting, not exceeded for 95 % of the time
-- column: peak_requests BIGINT  most requests waiting at once
-- column: waiting_share DOUBLE  share of time with someone waiting
-- column: wait_p50_ms   DOUBLE  median queue time of requests, milliseconds
-- column: wait_p95_ms   DOUBLE  95th percentile of queue time, milliseconds
-- column: wait_max_ms   DOUBLE  longest queue time, milliseconds
-- note:   the queue is known at each decision and taken to hold while its step runs; in idle time it is empty; levels
--         are per replica, pooled.
WITH waiting AS (
    SELECT
        run_id,
        time_mean(level, time_ns) AS mean_requests,
        time_quantile(level, upto_ns, total_ns, 0.95)::BIGINT AS p95_requests,
        MAX(level)::BIGINT AS peak_requests,
        COALESCE(SUM(time_ns) FILTER (WHERE level > 0), 0) / NULLIF(SUM(time_ns), 0) AS waiting_share
    FROM level_time('waiting', $run)
    GROUP BY run_id
),
wait AS (
    SELECT
        run_id,
        QUANTILE_CONT(queue_ms, 0.5) AS wait_p50_ms,
        QUANTILE_CONT(queue_ms, 0.95) AS wait_p95_ms,
        MAX(queue_ms) AS wait_max_ms
    FROM request_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
)
SELECT
    run_id,
    mean_requests,
    p95_requests,
    peak_requests,
    waiting_share,
    wait_p50_ms,
    wait_p95_ms,
    wait_max_ms
FROM wait
LEFT JOIN waiting USING (run_id)
ORDER BY run_id;
