-- prefix_cache: what does the prefix cache save?
-- kind:   answer
-- grain:  one row per run
-- needs:  requests, steps
-- params: run VARCHAR = NULL
-- column: run_id                 VARCHAR run
-- column: prompt_tokens          BIGINT  prompt tokens of requests that ran
-- column: hit_tokens             BIGINT  of these found in the cache at first admission
-- column: hit_share              DOUBLE  hit_tokens / prompt_tokens
-- column: resumed_hit_tokens     BIGINT  tokens found in the cache at resumptions
-- column: estimated_us_per_token DOUBLE  estimate: step time that one more prefill token costs, microseconds
-- column: estimated_saved_s      DOUBLE  estimate: step time that the hits saved, seconds
-- column: estimated_saved_share  DOUBLE  estimate: that time as share of step time without a cache
-- note:   the estimates are the slope of step time over prefill tokens (least squares, steps with prefill) times hit
--         tokens; attention over the cached context and queueing are left out.
WITH hits AS (
    SELECT
        run_id,
        COALESCE(SUM(input_tokens), 0)::BIGINT AS prompt_tokens,
        COALESCE(SUM(cached_tokens), 0)::BIGINT AS hit_tokens,
        COALESCE(SUM(resumed_cached_tokens), 0)::BIGINT AS resumed_hit_tokens
    FROM requests
    WHERE first_scheduled_ns IS NOT NULL AND ($run IS NULL OR run_id = $run)
    GROUP BY run_id
),
cost AS (
    SELECT
        run_id,
        COUNT(*) FILTER (WHERE prefill_tokens > 0) AS n,
        SUM(prefill_tokens) AS x,
        SUM(duration_ns) FILTER (WHERE prefill_tokens > 0) AS y,
        SUM(prefill_tokens::HUGEINT * duration_ns) AS xy,
        SUM(prefill_tokens::HUGEINT * prefill_tokens) AS xx,
        (n * xy - x * y) / NULLIF(n * xx - x * x, 0) AS ns_per_token,
        SUM(duration_ns) AS step_ns
    FROM steps
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
),
saved AS (
    SELECT
        *,
        CASE WHEN ns_per_token > 0 THEN ns_per_token END AS slope,
        hit_tokens * slope AS saved_ns
    FROM hits
    LEFT JOIN cost USING (run_id)
)
SELECT
    run_id,
    prompt_tokens,
    hit_tokens,
    hit_tokens / NULLIF(prompt_tokens, 0) AS hit_share,
    resumed_hit_tokens,
    slope / 1e3 AS estimated_us_per_token,
    saved_ns / 1e9 AS estimated_saved_s,
    saved_ns / (step_ns + saved_ns) AS estimated_saved_share
FROM saved
ORDER BY run_id;
