-- unfinished_requests: which requests got no full answer?
-- kind:   answer
-- grain:  one row per run and request, first arrivals first
-- needs:  requests
-- params: run VARCHAR = NULL, most INTEGER = 100
-- column: run_id        VARCHAR run
-- column: request       BIGINT  row number in the trace
-- column: request_id    VARCHAR id in the trace
-- column: tenant        VARCHAR tenant, as logged
-- column: class         VARCHAR class, as logged
-- column: outcome       VARCHAR rejected, timed_out, queue_full or never_finished
-- column: arrival_s     DOUBLE  arrival, seconds from the start of the trace
-- column: stay_s        DOUBLE  arrival to leaving, seconds; null if it never left
-- column: input_tokens  INTEGER prompt tokens
-- column: output_tokens INTEGER tokens generated
-- column: preemptions   INTEGER times it was preempted
-- note:   at most $most rows of each run.
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS request,
    NULL::VARCHAR AS request_id,
    NULL::VARCHAR AS tenant,
    NULL::VARCHAR AS class,
    NULL::VARCHAR AS outcome,
    NULL::DOUBLE AS arrival_s,
    NULL::DOUBLE AS stay_s,
    NULL::INTEGER AS input_tokens,
    NULL::INTEGER AS output_tokens,
    NULL::INTEGER AS preemptions
WHERE $run IS NULL;
