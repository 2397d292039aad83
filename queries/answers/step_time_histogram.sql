-- step_time_histogram: how often does a step take so long?
-- kind:   answer
-- grain:  one row per run and bin that holds a step
-- needs:  steps
-- params: run VARCHAR = NULL, bins INTEGER = 60
-- column: run_id     VARCHAR run
-- column: from_ms    DOUBLE  lower edge, inside the bin, milliseconds
-- column: to_ms      DOUBLE  upper edge, outside the bin, milliseconds
-- column: steps      BIGINT  steps
-- column: step_share DOUBLE  share of steps
-- column: time_share DOUBLE  share of step time
-- note:   edges are evenly spaced on a logarithmic scale.
WITH edges AS (
    SELECT run_id, low, GREATEST(high - low, 1e-6) * (1 + 1e-9) / $bins AS width
    FROM (
        SELECT run_id, LN(MIN(duration_ns)) AS low, LN(MAX(duration_ns)) AS high
        FROM steps
        WHERE duration_ns > 0 AND ($run IS NULL OR run_id = $run)
        GROUP BY run_id
    )
),
binned AS (
    SELECT
        run_id,
        low,
        width,
        FLOOR((LN(duration_ns) - low) / width) AS bin,
        COUNT(*) AS steps,
        SUM(duration_ns) AS time_ns
    FROM steps
    JOIN edges USING (run_id)
    WHERE duration_ns > 0
    GROUP BY ALL
)
SELECT
    run_id,
    EXP(low + bin * width) / 1e6 AS from_ms,
    EXP(low + (bin + 1) * width) / 1e6 AS to_ms,
    steps,
    steps / SUM(steps) OVER in_run AS step_share,
    time_ns / SUM(time_ns) OVER in_run AS time_share
FROM binned
WINDOW in_run AS (PARTITION BY run_id)
ORDER BY run_id, from_ms;
