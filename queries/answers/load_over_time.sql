-- load_over_time: what arrives, what is in the system, and what comes out?
-- kind:   answer
-- grain:  one row per run and bucket
-- needs:  request_latency, user_level
-- params: run VARCHAR = NULL, points INTEGER = 300
-- column: run_id              VARCHAR   run
-- column: bucket              BIGINT    number of the bucket, from 0
-- column: start_s             DOUBLE    start of the bucket, seconds from the start of the trace
-- column: width_s             DOUBLE    width of the bucket, seconds
-- column: start_time          TIMESTAMP start on the wall clock of report.time_zone; null for relative clocks
-- column: arrivals_per_s      DOUBLE    requests arriving per second
-- column: completed_per_s     DOUBLE    requests answered in full per second
-- column: unanswered_per_s    DOUBLE    requests refused, given up or never finished per second, by arrival
-- column: users_mean          DOUBLE    requests in the system, time-weighted mean
-- column: users_min           BIGINT    fewest at once
-- column: users_max           BIGINT    most at once
-- column: input_tokens_per_s  DOUBLE    prompt tokens arriving per second
-- column: output_tokens_per_s DOUBLE    tokens generated per second
-- column: hit_share           DOUBLE    share of prompt tokens found in the prefix cache, by first admission
-- column: slo_share           DOUBLE    share of requests within the SLO, by arrival
-- column: ttft_p95_ms         DOUBLE    95th percentile of ttft by arrival, milliseconds
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS bucket,
    NULL::DOUBLE AS start_s,
    NULL::DOUBLE AS width_s,
    NULL::TIMESTAMP AS start_time,
    NULL::DOUBLE AS arrivals_per_s,
    NULL::DOUBLE AS completed_per_s,
    NULL::DOUBLE AS unanswered_per_s,
    NULL::DOUBLE AS users_mean,
    NULL::BIGINT AS users_min,
    NULL::BIGINT AS users_max,
    NULL::DOUBLE AS input_tokens_per_s,
    NULL::DOUBLE AS output_tokens_per_s,
    NULL::DOUBLE AS hit_share,
    NULL::DOUBLE AS slo_share,
    NULL::DOUBLE AS ttft_p95_ms
WHERE $run IS NULL;
