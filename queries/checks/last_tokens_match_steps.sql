-- last_tokens_match_steps: do first token and finish fall on the ends of their steps?
-- kind:   check
-- grain:  one row per run and request that does not
-- needs:  requests, steps
-- column: run_id         VARCHAR run
-- column: request        BIGINT  row number in the trace
-- column: first_token_ns BIGINT  stamp of the first token
-- column: first_end_ns   BIGINT  end of the step that sampled it
-- column: finish_ns      BIGINT  when it left
-- column: last_end_ns    BIGINT  end of the step that sampled its last token
-- note:   only a request that finished leaves at the end of a step.
SELECT
    requests.run_id,
    requests.request,
    first_token_ns,
    early.start_ns + early.duration_ns AS first_end_ns,
    finish_ns,
    late.start_ns + late.duration_ns AS last_end_ns
FROM requests
LEFT JOIN steps AS early
    ON early.run_id = requests.run_id AND early.replica = requests.replica AND early.step = first_token_step
LEFT JOIN steps AS late
    ON late.run_id = requests.run_id AND late.replica = requests.replica AND late.step = finish_step
WHERE first_token_step IS NOT NULL
    AND (
        first_end_ns IS DISTINCT FROM first_token_ns
        OR last_end_ns IS NULL
        OR (outcome IN ('finished', 'max_model_len') AND last_end_ns <> finish_ns)
    )
ORDER BY requests.run_id, requests.request;
