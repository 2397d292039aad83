-- latency_cdf: what share of values is at most so long?
-- kind:   answer
-- grain:  one row per run, metric and share
-- needs:  itl_quantiles, latency_values, metric_rank, quantile_grid
-- params: run VARCHAR = NULL
-- column: run_id   VARCHAR run
-- column: metric   VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: share    DOUBLE  share of values at or below value_ms, 0 to 1
-- column: value_ms DOUBLE  quantile, milliseconds
-- note:   definitions as in `vllm bench serve`: ttft and e2e from arrival, frontend time included; tpot = (e2e -
--         ttft) / (output tokens - 1) per request, undefined for one token; itl = every gap between consecutive
--         tokens, pooled over requests.
-- note:   itl_request_mean is one mean of token gaps per request; queue is the wait for the first step; percentiles
--         interpolate linearly (quantile_cont).
WITH spread AS (
    SELECT run_id, metric, QUANTILE_CONT(value_ms, quantile_grid()) AS quantiles_ms
    FROM latency_values('all', $run, 1)
    GROUP BY ALL
    UNION ALL
    SELECT run_id, 'itl', quantiles_ms
    FROM itl_quantiles('all', $run, quantile_grid(), 1)
)
SELECT run_id, metric, UNNEST(quantile_grid()) AS share, UNNEST(quantiles_ms) AS value_ms
FROM spread
ORDER BY run_id, metric_rank(metric), share;
