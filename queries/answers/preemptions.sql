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
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS preemptions,
    NULL::BIGINT AS requests_preempted,
    NULL::DOUBLE AS preempted_share,
    NULL::BIGINT AS computed_tokens,
    NULL::BIGINT AS recomputed_tokens,
    NULL::DOUBLE AS recomputed_share,
    NULL::BIGINT AS resumed_hit_tokens
WHERE $run IS NULL;
