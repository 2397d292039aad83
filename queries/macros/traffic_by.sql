-- traffic_by: what does each group ask for, and what does it get?
-- kind:   macro
-- grain:  one row per run and label
-- needs:  label_of, request_latency
-- params: dimension VARCHAR, run VARCHAR
-- column: run_id        VARCHAR run
-- column: label         VARCHAR tenant, model or class, as $dimension says; else null
-- column: requests      BIGINT  requests replayed, refused ones included
-- column: request_share DOUBLE  share of the run's requests
-- column: completed     BIGINT  requests answered in full
-- column: input_tokens  BIGINT  prompt tokens of requests that ran
-- column: hit_tokens    BIGINT  prompt tokens found in the prefix cache at first admission
-- column: hit_share     DOUBLE  hit_tokens / input_tokens
-- column: output_tokens BIGINT  tokens generated
-- column: token_share   DOUBLE  share of the run's input and output tokens
-- column: ttft_p95_ms   DOUBLE  95th percentile of ttft, milliseconds
-- column: tpot_p95_ms   DOUBLE  95th percentile of tpot, milliseconds
-- column: e2e_p95_ms    DOUBLE  95th percentile of e2e, milliseconds
-- column: slo_share     DOUBLE  share of requests within the SLO
-- column: preemptions   BIGINT  preemptions of its requests
WITH total AS (
    SELECT
        run_id,
        label_of($dimension, tenant, model, class) AS label,
        COUNT(*) AS requests,
        COUNT(*) FILTER (WHERE completed) AS completed,
        COALESCE(SUM(input_tokens) FILTER (WHERE ran), 0)::BIGINT AS input_tokens,
        COALESCE(SUM(cached_tokens) FILTER (WHERE ran), 0)::BIGINT AS hit_tokens,
        COALESCE(SUM(output_tokens), 0)::BIGINT AS output_tokens,
        QUANTILE_CONT(ttft_ms, 0.95) AS ttft_p95_ms,
        QUANTILE_CONT(tpot_ms, 0.95) AS tpot_p95_ms,
        QUANTILE_CONT(e2e_ms, 0.95) AS e2e_p95_ms,
        COUNT(*) FILTER (WHERE within_slo) / COUNT(*) AS slo_share,
        COALESCE(SUM(preemptions), 0)::BIGINT AS preemptions
    FROM request_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY ALL
)
SELECT
    run_id,
    label,
    requests,
    requests / SUM(requests) OVER in_run AS request_share,
    completed,
    input_tokens,
    hit_tokens,
    hit_tokens / NULLIF(input_tokens, 0) AS hit_share,
    output_tokens,
    (input_tokens + output_tokens) / NULLIF(SUM(input_tokens + output_tokens) OVER in_run, 0) AS token_share,
    ttft_p95_ms,
    tpot_p95_ms,
    e2e_p95_ms,
    slo_share,
    preemptions
FROM total
WINDOW in_run AS (PARTITION BY run_id);
