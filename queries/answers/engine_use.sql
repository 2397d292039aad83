-- engine_use: what does the scheduler make of KV memory, of its places, and of the tokens it computes?
-- kind:   answer
-- grain:  one row per run
-- needs:  request_latency, runs, steps
-- params: run VARCHAR = NULL
-- column: run_id             VARCHAR run
-- column: kv_used_share      DOUBLE  KV blocks that requests hold, time-weighted mean share
-- column: kv_held_share      DOUBLE  tokens that running requests have in KV, as a share of what all blocks could hold
-- column: kv_fill_share      DOUBLE  kv_held_share / kv_used_share: what is not filled is reserved and empty
-- column: place_share        DOUBLE  requests running, time-weighted mean share of max_num_seqs
-- column: place_idle_share   DOUBLE  places that are empty while requests wait, time-weighted mean share
-- column: computed_tokens    BIGINT  tokens put through the model
-- column: recomputed_tokens  BIGINT  of these, computed before and lost
-- column: recomputed_share   DOUBLE  recomputed_tokens / computed_tokens
-- note:   means are over the time in which a step runs.
-- note:   a prefix that several requests share counts as a token held by each of them, so kv_fill_share can pass 1.
-- note:   a request that ran needs its prompt, less what its first look-up found in the cache, and every generated
--         token but the last; all else that it computed is recomputation. Of requests that never finished their prompt
--         nothing counts as recomputed.
WITH step AS (
    SELECT
        run_id,
        SUM((usable_blocks - free_blocks)::HUGEINT * duration_ns) / SUM(usable_blocks::HUGEINT * duration_ns)
            AS kv_used_share,
        SUM(held_tokens::HUGEINT * duration_ns) / SUM(usable_blocks::HUGEINT * block_size * duration_ns)
            AS kv_held_share,
        SUM(running::HUGEINT * duration_ns) / SUM(max_num_seqs::HUGEINT * duration_ns) AS place_share,
        SUM(CASE WHEN waiting > 0 THEN GREATEST(max_num_seqs - running, 0) ELSE 0 END::HUGEINT * duration_ns)
            / SUM(max_num_seqs::HUGEINT * duration_ns) AS place_idle_share
    FROM steps
    JOIN runs USING (run_id)
    WHERE duration_ns > 0 AND ($run IS NULL OR run_id = $run)
    GROUP BY run_id
),
request AS (
    SELECT
        run_id,
        COALESCE(SUM(computed_tokens), 0)::BIGINT AS computed_tokens,
        COALESCE(
            SUM(GREATEST(computed_tokens - (input_tokens - cached_tokens + output_tokens - 1), 0))
                FILTER (WHERE output_tokens > 0),
            0
        )::BIGINT AS recomputed_tokens
    FROM request_latency
    WHERE ran AND ($run IS NULL OR run_id = $run)
    GROUP BY run_id
)
SELECT
    run_id,
    kv_used_share,
    kv_held_share,
    kv_held_share / NULLIF(kv_used_share, 0) AS kv_fill_share,
    place_share,
    place_idle_share,
    computed_tokens,
    recomputed_tokens,
    recomputed_tokens / NULLIF(computed_tokens, 0) AS recomputed_share
FROM step
JOIN request USING (run_id)
ORDER BY run_id;
