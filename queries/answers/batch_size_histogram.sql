-- batch_size_histogram: how often does a step hold so many requests?
-- kind:   answer
-- grain:  one row per run and bin that holds a step
-- needs:  steps
-- params: run VARCHAR = NULL, bins INTEGER = 60
-- column: run_id        VARCHAR run
-- column: from_requests BIGINT  fewest requests in the bin
-- column: to_requests   BIGINT  one more than the most requests in the bin
-- column: steps         BIGINT  steps
-- column: step_share    DOUBLE  share of steps
-- column: time_share    DOUBLE  share of step time
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS from_requests,
    NULL::BIGINT AS to_requests,
    NULL::BIGINT AS steps,
    NULL::DOUBLE AS step_share,
    NULL::DOUBLE AS time_share
WHERE $run IS NULL;
