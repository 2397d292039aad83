-- latency_histogram: how are latencies spread, on a logarithmic scale?
-- kind:   answer
-- grain:  one row per run, metric and bin that holds a value
-- needs:  latency_values, metric_rank, odd_gaps, step_tokens
-- params: run VARCHAR = NULL
-- column: run_id       VARCHAR run
-- column: metric       VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: from_ms      DOUBLE  lower edge, inside the bin
-- column: to_ms        DOUBLE  upper edge, outside the bin
-- column: samples      BIGINT  values in the bin
-- column: sample_share DOUBLE  share of the metric's values
-- note:   ten bins per factor of ten; values of 0 are in a bin of their own, from 0 to 0.
-- note:   definitions as in `vllm bench serve`: ttft and e2e from arrival, frontend time included; tpot = (e2e -
--         ttft) / (output tokens - 1) per request, undefined for one token; itl = every gap between consecutive
--         tokens, pooled over requests.
-- note:   itl_request_mean is one mean of token gaps per request; queue is the wait for the first step; percentiles
--         interpolate linearly (quantile_cont).
WITH measured AS (
    SELECT run_id, metric, value_ms, 1 AS samples
    FROM latency_values('all', $run, 1)
    UNION ALL
    SELECT run_id, 'itl', gap_ns / 1e6, requests
    FROM step_tokens('all', $run, 1)
    UNION ALL
    SELECT run_id, 'itl', gap_ns / 1e6, 1
    FROM odd_gaps('all', $run, 1)
),
binned AS (
    SELECT run_id, metric, FLOOR(10 * LOG10(NULLIF(value_ms, 0)))::INTEGER AS bin, SUM(samples)::BIGINT AS samples
    FROM measured
    GROUP BY ALL
)
SELECT
    run_id,
    metric,
    COALESCE(10 ^ (bin / 10), 0) AS from_ms,
    COALESCE(10 ^ ((bin + 1) / 10), 0) AS to_ms,
    samples,
    samples / SUM(samples) OVER (PARTITION BY run_id, metric) AS sample_share
FROM binned
ORDER BY run_id, metric_rank(metric), from_ms, to_ms;
