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
-- note:   the estimates are the slope of step time over prefill tokens (least squares, steps with prefill) times hit tokens; attention over the cached context and queueing are left out.
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS prompt_tokens,
    NULL::BIGINT AS hit_tokens,
    NULL::DOUBLE AS hit_share,
    NULL::BIGINT AS resumed_hit_tokens,
    NULL::DOUBLE AS estimated_us_per_token,
    NULL::DOUBLE AS estimated_saved_s,
    NULL::DOUBLE AS estimated_saved_share
WHERE $run IS NULL;
