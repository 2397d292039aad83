-- latency_in_window: how long do callers wait who arrive in a window?
-- kind:   answer
-- grain:  one row per run and metric
-- needs:  exact_mean, metric_rank, request_latency, steady_span
-- params: run VARCHAR = NULL, from_s DOUBLE = NULL, to_s DOUBLE = NULL
-- column: run_id  VARCHAR run
-- column: metric  VARCHAR ttft, tpot, itl_request_mean, e2e or queue
-- column: samples BIGINT  requests behind the row
-- column: mean_ms DOUBLE  mean, milliseconds
-- column: p50_ms  DOUBLE  median, milliseconds
-- column: p90_ms  DOUBLE  90th percentile, milliseconds
-- column: p95_ms  DOUBLE  95th percentile, milliseconds
-- column: p99_ms  DOUBLE  99th percentile, milliseconds
-- column: max_ms  DOUBLE  largest, milliseconds
-- note:   $from_s and $to_s are seconds from the start of the trace, both ends included; one that is not stated is the
--         end of the steady state (fact steady_span). A run that never settles has no row unless $from_s is stated.
-- note:   definitions as in answer latency; gaps between tokens pooled over requests (itl) are in latency_by_minute.
WITH bounds AS (
    SELECT
        run_id,
        COALESCE(($from_s * 1e9)::BIGINT, from_ns) AS from_ns,
        COALESCE(($to_s * 1e9)::BIGINT, to_ns) AS to_ns
    FROM steady_span
    WHERE $run IS NULL OR run_id = $run
),
found AS (
    SELECT
        run_id,
        UNNEST(['ttft', 'tpot', 'itl_request_mean', 'e2e', 'queue']) AS metric,
        UNNEST([ttft_ms, tpot_ms, itl_request_mean_ms, e2e_ms, queue_ms]) AS value_ms
    FROM request_latency
    JOIN bounds USING (run_id)
    WHERE arrival_ns >= from_ns AND arrival_ns <= to_ns
),
spread AS (
    SELECT
        run_id,
        metric,
        COUNT(*) AS samples,
        exact_mean(value_ms) AS mean_ms,
        MAX(value_ms) AS max_ms,
        QUANTILE_CONT(value_ms, [0.5, 0.9, 0.95, 0.99]) AS quantiles_ms
    FROM found
    WHERE value_ms IS NOT NULL
    GROUP BY run_id, metric
)
SELECT
    run_id,
    metric,
    samples,
    mean_ms,
    quantiles_ms[1] AS p50_ms,
    quantiles_ms[2] AS p90_ms,
    quantiles_ms[3] AS p95_ms,
    quantiles_ms[4] AS p99_ms,
    max_ms
FROM spread
ORDER BY run_id, metric_rank(metric);
