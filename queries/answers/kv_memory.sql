-- kv_memory: how full is KV memory?
-- kind:   answer
-- grain:  one row per run
-- needs:  level_time, step_load, time_mean, time_quantile
-- params: run VARCHAR = NULL
-- column: run_id            VARCHAR run
-- column: usable_blocks     BIGINT  KV blocks that requests can use, per replica
-- column: mean_share        DOUBLE  blocks in use, time-weighted mean share
-- column: p95_share         DOUBLE  share not exceeded for 95 % of the time
-- column: peak_share        DOUBLE  highest share
-- column: above_90_share    DOUBLE  share of time with more than 90 % of the blocks in use
-- column: cached_mean_share DOUBLE  blocks holding cached prefixes, in use or idle, time-weighted mean share
-- column: cached_peak_share DOUBLE  the same, highest share
-- column: evicted_blocks    BIGINT  cached blocks given away to new content
-- note:   in use is 1 - free_blocks / usable_blocks: blocks that a request holds; idle cached blocks count as
--         free.
-- note:   a step's blocks count while it runs, idle time counts as empty, several replicas are pooled.
WITH total AS (
    SELECT run_id, ANY_VALUE(usable_blocks)::BIGINT AS usable_blocks, SUM(evicted_blocks)::BIGINT AS evicted_blocks
    FROM step_load
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
),
used AS (
    SELECT
        run_id,
        time_mean(level, time_ns) / ANY_VALUE(usable_blocks) AS mean_share,
        time_quantile(level, upto_ns, total_ns, 0.95) / ANY_VALUE(usable_blocks) AS p95_share,
        MAX(level) / ANY_VALUE(usable_blocks) AS peak_share,
        COALESCE(SUM(time_ns) FILTER (WHERE 10 * level > 9 * usable_blocks), 0) / NULLIF(SUM(time_ns), 0)
            AS above_90_share
    FROM level_time('kv', $run)
    JOIN total USING (run_id)
    GROUP BY run_id
),
cached AS (
    SELECT
        run_id,
        time_mean(level, time_ns) / ANY_VALUE(usable_blocks) AS cached_mean_share,
        MAX(level) / ANY_VALUE(usable_blocks) AS cached_peak_share
    FROM level_time('cached', $run)
    JOIN total USING (run_id)
    GROUP BY run_id
)
SELECT
    run_id,
    usable_blocks,
    mean_share,
    p95_share,
    peak_share,
    above_90_share,
    cached_mean_share,
    cached_peak_share,
    evicted_blocks
FROM used
JOIN cached USING (run_id)
JOIN total USING (run_id)
ORDER BY run_id;
