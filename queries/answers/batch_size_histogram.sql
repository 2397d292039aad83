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
WITH width AS (
    SELECT run_id, most // $bins + 1 AS width
    FROM (SELECT run_id, MAX(scheduled) AS most FROM steps WHERE $run IS NULL OR run_id = $run GROUP BY run_id)
)
SELECT
    run_id,
    (scheduled // width * width)::BIGINT AS from_requests,
    (scheduled // width * width + width)::BIGINT AS to_requests,
    COUNT(*) AS steps,
    COUNT(*) / SUM(COUNT(*)) OVER in_run AS step_share,
    SUM(duration_ns) / NULLIF(SUM(SUM(duration_ns)) OVER in_run, 0) AS time_share
FROM steps
JOIN width USING (run_id)
GROUP BY run_id, width, scheduled // width
WINDOW in_run AS (PARTITION BY run_id)
ORDER BY run_id, from_requests;
