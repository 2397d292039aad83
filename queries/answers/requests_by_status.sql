-- requests_by_status: what became of the requests of each log status?
-- kind:   answer
-- grain:  one row per run, log status and outcome
-- needs:  requests
-- params: run VARCHAR = NULL
-- column: run_id        VARCHAR run
-- column: log_status    VARCHAR status in the log
-- column: outcome       VARCHAR what the replay made of it
-- column: requests      BIGINT  requests
-- column: request_share DOUBLE  share of all trace rows of the run
-- column: input_tokens  BIGINT  prompt tokens; null where none is known
-- column: output_tokens BIGINT  tokens generated in the replay; null where none was replayed
-- note:   log_status is what the log says, outcome what the replay did.
SELECT
    run_id,
    log_status,
    outcome,
    COUNT(*) AS requests,
    COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY run_id) AS request_share,
    SUM(input_tokens)::BIGINT AS input_tokens,
    SUM(output_tokens)::BIGINT AS output_tokens
FROM requests
WHERE $run IS NULL OR run_id = $run
GROUP BY run_id, log_status, outcome
ORDER BY run_id, requests DESC, log_status, outcome;
