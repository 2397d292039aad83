-- latency_by_minute: how long do callers wait, minute by minute?
-- kind:   answer
-- grain:  one row per run, minute and metric
-- needs:  latency_percentiles, metric_rank, run_span
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
-- note:   a request belongs to the minute of its arrival, a token gap to the minute in which it ends; $minutes makes
--         the stretches longer.
-- note:   definitions as in `vllm bench serve`: ttft and e2e from arrival, frontend time included; tpot = (e2e -
--         ttft) / (output tokens - 1) per request, undefined for one token; itl = every gap between consecutive
--         tokens, pooled over requests.
-- note:   itl_request_mean is one mean of token gaps per request; queue is the wait for the first step; percentiles
--         interpolate linearly (quantile_cont).
SELECT
    run_id,
    minute * $minutes * 60.0::DOUBLE AS start_s,
    TIMEZONE(time_zone, origin_time + TO_SECONDS(minute * $minutes * 60)) AS start_time,
    metric,
    samples,
    mean_ms,
    p50_ms,
    p90_ms,
    p95_ms,
    p99_ms,
    max_ms
FROM latency_percentiles('minute', $run, $minutes)
JOIN run_span USING (run_id)
ORDER BY run_id, start_s, metric_rank(metric);
