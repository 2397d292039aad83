-- step_quantiles: how long are the steps of a run?
-- kind:   macro
-- grain:  one row per run that has a step
-- needs:  step_load
-- params: run VARCHAR, shares DOUBLE[]
-- column: run_id       VARCHAR  run
-- column: quantiles_ms DOUBLE[] quantiles of step length at $shares, interpolated linearly at share * (steps - 1)
-- note:   exact, as QUANTILE_CONT, which holds all values in memory. A first pass counts steps by coarse length (2^15
--         ns), a second one sorts only the lengths in which a quantile lies.
WITH coarse AS MATERIALIZED (
    SELECT run_id, duration_ns >> 15 AS bin, COUNT(*) AS steps
    FROM step_load
    WHERE $run IS NULL OR run_id = $run
    GROUP BY ALL
),
place AS (
    SELECT run_id, share, share * (steps - 1) AS place, UNNEST([FLOOR(place), CEIL(place)])::BIGINT AS rank
    FROM (SELECT *, UNNEST($shares) AS share FROM (SELECT run_id, SUM(steps) AS steps FROM coarse GROUP BY run_id))
),
binned AS (
    SELECT *, (SUM(steps) OVER (PARTITION BY run_id ORDER BY bin))::BIGINT AS upto
    FROM coarse
),
wanted AS MATERIALIZED (
    SELECT DISTINCT place.run_id, share, place, rank, bin, upto - steps AS before
    FROM place
    JOIN binned ON binned.run_id = place.run_id AND rank >= upto - steps AND rank < upto
),
fine AS (
    SELECT
        run_id,
        duration_ns >> 15 AS bin,
        duration_ns,
        (SUM(COUNT(*)) OVER (PARTITION BY run_id, duration_ns >> 15 ORDER BY duration_ns))::BIGINT AS upto,
        COUNT(*) AS steps
    FROM step_load
    WHERE duration_ns >> 15 IN (SELECT bin FROM wanted) AND ($run IS NULL OR run_id = $run)
    GROUP BY run_id, duration_ns
),
quantile AS (
    SELECT
        wanted.run_id,
        share,
        MIN(duration_ns) / 1e6 AS low_ms,
        MAX(duration_ns) / 1e6 AS high_ms,
        low_ms + (high_ms - low_ms) * (ANY_VALUE(place) - FLOOR(ANY_VALUE(place))) AS value_ms
    FROM wanted
    JOIN fine
        ON fine.run_id = wanted.run_id
        AND fine.bin = wanted.bin
        AND rank - before >= fine.upto - fine.steps
        AND rank - before < fine.upto
    GROUP BY ALL
)
SELECT run_id, LIST(value_ms ORDER BY share) AS quantiles_ms
FROM quantile
GROUP BY run_id;
