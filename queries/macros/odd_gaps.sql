-- odd_gaps: which token gaps are longer than one step?
-- kind:   macro
-- grain:  one row per run and row of gaps
-- needs:  gaps, label_of, minute_of, requests, steps
-- params: dimension VARCHAR, run VARCHAR, minutes INTEGER
-- column: run_id VARCHAR run
-- column: label  VARCHAR tenant, model or class, as $dimension says; else null
-- column: minute BIGINT  stretch of $minutes minutes in which the gap ends; null unless $dimension is minute
-- column: gap_ns BIGINT  the gap
SELECT
    run_id,
    label_of($dimension, tenant, model, class) AS label,
    minute_of($dimension, start_ns + duration_ns, $minutes) AS minute,
    gap_ns
FROM gaps
JOIN requests USING (run_id, request)
JOIN steps ON steps.run_id = gaps.run_id AND steps.replica = gaps.replica AND steps.step = gaps.step
WHERE $run IS NULL OR gaps.run_id = $run;
