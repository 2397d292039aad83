-- step_tokens: how many requests of a group sampled a token in a step and in the step before it?
-- kind:   macro
-- grain:  one row per run, replica, label and step in which there are any
-- needs:  minute_of, steps, token_spans
-- params: dimension VARCHAR, run VARCHAR, minutes INTEGER
-- column: run_id   VARCHAR run
-- column: label    VARCHAR tenant, model or class, as $dimension says; else null
-- column: minute   BIGINT  stretch of $minutes minutes in which the step ends; null unless $dimension is minute
-- column: gap_ns   BIGINT  how long ago they got the token before: the length of the step
-- column: requests BIGINT  how many
-- note:   a step that goes on with a request begins when the step before it ends; check steps_follow_each_other.
-- note:   spans are cut every 128 steps, so that they join by equal keys.
SELECT
    steps.run_id,
    label,
    minute_of($dimension, start_ns + duration_ns, $minutes) AS minute,
    duration_ns AS gap_ns,
    requests
FROM steps
JOIN (
    SELECT *, UNNEST(RANGE(from_step // 128, (to_step - 1) // 128 + 1)) AS chunk
    FROM token_spans($dimension, $run)
) AS span
    ON span.run_id = steps.run_id
    AND span.replica = steps.replica
    AND span.chunk = steps.step // 128
    AND step >= from_step
    AND step < to_step;
