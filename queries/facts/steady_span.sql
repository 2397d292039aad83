-- steady_span: from when on, and until when, was a run in its steady state?
-- kind:   fact
-- grain:  one row per run that replayed a request
-- needs:  run_span, step_load
-- column: run_id  VARCHAR run
-- column: from_ns BIGINT  end of the warm-up; null if the run never settles before half of its steps are over
-- column: to_ns   BIGINT  last arrival: from there on the system only empties
-- note:   MSER-5 (White 1997) on the requests running in each step up to the last arrival: steps are averaged in
--         groups of five, and the warm-up is the beginning, at most half of the groups, without which the mean of the
--         others is known best: sum of squared deviations over the square of their number is least.
-- note:   with several replicas, the last one to settle decides.
WITH groups AS (
    SELECT run_id, replica, step // 5 AS number, SUM(running) AS level, MIN(start_ns) AS start_ns
    FROM step_load
    JOIN run_span USING (run_id)
    WHERE start_ns <= last_ns
    GROUP BY ALL
    HAVING COUNT(*) = 5
),
tails AS (
    SELECT
        run_id,
        replica,
        number,
        start_ns,
        COUNT(*) OVER tail AS kept,
        COUNT(*) OVER (PARTITION BY run_id, replica) AS every,
        SUM(level::HUGEINT) OVER tail AS total,
        SUM(level::HUGEINT * level::HUGEINT) OVER tail AS squares
    FROM groups
    WINDOW
        tail AS (PARTITION BY run_id, replica ORDER BY number ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
),
settled AS (
    -- The earliest of equals; none if the best is the last one that may be taken.
    SELECT
        run_id,
        replica,
        CASE
            WHEN FIRST(2 * kept - every ORDER BY spread, number) > 1 THEN FIRST(start_ns ORDER BY spread, number)
        END AS from_ns
    FROM (
        SELECT *, (kept * squares - total * total)::DOUBLE / (kept::DOUBLE * kept * kept) AS spread
        FROM tails
        WHERE 2 * kept >= every
    )
    GROUP BY run_id, replica
)
SELECT
    run_id,
    CASE WHEN COUNT(*) = COUNT(from_ns) THEN MAX(from_ns) END AS from_ns,
    ANY_VALUE(last_ns) AS to_ns
FROM run_span
LEFT JOIN settled USING (run_id)
GROUP BY run_id;
