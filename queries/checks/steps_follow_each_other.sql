-- steps_follow_each_other: is a step missing, out of place, or begun before the one before it ended?
-- kind:   check
-- grain:  one row per run, replica and step that is
-- needs:  steps
-- column: run_id   VARCHAR  run
-- column: replica  SMALLINT replica
-- column: step     BIGINT   step
-- column: start_ns BIGINT   when it began
-- column: free_ns  BIGINT   when the step before ended
-- note:   in the order of the files. A step that only preempts never reaches the GPU, so it
-- note:   has no length and may be decided while the one before it runs.
WITH placed AS (
    SELECT
        run_id,
        replica,
        step,
        scheduled_ns,
        start_ns,
        duration_ns,
        scheduled,
        LAG(start_ns + duration_ns) OVER () AS free_ns,
        LAG(step) OVER () AS step_before,
        LAG(run_id) OVER () = run_id AND LAG(replica) OVER () = replica AS has_before
    FROM steps
)
SELECT run_id, replica, step, start_ns, free_ns
FROM placed
WHERE CASE
    WHEN has_before THEN step <> step_before + 1 OR (scheduled > 0 AND start_ns < free_ns)
    ELSE step <> 0
END
    OR scheduled_ns > start_ns
    OR duration_ns < 0;
