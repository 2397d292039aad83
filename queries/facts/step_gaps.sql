-- step_gaps: how long after the step before did each step end?
-- kind:   fact
-- grain:  one row per run, replica and step but the first
-- needs:  steps
-- column: run_id  VARCHAR  run
-- column: replica SMALLINT replica
-- column: step    BIGINT   step
-- column: end_ns  BIGINT   when it ended
-- column: gap_ns  BIGINT   from the end of the step before to its end
-- note:   steps are stored in order and DuckDB keeps that order under OVER (), so nothing is sorted; check
--         steps_follow_each_other.
-- note:   a request that samples a token in both steps sees this gap between the two tokens.
SELECT
    run_id,
    replica,
    step,
    start_ns + duration_ns AS end_ns,
    start_ns + duration_ns - LAG(start_ns + duration_ns) OVER () AS gap_ns
FROM steps
QUALIFY LAG(run_id) OVER () = run_id AND LAG(replica) OVER () = replica AND LAG(step) OVER () = step - 1;
