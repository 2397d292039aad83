-- run_latency: how long do callers wait, over a whole run?
-- kind:   fact
-- grain:  one row per run and metric that has a value
-- needs:  run_gaps, value_percentiles
-- column: run_id  VARCHAR run
-- column: metric  VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: samples BIGINT  values behind the row: requests, or token gaps for itl
-- column: mean_ms DOUBLE  mean, milliseconds
-- column: p50_ms  DOUBLE  median, milliseconds
-- column: p90_ms  DOUBLE  90th percentile, milliseconds
-- column: p95_ms  DOUBLE  95th percentile, milliseconds
-- column: p99_ms  DOUBLE  99th percentile, milliseconds
-- column: max_ms  DOUBLE  largest, milliseconds
-- note:   definitions as in answer latency.
SELECT run_id, metric, samples, mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, max_ms
FROM value_percentiles('all', NULL, 1)
UNION ALL
SELECT run_id, 'itl' AS metric, samples, mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, max_ms
FROM run_gaps;
