-- latency_histogram: how are latencies spread, on a logarithmic scale?
-- kind:   answer
-- grain:  one row per run, metric and bin that holds a value
-- needs:  latency_values
-- params: run VARCHAR = NULL
-- column: run_id      VARCHAR run
-- column: metric      VARCHAR ttft, tpot, itl, itl_request_mean, e2e or queue
-- column: from_ms     DOUBLE  lower edge, inside the bin
-- column: to_ms       DOUBLE  upper edge, outside the bin
-- column: samples     BIGINT  values in the bin
-- column: sample_share DOUBLE  share of the metric's values
SELECT
    NULL::VARCHAR AS run_id,
    NULL::VARCHAR AS metric,
    NULL::DOUBLE AS from_ms,
    NULL::DOUBLE AS to_ms,
    NULL::BIGINT AS samples,
    NULL::DOUBLE AS sample_share
WHERE $run IS NULL;
