-- step_summary: how large are batches and how long are steps?
-- kind:   answer
-- grain:  one row per run
-- needs:  level_time, run_span, step_load, step_quantiles, time_mean, time_quantile
-- params: run VARCHAR = NULL
-- column: run_id             VARCHAR run
-- column: steps              BIGINT  steps
-- column: busy_share         DOUBLE  share of replica time in which a step ran
-- column: step_mean_ms       DOUBLE  mean duration, milliseconds
-- column: step_p50_ms        DOUBLE  median duration, milliseconds
-- column: step_p95_ms        DOUBLE  95th percentile, milliseconds
-- column: step_p99_ms        DOUBLE  99th percentile, milliseconds
-- column: step_max_ms        DOUBLE  longest, milliseconds
-- column: batch_mean         DOUBLE  requests per step, mean over steps
-- column: batch_time_mean    DOUBLE  requests per step, weighted by the steps' time
-- column: batch_p95          BIGINT  requests per step not exceeded in 95 % of step time
-- column: batch_max          BIGINT  most requests in one step
-- column: tokens_mean        DOUBLE  tokens per step, mean over steps
-- column: prefill_step_share DOUBLE  share of steps with prefill tokens
-- note:   batch is the number of requests that got tokens in a step.
WITH step AS (
    SELECT
        run_id,
        COUNT(*) AS steps,
        SUM(duration_ns) AS busy_ns,
        AVG(duration_ns) / 1e6 AS step_mean_ms,
        MAX(duration_ns) / 1e6 AS step_max_ms,
        AVG(scheduled) AS batch_mean,
        AVG(prefill_tokens + decode_tokens) AS tokens_mean,
        COUNT(*) FILTER (WHERE prefill_tokens > 0) / COUNT(*) AS prefill_step_share
    FROM step_load
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
),
batch AS (
    SELECT
        run_id,
        time_mean(level, time_ns) AS batch_time_mean,
        time_quantile(level, upto_ns, total_ns, 0.95)::BIGINT AS batch_p95,
        MAX(level)::BIGINT AS batch_max
    FROM level_time('batch', $run)
    GROUP BY run_id
)
SELECT
    run_id,
    steps,
    busy_ns / 1e9 / (replicas * duration_s) AS busy_share,
    step_mean_ms,
    quantiles_ms[1] AS step_p50_ms,
    quantiles_ms[2] AS step_p95_ms,
    quantiles_ms[3] AS step_p99_ms,
    step_max_ms,
    batch_mean,
    batch_time_mean,
    batch_p95,
    batch_max,
    tokens_mean,
    prefill_step_share
FROM step
JOIN step_quantiles($run, [0.5, 0.95, 0.99]) USING (run_id)
JOIN batch USING (run_id)
JOIN run_span USING (run_id)
ORDER BY run_id;
