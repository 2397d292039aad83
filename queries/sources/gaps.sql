-- gaps: which token gaps are not one step of their replica?
-- kind:   source
-- grain:  one row per run and token gap that is not one step of its replica
-- column: run_id        VARCHAR  run
-- column: request       BIGINT   row number in the trace
-- column: replica       SMALLINT replica that served it
-- column: step          BIGINT   step that sampled the token after the gap
-- column: previous_step BIGINT   step that sampled the token before the gap
-- column: gap_ns        BIGINT   time between the ends of the two steps
SELECT
    run_id,
    request,
    replica,
    step,
    previous_step,
    gap_ns
FROM stored.gaps;
