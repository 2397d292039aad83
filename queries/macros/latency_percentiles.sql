-- latency_percentiles: how long do callers wait, by group?
-- kind:   macro
-- grain:  one row per run, group and metric that has a value
-- needs:  itl_quantiles, value_percentiles
-- params: dimension VARCHAR, run VARCHAR, minutes INTEGER = 1
-- column: run_id  VARCHAR run
-- column: label   VARCHAR tenant, model or class, as $dimension says; else null
-- column: minute  BIGINT  stretch of $minutes minutes; null unless $dimension is minute
-- column: metric  VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: samples BIGINT  values: requests, or token gaps for itl
-- column: mean_ms DOUBLE  mean, milliseconds
-- column: p50_ms  DOUBLE  median, milliseconds
-- column: p90_ms  DOUBLE  90th percentile, milliseconds
-- column: p95_ms  DOUBLE  95th percentile, milliseconds
-- column: p99_ms  DOUBLE  99th percentile, milliseconds
-- column: max_ms  DOUBLE  largest, milliseconds
-- note:   percentiles interpolate linearly (quantile_cont), as `vllm bench serve` does.
-- note:   a request belongs to the minute of its arrival, a token gap to the minute in which it ends.
SELECT run_id, label, minute, metric, samples, mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, max_ms
FROM value_percentiles($dimension, $run, $minutes)
UNION ALL
SELECT
    run_id,
    label,
    minute,
    'itl' AS metric,
    samples,
    mean_ms,
    quantiles_ms[1] AS p50_ms,
    quantiles_ms[2] AS p90_ms,
    quantiles_ms[3] AS p95_ms,
    quantiles_ms[4] AS p99_ms,
    max_ms
FROM itl_quantiles($dimension, $run, [0.5, 0.9, 0.95, 0.99], $minutes);
