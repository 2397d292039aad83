-- token_spans: in which runs of steps did so many requests of a group sample a token twice in a row?
-- kind:   macro
-- grain:  one row per run, replica, label and stretch of steps
-- needs:  gaps, label_of, requests
-- params: dimension VARCHAR, run VARCHAR
-- column: run_id    VARCHAR  run
-- column: replica   SMALLINT replica
-- column: label     VARCHAR  tenant, model or class, as $dimension says; else null
-- column: from_step BIGINT   first step of the stretch
-- column: to_step   BIGINT   step after its last
-- column: requests  BIGINT   requests that sampled a token in each of its steps and in the step before it
-- note:   prefix sums over changes: +1 after a request's first token, -1 after its last, and the steps of a row of
--         gaps left out.
WITH asked AS (
    SELECT run_id, request, replica, label_of($dimension, tenant, model, class) AS label, first_token_step, finish_step
    FROM requests
    WHERE finish_step > first_token_step AND ($run IS NULL OR run_id = $run)
),
left_out AS (
    SELECT run_id, gaps.replica, label, previous_step, step
    FROM gaps
    JOIN asked USING (run_id, request)
),
change AS (
    SELECT run_id, replica, label, first_token_step + 1 AS step, 1 AS change FROM asked
    UNION ALL
    SELECT run_id, replica, label, finish_step + 1, -1 FROM asked
    UNION ALL
    SELECT run_id, replica, label, previous_step + 1, -1 FROM left_out
    UNION ALL
    SELECT run_id, replica, label, step + 1, 1 FROM left_out
),
stretch AS (
    SELECT
        run_id,
        replica,
        label,
        step AS from_step,
        LEAD(step) OVER in_order AS to_step,
        (SUM(SUM(change)) OVER in_order)::BIGINT AS requests
    FROM change
    GROUP BY run_id, replica, label, step
    WINDOW in_order AS (PARTITION BY run_id, replica, label ORDER BY step)
)
SELECT run_id, replica, label, from_step, to_step, requests
FROM stretch
WHERE requests > 0;
