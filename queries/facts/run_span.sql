-- run_span: when did a run begin and end?
-- kind:   fact
-- grain:  one row per run that replayed a request
-- needs:  requests, runs, steps
-- column: run_id      VARCHAR     run
-- column: first_ns    BIGINT      first arrival
-- column: last_ns     BIGINT      last arrival
-- column: end_ns      BIGINT      last arrival, end of the last step or last leaving, whichever is latest
-- column: duration_s  DOUBLE      first_ns to end_ns, seconds; null if they are the same
-- column: replicas    BIGINT      replicas that ran a step
-- column: origin_time TIMESTAMPTZ clock time of nanosecond 0; null for relative clocks
-- column: rate_scale  DOUBLE      arrival offsets were divided by this
-- column: time_zone   VARCHAR     time zone of clock times in answers
-- note:   clock times go on from origin_time at the pace of the replay, whatever rate_scale is.
WITH arrivals AS (
    SELECT
        run_id,
        MIN(arrival_ns) AS first_ns,
        MAX(arrival_ns) AS last_ns,
        MAX(finish_ns) AS finish_ns,
        ARG_MIN(arrival_time, request) AS known_time,
        ARG_MIN(arrival_ns, request) FILTER (WHERE arrival_time IS NOT NULL) AS known_ns
    FROM requests
    WHERE outcome <> 'not_replayed'
    GROUP BY run_id
),
work AS (
    SELECT run_id, MAX(start_ns + duration_ns) AS end_ns, COUNT(DISTINCT replica) AS replicas
    FROM steps
    GROUP BY run_id
)
SELECT
    run_id,
    first_ns,
    last_ns,
    GREATEST(last_ns, finish_ns, end_ns) AS end_ns,
    NULLIF(GREATEST(last_ns, finish_ns, end_ns) - first_ns, 0) / 1e9 AS duration_s,
    COALESCE(replicas, 0) AS replicas,
    known_time - TO_MICROSECONDS((known_ns * COALESCE(rate_scale, 1) / 1e3)::BIGINT) AS origin_time,
    COALESCE(rate_scale, 1) AS rate_scale,
    time_zone
FROM arrivals
JOIN runs USING (run_id)
LEFT JOIN work USING (run_id);
