-- level_time: for how long was a measure of the replicas at each of its levels?
-- kind:   macro
-- grain:  one row per run and level, lowest first
-- needs:  run_span, step_load
-- params: measure VARCHAR, run VARCHAR
-- column: run_id   VARCHAR run
-- column: level    INTEGER KV blocks in use (kv) or cached (cached), requests waiting (waiting) or scheduled (batch)
-- column: time_ns  HUGEINT replica time at that level; idle time is at level 0, except for batch, which has none
-- column: upto_ns  HUGEINT replica time at that level or below
-- column: total_ns HUGEINT replica time in all
WITH stay AS (
    SELECT
        run_id,
        CASE $measure
            WHEN 'kv' THEN used_blocks
            WHEN 'cached' THEN cached_blocks
            WHEN 'waiting' THEN waiting
            WHEN 'batch' THEN scheduled
        END AS level,
        SUM(duration_ns) AS time_ns
    FROM step_load
    WHERE $run IS NULL OR run_id = $run
    GROUP BY ALL
),
with_idle AS (
    SELECT run_id, level, time_ns FROM stay
    UNION ALL
    SELECT run_id, 0, replicas * (ANY_VALUE(end_ns) - ANY_VALUE(first_ns)) - SUM(time_ns)
    FROM stay
    JOIN run_span USING (run_id)
    WHERE $measure NOT IN ('batch', 'cached')
    GROUP BY run_id, replicas
)
SELECT
    run_id,
    level,
    SUM(time_ns) AS time_ns,
    SUM(SUM(time_ns)) OVER (PARTITION BY run_id ORDER BY level) AS upto_ns,
    SUM(SUM(time_ns)) OVER (PARTITION BY run_id) AS total_ns
FROM with_idle
GROUP BY run_id, level;
