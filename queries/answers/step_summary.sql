-- step_summary: how large are batches and how long are steps?
-- kind:   answer
-- grain:  one row per run
-- needs:  step_intervals
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
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS steps,
    NULL::DOUBLE AS busy_share,
    NULL::DOUBLE AS step_mean_ms,
    NULL::DOUBLE AS step_p50_ms,
    NULL::DOUBLE AS step_p95_ms,
    NULL::DOUBLE AS step_p99_ms,
    NULL::DOUBLE AS step_max_ms,
    NULL::DOUBLE AS batch_mean,
    NULL::DOUBLE AS batch_time_mean,
    NULL::BIGINT AS batch_p95,
    NULL::BIGINT AS batch_max,
    NULL::DOUBLE AS tokens_mean,
    NULL::DOUBLE AS prefill_step_share
WHERE $run IS NULL;
