-- kv_memory: how full is KV memory?
-- kind:   answer
-- grain:  one row per run
-- needs:  step_intervals
-- params: run VARCHAR = NULL
-- column: run_id            VARCHAR run
-- column: usable_blocks     BIGINT  KV blocks that requests can use, num_gpu_blocks - 1 per replica
-- column: mean_share        DOUBLE  blocks in use, time-weighted mean share
-- column: p95_share         DOUBLE  share not exceeded for 95 % of the time
-- column: peak_share        DOUBLE  highest share
-- column: above_90_share    DOUBLE  share of time with more than 90 % of the blocks in use
-- column: cached_mean_share DOUBLE  blocks holding cached prefixes, in use or idle, time-weighted mean share
-- column: cached_peak_share DOUBLE  the same, highest share
-- column: evicted_blocks    BIGINT  cached blocks given away to new content
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS usable_blocks,
    NULL::DOUBLE AS mean_share,
    NULL::DOUBLE AS p95_share,
    NULL::DOUBLE AS peak_share,
    NULL::DOUBLE AS above_90_share,
    NULL::DOUBLE AS cached_mean_share,
    NULL::DOUBLE AS cached_peak_share,
    NULL::BIGINT AS evicted_blocks
WHERE $run IS NULL;
