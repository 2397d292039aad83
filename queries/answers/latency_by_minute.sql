-- latency_by_minute: how long do callers wait, minute by minute?
-- kind:   answer
-- grain:  one row per run, minute and metric
-- needs:  latency_values
-- params: run VARCHAR = NULL, minutes INTEGER = 1
-- column: run_id     VARCHAR   run
-- column: start_s    DOUBLE    start of the minute, seconds from the start of the trace
-- column: start_time TIMESTAMP the same on the wall clock of report.time_zone; null for relative clocks
-- column: metric     VARCHAR   ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: samples    BIGINT    values behind the row: requests, or token gaps for itl
-- column: mean_ms    DOUBLE    mean, milliseconds
-- column: p50_ms     DOUBLE    median, milliseconds
-- column: p90_ms     DOUBLE    90th percentile, milliseconds
-- column: p95_ms     DOUBLE    95th percentile, milliseconds
-- column: p99_ms     DOUBLE    99th percentile, milliseconds
-- column: max_ms     DOUBLE    largest, milliseconds
-- note:   a request belongs to the minute of its arrival, a token gap to the minute in which it ends.
-- note:   percentiles interpolate linearly (quantile_cont), definitions as in `vllm bench serve`; request_latency has them.
SELECT
    NULL::VARCHAR AS run_id,
    NULL::DOUBLE AS start_s,
    NULL::TIMESTAMP AS start_time,
    NULL::VARCHAR AS metric,
    NULL::BIGINT AS samples,
    NULL::DOUBLE AS mean_ms,
    NULL::DOUBLE AS p50_ms,
    NULL::DOUBLE AS p90_ms,
    NULL::DOUBLE AS p95_ms,
    NULL::DOUBLE AS p99_ms,
    NULL::DOUBLE AS max_ms
WHERE $run IS NULL;
