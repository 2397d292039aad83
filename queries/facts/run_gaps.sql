-- run_gaps: how long are the gaps between consecutive tokens, over a whole run?
-- kind:   fact
-- grain:  one row per run that has a gap
-- needs:  itl_quantiles
-- column: run_id  VARCHAR run
-- column: samples BIGINT  token gaps
-- column: mean_ms DOUBLE  mean, milliseconds
-- column: p50_ms  DOUBLE  median, milliseconds
-- column: p90_ms  DOUBLE  90th percentile, milliseconds
-- column: p95_ms  DOUBLE  95th percentile, milliseconds
-- column: p99_ms  DOUBLE  99th percentile, milliseconds
-- column: max_ms  DOUBLE  longest, milliseconds
-- note:   every gap of every request, pooled; percentiles interpolate linearly.
SELECT
    run_id,
    samples,
    mean_ms,
    quantiles_ms[1] AS p50_ms,
    quantiles_ms[2] AS p90_ms,
    quantiles_ms[3] AS p95_ms,
    quantiles_ms[4] AS p99_ms,
    max_ms
FROM itl_quantiles('all', NULL, [0.5, 0.9, 0.95, 0.99], 1);
