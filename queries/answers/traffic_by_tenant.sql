-- traffic_by_tenant: what does each tenant ask for, and what does it get?
-- kind:   answer
-- grain:  one row per run and tenant
-- needs:  traffic_by
-- params: run VARCHAR = NULL
-- column: run_id        VARCHAR run
-- column: tenant        VARCHAR tenant, as logged
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
-- note:   a request within the SLO was answered in full and kept every limit of its class; one that was refused,
--         given up or never finished misses it.
-- note:   rows of the trace that were not replayed count nowhere.
SELECT
    run_id,
    label AS tenant,
    requests,
    request_share,
    completed,
    input_tokens,
    hit_tokens,
    hit_share,
    output_tokens,
    token_share,
    ttft_p95_ms,
    tpot_p95_ms,
    e2e_p95_ms,
    slo_share,
    preemptions
FROM traffic_by('tenant', $run)
ORDER BY run_id, tenant;
