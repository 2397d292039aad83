-- request_stamps_rise: does any request go back in time?
-- kind:   check
-- grain:  one row per run and request that does
-- needs:  requests
-- column: run_id             VARCHAR run
-- column: request            BIGINT  row number in the trace
-- column: arrival_ns         BIGINT  arrival
-- column: first_scheduled_ns BIGINT  start of its first step
-- column: first_token_ns     BIGINT  end of the step with its first token
-- column: finish_ns          BIGINT  when it left
SELECT run_id, request, arrival_ns, first_scheduled_ns, first_token_ns, finish_ns
FROM requests
WHERE arrival_ns > first_scheduled_ns
    OR first_scheduled_ns > first_token_ns
    OR first_token_ns > finish_ns
    OR arrival_ns > finish_ns
    OR (first_token_ns IS NOT NULL AND first_scheduled_ns IS NULL)
ORDER BY run_id, request;
