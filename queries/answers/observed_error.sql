-- observed_error: how far is the replay from what the log saw?
-- kind:   answer
-- grain:  one row per run and metric that the log states
-- needs:  exact_mean, metric_rank, observed_latency
-- params: run VARCHAR = NULL
-- column: run_id            VARCHAR run
-- column: metric            VARCHAR ttft, tpot or e2e
-- column: requests          BIGINT  requests that both the log and the replay have a value for
-- column: observed_mean_ms  DOUBLE  mean in the log, milliseconds
-- column: predicted_mean_ms DOUBLE  mean in the replay, milliseconds
-- column: mean_error_share  DOUBLE  predicted / observed - 1, of the mean; null where the observed one is 0
-- column: observed_p50_ms   DOUBLE  median in the log, milliseconds
-- column: predicted_p50_ms  DOUBLE  median in the replay, milliseconds
-- column: p50_error_share   DOUBLE  predicted / observed - 1, of the median
-- column: observed_p95_ms   DOUBLE  95th percentile in the log, milliseconds
-- column: predicted_p95_ms  DOUBLE  95th percentile in the replay, milliseconds
-- column: p95_error_share   DOUBLE  predicted / observed - 1, of the 95th percentile
-- column: observed_p99_ms   DOUBLE  99th percentile in the log, milliseconds
-- column: predicted_p99_ms  DOUBLE  99th percentile in the replay, milliseconds
-- column: p99_error_share   DOUBLE  predicted / observed - 1, of the 99th percentile
-- column: request_error_share DOUBLE median over requests of |predicted / observed - 1|
-- note:   percentiles interpolate linearly (quantile_cont).
WITH spread AS (
    SELECT
        run_id,
        metric,
        COUNT(*) AS requests,
        exact_mean(observed_ms) AS observed_mean_ms,
        exact_mean(predicted_ms) AS predicted_mean_ms,
        QUANTILE_CONT(observed_ms, [0.5, 0.95, 0.99]) AS observed,
        QUANTILE_CONT(predicted_ms, [0.5, 0.95, 0.99]) AS predicted,
        MEDIAN(ABS(predicted_ms / NULLIF(observed_ms, 0) - 1)) AS request_error_share
    FROM observed_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY ALL
)
SELECT
    run_id,
    metric,
    requests,
    observed_mean_ms,
    predicted_mean_ms,
    predicted_mean_ms / NULLIF(observed_mean_ms, 0) - 1 AS mean_error_share,
    observed[1] AS observed_p50_ms,
    predicted[1] AS predicted_p50_ms,
    predicted[1] / NULLIF(observed[1], 0) - 1 AS p50_error_share,
    observed[2] AS observed_p95_ms,
    predicted[2] AS predicted_p95_ms,
    predicted[2] / NULLIF(observed[2], 0) - 1 AS p95_error_share,
    observed[3] AS observed_p99_ms,
    predicted[3] AS predicted_p99_ms,
    predicted[3] / NULLIF(observed[3], 0) - 1 AS p99_error_share,
    request_error_share
FROM spread
ORDER BY run_id, metric_rank(metric);
