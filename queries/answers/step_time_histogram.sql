-- step_time_histogram: how often does a step take so long?
-- kind:   answer
-- grain:  one row per run and bin that holds a step
-- needs:  steps
-- params: run VARCHAR = NULL, bins INTEGER = 60
-- column: run_id     VARCHAR run
-- column: from_ms    DOUBLE  lower edge, inside the bin, milliseconds
-- column: to_ms      DOUBLE  upper edge, outside the bin, milliseconds
-- column: steps      BIGINT  steps
-- column: step_share DOUBLE  share of steps
-- column: time_share DOUBLE  share of step time
-- note:   edges are evenly spaced on a logarithmic scale.
SELECT
    NULL::VARCHAR AS run_id,
    NULL::DOUBLE AS from_ms,
    NULL::DOUBLE AS to_ms,
    NULL::BIGINT AS steps,
    NULL::DOUBLE AS step_share,
    NULL::DOUBLE AS time_share
WHERE $run IS NULL;
