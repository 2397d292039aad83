-- latency: how long do callers wait?
-- kind:   answer
-- grain:  one row per run and metric
-- needs:  metric_rank, run_latency
-- params: run VARCHAR = NULL
-- column: run_id  VARCHAR run
-- column: metric  VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: samples BIGINT  values behind the row: requests, or token gaps for itl
-- column: mean_ms DOUBLE  mean, milliseconds
-- column: p50_ms  DOUBLE  median, milliseconds
-- column: p90_ms  DOUBLE  90th percentile, milliseconds
-- column: p95_ms  DOUBLE  95th percentile, milliseconds
-- column: p99_ms  DOUBLE  99th percentile, milliseconds
-- column: max_ms  DOUBLE  largest, milliseconds
-- note:   definitions as in `vllm bench serve`: ttft and e2e from arrival, frontend time included; tpot = (e2e -
--         ttft) / (output tokens - 1) per request, undefined for one token; itl = every gap between consecutive
--         tokens, pooled over requests.
-- note:   itl_request_mean is one mean of token gaps per request; queue is the wait for the first step; percentiles
--         interpolate linearly (quantile_cont).
SELECT
    run_id,
    metric,
    samples,
    mean_ms,
    p50_ms,
    p90_ms,
    p95_ms,
    p99_ms,
    max_ms
FROM run_latency
WHERE $run IS NULL OR run_id = $run
ORDER BY run_id, metric_rank(metric);
