-- step_chunks: which gaps follow each other on a replica, 128 to a row?
-- kind:   macro
-- grain:  one row per run, replica and stretch of 128 steps
-- needs:  minute_of, step_gaps
-- params: dimension VARCHAR, run VARCHAR, minutes INTEGER
-- column: run_id     VARCHAR  run
-- column: replica    SMALLINT replica
-- column: chunk      BIGINT   step // 128
-- column: first_step BIGINT   step of the first entry
-- column: gaps_ns    BIGINT[] gap_ns of step_gaps, in order of steps
-- column: minutes_of BIGINT[] stretch of $minutes minutes in which each ends; null unless $dimension is minute
-- note:   a slice of a list is much cheaper than a join for each step.
SELECT
    run_id,
    replica,
    chunk,
    MIN(step) AS first_step,
    LIST(gap_ns ORDER BY step) AS gaps_ns,
    LIST(minute ORDER BY step) FILTER (WHERE minute IS NOT NULL) AS minutes_of
FROM (
    SELECT *, step // 128 AS chunk, minute_of($dimension, end_ns, $minutes) AS minute
    FROM step_gaps
    WHERE $run IS NULL OR run_id = $run
)
GROUP BY run_id, replica, chunk;
