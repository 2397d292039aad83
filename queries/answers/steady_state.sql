-- steady_state: when was the system filled, and what did it do from then to the last arrival?
-- kind:   answer
-- grain:  one row per run
-- needs:  request_latency, run_span, steady_span, step_load
-- params: run VARCHAR = NULL, from_s DOUBLE = NULL, to_s DOUBLE = NULL
-- column: run_id              VARCHAR   run
-- column: from_s              DOUBLE    start of the window, seconds from the start of the trace
-- column: to_s                DOUBLE    its end
-- column: from_time           TIMESTAMP start on the wall clock of report.time_zone; null for relative clocks
-- column: to_time             TIMESTAMP its end there
-- column: settled             BOOLEAN   the run settles before half of its steps are over
-- column: before_requests     BIGINT    requests that arrived before the window
-- column: requests            BIGINT    requests that arrived in it
-- column: after_s             DOUBLE    from its end to the last event, seconds
-- column: output_tokens       BIGINT    tokens made in it, whoever they were for
-- column: output_tokens_per_s DOUBLE    the same per second
-- column: running_mean        DOUBLE    requests running in a step, mean over its steps
-- note:   the window is the steady state (fact steady_span) unless $from_s and $to_s state another one; a run that
--         never settles has none.
-- note:   tokens count by the time they were made: in the step that ends in the window.
WITH bounds AS (
    SELECT
        run_id,
        from_ns IS NOT NULL AS settled,
        COALESCE(($from_s * 1e9)::BIGINT, from_ns) AS from_ns,
        COALESCE(($to_s * 1e9)::BIGINT, to_ns) AS to_ns
    FROM steady_span
    WHERE $run IS NULL OR run_id = $run
),
made AS (
    SELECT run_id, SUM(sampled)::BIGINT AS output_tokens, AVG(running) AS running_mean
    FROM step_load
    JOIN bounds USING (run_id)
    WHERE end_ns > from_ns AND end_ns <= to_ns
    GROUP BY run_id
),
asked AS (
    SELECT
        run_id,
        COUNT(*) FILTER (WHERE arrival_ns < from_ns) AS before_requests,
        COUNT(*) FILTER (WHERE arrival_ns >= from_ns AND arrival_ns <= to_ns) AS requests
    FROM request_latency
    JOIN bounds USING (run_id)
    GROUP BY run_id
)
SELECT
    run_id,
    from_ns / 1e9 AS from_s,
    to_ns / 1e9 AS to_s,
    TIMEZONE(time_zone, origin_time + TO_MICROSECONDS((from_ns / 1e3)::BIGINT)) AS from_time,
    TIMEZONE(time_zone, origin_time + TO_MICROSECONDS((to_ns / 1e3)::BIGINT)) AS to_time,
    settled,
    before_requests,
    requests,
    (end_ns - to_ns) / 1e9 AS after_s,
    CASE WHEN from_ns IS NOT NULL THEN COALESCE(output_tokens, 0) END AS output_tokens,
    COALESCE(output_tokens, 0) / (NULLIF(to_ns - from_ns, 0) / 1e9) AS output_tokens_per_s,
    running_mean
FROM bounds
JOIN run_span USING (run_id)
LEFT JOIN asked USING (run_id)
LEFT JOIN made USING (run_id)
ORDER BY run_id;
