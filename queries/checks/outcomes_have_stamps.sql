-- outcomes_have_stamps: does every outcome come with the stamps and tokens that it implies?
-- kind:   check
-- grain:  one row per run and request that lacks one, or has one too many
-- needs:  requests
-- column: run_id        VARCHAR run
-- column: request       BIGINT  row number in the trace
-- column: outcome       VARCHAR what the replay made of it
-- column: output_tokens INTEGER tokens generated
-- column: finish_ns     BIGINT  when it left
SELECT run_id, request, outcome, output_tokens, finish_ns
FROM requests
WHERE (outcome IN ('finished', 'max_model_len', 'cancelled')
        AND (output_tokens < 1 OR COALESCE(first_token_ns, first_token_step, finish_ns, finish_step, replica) IS NULL))
    OR (outcome IN ('rejected', 'queue_full') AND (first_scheduled_ns IS NOT NULL OR output_tokens > 0))
    OR (outcome = 'not_replayed' AND COALESCE(first_scheduled_ns, output_tokens, finish_ns) IS NOT NULL)
    OR (output_tokens > 0) <> (first_token_step IS NOT NULL)
ORDER BY run_id, request;
