-- user_level: how many requests were in the system, and when did that change?
-- kind:   fact
-- grain:  one row per run and stretch of time between two changes
-- needs:  request_latency, run_span
-- column: run_id   VARCHAR run
-- column: start_ns BIGINT  start of the stretch
-- column: end_ns   BIGINT  end of the stretch
-- column: users    BIGINT  requests that had arrived and not left
-- note:   counted by stretches of ten minutes, so that a run of millions of requests is never sorted as one.
-- note:   a request that never left is in the system until the end of the run; one refused at once is not counted.
WITH changes AS (
    SELECT run_id, arrival_ns AS at_ns, 1 AS change
    FROM request_latency
    UNION ALL
    SELECT
        run_id,
        COALESCE(finish_ns, CASE WHEN outcome IN ('rejected', 'queue_full') THEN arrival_ns ELSE end_ns END),
        -1
    FROM request_latency
    JOIN run_span USING (run_id)
),
moments AS (
    SELECT run_id, at_ns // 600_000_000_000 AS stretch, at_ns, SUM(change) AS change
    FROM changes
    GROUP BY run_id, at_ns
),
stretches AS (
    SELECT
        run_id,
        stretch,
        SUM(SUM(change)) OVER in_time - SUM(change) AS users_before,
        LEAD(MIN(at_ns)) OVER in_time AS next_ns
    FROM moments
    GROUP BY run_id, stretch
    WINDOW in_time AS (PARTITION BY run_id ORDER BY stretch)
),
levels AS (
    SELECT
        m.run_id,
        m.at_ns AS start_ns,
        COALESCE(LEAD(m.at_ns) OVER in_time, s.next_ns) AS end_ns,
        (s.users_before + SUM(m.change) OVER in_time)::BIGINT AS users
    FROM moments AS m
    INNER JOIN stretches AS s ON s.run_id = m.run_id AND s.stretch = m.stretch
    WINDOW in_time AS (PARTITION BY m.run_id, m.stretch ORDER BY m.at_ns)
)
SELECT run_id, start_ns, end_ns, users
FROM levels
WHERE end_ns IS NOT NULL;
