-- step_chunks: when did steps end that follow each other on a replica, 128 to a row?
-- kind:   macro
-- grain:  one row per run, replica and stretch of 128 steps
-- needs:  steps
-- params: run VARCHAR
-- column: run_id     VARCHAR  run
-- column: replica    SMALLINT replica
-- column: chunk      BIGINT   step // 128
-- column: first_step BIGINT   step of the first entry: the last step of the chunk before, if there is one
-- column: ends_ns    BIGINT[] when each of them ended, in order of steps
-- note:   a slice of a list is much cheaper than a join for each step, and a list than a window over all steps.
SELECT
    run_id,
    replica,
    chunk,
    MIN(step) AS first_step,
    ARG_MIN(end_ns, step, 129) AS ends_ns
FROM (
    SELECT
        run_id,
        replica,
        step,
        start_ns + duration_ns AS end_ns,
        UNNEST(CASE WHEN step % 128 = 127 THEN [step // 128, step // 128 + 1] ELSE [step // 128] END) AS chunk
    FROM steps
    WHERE $run IS NULL OR run_id = $run
)
GROUP BY run_id, replica, chunk;
