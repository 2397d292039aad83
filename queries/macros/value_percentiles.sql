-- value_percentiles: how long do callers wait, by group, token gaps aside?
-- kind:   macro
-- grain:  one row per run, group and metric that has a value
-- needs:  exact_mean, latency_values
-- params: dimension VARCHAR, run VARCHAR, minutes INTEGER = 1
-- column: run_id  VARCHAR run
-- column: label   VARCHAR tenant, model or class, as $dimension says; else null
-- column: minute  BIGINT  stretch of $minutes minutes; null unless $dimension is minute
-- column: metric  VARCHAR ttft, tpot, itl_request_mean, e2e or queue
-- column: samples BIGINT  requests
-- column: mean_ms DOUBLE  mean, milliseconds
-- column: p50_ms  DOUBLE  median, milliseconds
-- column: p90_ms  DOUBLE  90th percentile, milliseconds
-- column: p95_ms  DOUBLE  95th percentile, milliseconds
-- column: p99_ms  DOUBLE  99th percentile, milliseconds
-- column: max_ms  DOUBLE  largest, milliseconds
-- note:   percentiles interpolate linearly (quantile_cont), as `vllm bench serve` does.
-- note:   a request belongs to the minute of its arrival.
WITH spread AS (
    SELECT
        run_id,
        label,
        minute,
        metric,
        COUNT(*) AS samples,
        exact_mean(value_ms) AS mean_ms,
        MAX(value_ms) AS max_ms,
        QUANTILE_CONT(value_ms, [0.5, 0.9, 0.95, 0.99]) AS quantiles_ms
    FROM latency_values($dimension, $run, $minutes)
    GROUP BY ALL
)
SELECT
    run_id,
    label,
    minute,
    metric,
    samples,
    mean_ms,
    quantiles_ms[1] AS p50_ms,
    quantiles_ms[2] AS p90_ms,
    quantiles_ms[3] AS p95_ms,
    quantiles_ms[4] AS p99_ms,
    max_ms
FROM spread;
