-- observed_cdf: how are latencies spread in the log, and how in the replay?
-- kind:   answer
-- grain:  one row per run, metric, side and share
-- needs:  metric_rank, observed_latency, quantile_grid
-- params: run VARCHAR = NULL
-- column: run_id   VARCHAR run
-- column: metric   VARCHAR ttft, tpot or e2e
-- column: side     VARCHAR observed (in the log) or predicted (in the replay)
-- column: share    DOUBLE  share of requests at or below value_ms, 0 to 1
-- column: value_ms DOUBLE  quantile, milliseconds
-- note:   of the same requests on both sides; quantiles interpolate linearly (quantile_cont).
WITH spread AS (
    SELECT
        run_id,
        metric,
        UNNEST(['observed', 'predicted']) AS side,
        UNNEST([
            QUANTILE_CONT(observed_ms, quantile_grid()), QUANTILE_CONT(predicted_ms, quantile_grid())
        ]) AS quantiles_ms
    FROM observed_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id, metric
)
SELECT run_id, metric, side, UNNEST(quantile_grid()) AS share, UNNEST(quantiles_ms) AS value_ms
FROM spread
ORDER BY run_id, metric_rank(metric), side, share;
