-- gaps_match_steps: is every row of gaps the time between two steps of its request?
-- kind:   check
-- grain:  one row per run and row of gaps that is not
-- needs:  gaps, requests, steps
-- column: run_id  VARCHAR run
-- column: request BIGINT  row number in the trace
-- column: step    BIGINT  step after the gap
-- column: gap_ns  BIGINT  the gap as stored
-- column: step_ns BIGINT  time between the ends of the two steps
SELECT
    gaps.run_id,
    gaps.request,
    gaps.step,
    gap_ns,
    later.start_ns + later.duration_ns - earlier.start_ns - earlier.duration_ns AS step_ns
FROM gaps
LEFT JOIN requests
    ON requests.run_id = gaps.run_id AND requests.request = gaps.request AND requests.replica = gaps.replica
LEFT JOIN steps AS later
    ON later.run_id = gaps.run_id AND later.replica = gaps.replica AND later.step = gaps.step
LEFT JOIN steps AS earlier
    ON earlier.run_id = gaps.run_id AND earlier.replica = gaps.replica AND earlier.step = previous_step
WHERE step_ns IS DISTINCT FROM gap_ns
    OR COALESCE(previous_step < first_token_step OR gaps.step > finish_step, TRUE)
ORDER BY gaps.run_id, gaps.request, gaps.step;
