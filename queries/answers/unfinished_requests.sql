-- unfinished_requests: which requests got no full answer?
-- kind:   answer
-- grain:  one row per run and request, first arrivals first
-- needs:  request_latency
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
    run_id,
    request,
    request_id,
    tenant,
    class,
    outcome,
    arrival_ns / 1e9 AS arrival_s,
    (finish_ns - arrival_ns) / 1e9 AS stay_s,
    input_tokens,
    output_tokens,
    preemptions
FROM request_latency
WHERE NOT completed AND ($run IS NULL OR run_id = $run)
QUALIFY ROW_NUMBER() OVER (PARTITION BY run_id ORDER BY arrival_ns, request) <= $most
ORDER BY run_id, arrival_ns, request;
