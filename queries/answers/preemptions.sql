-- preemptions: how much work was thrown away for want of memory?
-- kind:   answer
-- grain:  one row per run
-- needs:  requests
-- params: run VARCHAR = NULL
-- column: run_id             VARCHAR run
-- column: preemptions        BIGINT  preemptions
-- column: requests_preempted BIGINT  requests preempted at least once
-- column: preempted_share    DOUBLE  requests_preempted / requests that ran
-- column: computed_tokens    BIGINT  tokens put through the model
-- column: recomputed_tokens  BIGINT  of these computed before for the same request
-- column: recomputed_share   DOUBLE  recomputed_tokens / computed_tokens
-- column: resumed_hit_tokens BIGINT  tokens of preempted requests that the cache still held at resumption
-- note:   recomputed_tokens is computed - (prompt - cached + output - 1), summed over preempted requests that got a
--         token.
WITH work AS (
    SELECT
        *,
        CASE
            WHEN preemptions > 0 AND output_tokens > 0
                THEN GREATEST(computed_tokens - (input_tokens - cached_tokens + output_tokens - 1), 0)
            ELSE 0
        END AS recomputed_tokens
    FROM requests
    WHERE first_scheduled_ns IS NOT NULL AND ($run IS NULL OR run_id = $run)
)
SELECT
    run_id,
    COALESCE(SUM(preemptions), 0)::BIGINT AS preemptions,
    COUNT(*) FILTER (WHERE preemptions > 0) AS requests_preempted,
    COUNT(*) FILTER (WHERE preemptions > 0) / COUNT(*) AS preempted_share,
    COALESCE(SUM(computed_tokens), 0)::BIGINT AS computed_tokens,
    COALESCE(SUM(recomputed_tokens), 0)::BIGINT AS recomputed_tokens,
    SUM(recomputed_tokens) / NULLIF(SUM(computed_tokens), 0) AS recomputed_share,
    COALESCE(SUM(resumed_cached_tokens), 0)::BIGINT AS resumed_hit_tokens
FROM work
GROUP BY run_id
ORDER BY run_id;
