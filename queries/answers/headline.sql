-- headline: how did the run go, in one row?
-- kind:   answer
-- grain:  one row per run
-- needs:  request_latency, latency_values, step_intervals, user_level
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
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS requests,
    NULL::BIGINT AS not_replayed,
    NULL::DOUBLE AS duration_s,
    NULL::DOUBLE AS offered_rps,
    NULL::DOUBLE AS completed_rps,
    NULL::DOUBLE AS goodput_rps,
    NULL::DOUBLE AS slo_share,
    NULL::DOUBLE AS input_tokens_per_s,
    NULL::DOUBLE AS output_tokens_per_s,
    NULL::DOUBLE AS users_mean,
    NULL::BIGINT AS users_peak,
    NULL::DOUBLE AS ttft_p50_ms,
    NULL::DOUBLE AS ttft_p95_ms,
    NULL::DOUBLE AS tpot_p50_ms,
    NULL::DOUBLE AS tpot_p95_ms,
    NULL::DOUBLE AS itl_p95_ms,
    NULL::DOUBLE AS e2e_p50_ms,
    NULL::DOUBLE AS e2e_p95_ms,
    NULL::DOUBLE AS queue_p95_ms,
    NULL::DOUBLE AS kv_mean_share,
    NULL::DOUBLE AS kv_peak_share,
    NULL::DOUBLE AS busy_share,
    NULL::DOUBLE AS hit_share,
    NULL::BIGINT AS preemptions
WHERE $run IS NULL;
