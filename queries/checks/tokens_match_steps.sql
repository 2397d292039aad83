-- tokens_match_steps: has every request as many tokens as its steps and gaps say?
-- kind:   check
-- grain:  one row per run and request that has not
-- needs:  gaps, requests
-- column: run_id        VARCHAR run
-- column: request       BIGINT  row number in the trace
-- column: output_tokens INTEGER tokens generated
-- column: step_tokens   BIGINT  steps from its first token to its last, without those that gaps leaves out
WITH skipped AS (
    SELECT run_id, request, SUM(step - previous_step - 1)::BIGINT AS steps
    FROM gaps
    GROUP BY run_id, request
)
SELECT
    run_id,
    request,
    output_tokens,
    finish_step - first_token_step + 1 - COALESCE(skipped.steps, 0) AS step_tokens
FROM requests
LEFT JOIN skipped USING (run_id, request)
WHERE first_token_step IS NOT NULL AND step_tokens IS DISTINCT FROM output_tokens
ORDER BY run_id, request;
