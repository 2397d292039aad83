-- engine_over_time: what are batch, queue and memory of each replica doing?
-- kind:   answer
-- grain:  one row per run, replica and bucket
-- needs:  step_intervals
-- params: run VARCHAR = NULL, points INTEGER = 300
-- column: run_id               VARCHAR   run
-- column: replica              SMALLINT  replica
-- column: bucket               BIGINT    number of the bucket, from 0
-- column: start_s              DOUBLE    start of the bucket, seconds from the start of the trace
-- column: width_s              DOUBLE    width of the bucket, seconds
-- column: start_time           TIMESTAMP start on the wall clock of report.time_zone; null for relative clocks
-- column: steps                BIGINT    steps that ended in the bucket
-- column: busy_share           DOUBLE    share of the bucket in which a step ran
-- column: step_mean_ms         DOUBLE    mean duration of those steps, milliseconds
-- column: running_mean         DOUBLE    requests running, time-weighted mean, idle time as zero
-- column: running_min          BIGINT    fewest
-- column: running_max          BIGINT    most
-- column: waiting_mean         DOUBLE    requests waiting, time-weighted mean
-- column: waiting_min          BIGINT    fewest
-- column: waiting_max          BIGINT    most
-- column: kv_mean_share        DOUBLE    KV blocks in use, time-weighted mean share
-- column: kv_min_share         DOUBLE    lowest share
-- column: kv_max_share         DOUBLE    highest share
-- column: cached_mean_share    DOUBLE    blocks holding cached prefixes, time-weighted mean share of the time with steps
-- column: prefill_tokens_per_s DOUBLE    prefill tokens computed per second
-- column: output_tokens_per_s  DOUBLE    tokens generated per second
-- column: hit_tokens_per_s     DOUBLE    tokens found in the prefix cache per second
-- column: preempted_per_s      DOUBLE    preemptions per second
SELECT
    NULL::VARCHAR AS run_id,
    NULL::SMALLINT AS replica,
    NULL::BIGINT AS bucket,
    NULL::DOUBLE AS start_s,
    NULL::DOUBLE AS width_s,
    NULL::TIMESTAMP AS start_time,
    NULL::BIGINT AS steps,
    NULL::DOUBLE AS busy_share,
    NULL::DOUBLE AS step_mean_ms,
    NULL::DOUBLE AS running_mean,
    NULL::BIGINT AS running_min,
    NULL::BIGINT AS running_max,
    NULL::DOUBLE AS waiting_mean,
    NULL::BIGINT AS waiting_min,
    NULL::BIGINT AS waiting_max,
    NULL::DOUBLE AS kv_mean_share,
    NULL::DOUBLE AS kv_min_share,
    NULL::DOUBLE AS kv_max_share,
    NULL::DOUBLE AS cached_mean_share,
    NULL::DOUBLE AS prefill_tokens_per_s,
    NULL::DOUBLE AS output_tokens_per_s,
    NULL::DOUBLE AS hit_tokens_per_s,
    NULL::DOUBLE AS preempted_per_s
WHERE $run IS NULL;
