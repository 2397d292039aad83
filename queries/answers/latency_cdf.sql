-- latency_cdf: what share of values is at most so long?
-- kind:   answer
-- grain:  one row per run, metric and share
-- needs:  latency_values
-- params: run VARCHAR = NULL
-- column: run_id   VARCHAR run
-- column: metric   VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: share    DOUBLE  share of values at or below value_ms, 0 to 1
-- column: value_ms DOUBLE  quantile, milliseconds
SELECT
    NULL::VARCHAR AS run_id,
    NULL::VARCHAR AS metric,
    NULL::DOUBLE AS share,
    NULL::DOUBLE AS value_ms
WHERE $run IS NULL;
