-- latency_values: what are the latencies of every request, one metric per row?
-- kind:   macro
-- grain:  one row per run, request and metric that has a value
-- needs:  label_of, minute_of, request_latency
-- params: dimension VARCHAR, run VARCHAR, minutes INTEGER
-- column: run_id   VARCHAR run
-- column: label    VARCHAR tenant, model or class, as $dimension says; else null
-- column: minute   BIGINT  stretch of $minutes minutes in which the request arrived; null unless $dimension is minute
-- column: metric   VARCHAR ttft, tpot, itl_request_mean, e2e or queue
-- column: value_ms DOUBLE  value, milliseconds
SELECT run_id, label, minute, metric, value_ms
FROM (
    SELECT
        run_id,
        label_of($dimension, tenant, model, class) AS label,
        minute_of($dimension, arrival_ns, $minutes) AS minute,
        UNNEST(['ttft', 'tpot', 'itl_request_mean', 'e2e', 'queue']) AS metric,
        UNNEST([ttft_ms, tpot_ms, itl_request_mean_ms, e2e_ms, queue_ms]) AS value_ms
    FROM request_latency
    WHERE $run IS NULL OR run_id = $run
)
WHERE value_ms IS NOT NULL;
