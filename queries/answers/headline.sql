-- headline: how did the run go, in one row?
-- kind:   answer
-- grain:  one row per run
-- needs:  kv_memory, request_latency, requests, run_latency, runs, step_summary, throughput, user_level
-- params: run VARCHAR = NULL
-- column: run_id              VARCHAR run
-- column: requests            BIGINT  requests replayed, refused ones included
-- column: not_replayed        BIGINT  trace rows left out of the replay
-- column: duration_s          DOUBLE  first arrival to last event, seconds
-- column: offered_rps         DOUBLE  requests per second between first and last arrival
-- column: completed_rps       DOUBLE  requests answered in full per second of duration_s
-- column: goodput_rps         DOUBLE  requests within the SLO per second of duration_s
-- column: slo_share           DOUBLE  share of requests within the SLO
-- column: input_tokens_per_s  DOUBLE  prompt tokens of requests that ran, per second of duration_s
-- column: output_tokens_per_s DOUBLE  tokens generated per second of duration_s
-- column: users_mean          DOUBLE  requests in the system, time-weighted mean
-- column: users_peak          BIGINT  most requests in the system at once
-- column: ttft_p50_ms         DOUBLE  median of ttft, milliseconds
-- column: ttft_p95_ms         DOUBLE  95th percentile of ttft, milliseconds
-- column: tpot_p50_ms         DOUBLE  median of tpot, milliseconds
-- column: tpot_p95_ms         DOUBLE  95th percentile of tpot, milliseconds
-- column: itl_p95_ms          DOUBLE  95th percentile of itl, milliseconds
-- column: e2e_p50_ms          DOUBLE  median of e2e, milliseconds
-- column: e2e_p95_ms          DOUBLE  95th percentile of e2e, milliseconds
-- column: queue_p95_ms        DOUBLE  95th percentile of queue time, milliseconds
-- column: kv_mean_share       DOUBLE  KV blocks in use, time-weighted mean share
-- column: kv_peak_share       DOUBLE  KV blocks in use, highest share
-- column: busy_share          DOUBLE  share of duration_s in which a step ran
-- column: hit_share           DOUBLE  share of prompt tokens found in the prefix cache
-- column: preemptions         BIGINT  preemptions
-- note:   a request within the SLO was answered in full and kept every limit of its class; one that was refused,
--         given up or never finished misses it.
-- note:   rows of the trace that were not replayed count nowhere.
-- note:   duration_s ends with the last event, so a queue that drains after the last arrival lowers the rates;
--         offered_rps does not depend on it.
-- note:   latencies as in answer latency, memory as in kv_memory.
WITH asked AS (
    SELECT run_id, COUNT(*) FILTER (WHERE outcome = 'not_replayed') AS not_replayed
    FROM requests
    GROUP BY run_id
),
waits AS (
    SELECT
        run_id,
        ANY_VALUE(p50_ms) FILTER (WHERE metric = 'ttft') AS ttft_p50_ms,
        ANY_VALUE(p95_ms) FILTER (WHERE metric = 'ttft') AS ttft_p95_ms,
        ANY_VALUE(p50_ms) FILTER (WHERE metric = 'tpot') AS tpot_p50_ms,
        ANY_VALUE(p95_ms) FILTER (WHERE metric = 'tpot') AS tpot_p95_ms,
        ANY_VALUE(p95_ms) FILTER (WHERE metric = 'itl') AS itl_p95_ms,
        ANY_VALUE(p50_ms) FILTER (WHERE metric = 'e2e') AS e2e_p50_ms,
        ANY_VALUE(p95_ms) FILTER (WHERE metric = 'e2e') AS e2e_p95_ms,
        ANY_VALUE(p95_ms) FILTER (WHERE metric = 'queue') AS queue_p95_ms
    FROM run_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
),
sums AS (
    SELECT
        run_id,
        SUM(cached_tokens) FILTER (WHERE ran) / NULLIF(SUM(input_tokens) FILTER (WHERE ran), 0) AS hit_share,
        COALESCE(SUM(preemptions), 0)::BIGINT AS preemptions
    FROM request_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
),
users AS (
    SELECT run_id, SUM(users * (end_ns - start_ns)) AS users_ns, MAX(users) AS users_peak
    FROM user_level
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
)
SELECT
    run_id,
    COALESCE(requests, 0) AS requests,
    COALESCE(not_replayed, 0) AS not_replayed,
    duration_s,
    offered_rps,
    completed_rps,
    goodput_rps,
    slo_share,
    input_tokens_per_s,
    output_tokens_per_s,
    users_ns / 1e9 / duration_s AS users_mean,
    users_peak,
    ttft_p50_ms,
    ttft_p95_ms,
    tpot_p50_ms,
    tpot_p95_ms,
    itl_p95_ms,
    e2e_p50_ms,
    e2e_p95_ms,
    queue_p95_ms,
    mean_share AS kv_mean_share,
    peak_share AS kv_peak_share,
    busy_share,
    hit_share,
    COALESCE(preemptions, 0) AS preemptions
FROM runs
LEFT JOIN asked USING (run_id)
LEFT JOIN throughput($run) USING (run_id)
LEFT JOIN waits USING (run_id)
LEFT JOIN sums USING (run_id)
LEFT JOIN users USING (run_id)
LEFT JOIN kv_memory($run) USING (run_id)
LEFT JOIN step_summary($run) USING (run_id)
WHERE $run IS NULL OR run_id = $run
ORDER BY run_id;
