-- waiting_queue: how long is the queue?
-- kind:   answer
-- grain:  one row per run
-- needs:  step_intervals
-- params: run VARCHAR = NULL
-- column: run_id        VARCHAR run
-- column: mean_requests DOUBLE  requests waiting, time-weighted mean per replica
-- column: p95_requests  BIGINT  requests waiting, not exceeded for 95 % of the time
-- column: peak_requests BIGINT  most requests waiting at once
-- column: waiting_share DOUBLE  share of time with someone waiting
-- column: wait_p50_ms   DOUBLE  median queue time of requests, milliseconds
-- column: wait_p95_ms   DOUBLE  95th percentile of queue time, milliseconds
-- column: wait_max_ms   DOUBLE  longest queue time, milliseconds
-- note:   the queue is known at each decision; in idle time it is empty.
SELECT
    NULL::VARCHAR AS run_id,
    NULL::DOUBLE AS mean_requests,
    NULL::BIGINT AS p95_requests,
    NULL::BIGINT AS peak_requests,
    NULL::DOUBLE AS waiting_share,
    NULL::DOUBLE AS wait_p50_ms,
    NULL::DOUBLE AS wait_p95_ms,
    NULL::DOUBLE AS wait_max_ms
WHERE $run IS NULL;
