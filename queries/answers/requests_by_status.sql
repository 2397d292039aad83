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
SELECT
    NULL::VARCHAR AS run_id,
    NULL::VARCHAR AS log_status,
    NULL::VARCHAR AS outcome,
    NULL::BIGINT AS requests,
    NULL::DOUBLE AS request_share,
    NULL::BIGINT AS input_tokens,
    NULL::BIGINT AS output_tokens
WHERE $run IS NULL;
