-- throughput: how much work got done per second, and how much within the SLO?
-- kind:   answer
-- grain:  one row per run
-- needs:  request_latency, run_span
-- params: run VARCHAR = NULL
-- column: run_id                      VARCHAR run
-- column: requests                    BIGINT  requests replayed, refused ones included
-- column: completed                   BIGINT  requests answered in full
-- column: within_slo                  BIGINT  requests within the SLO
-- column: slo_share                   DOUBLE  within_slo / requests
-- column: duration_s                  DOUBLE  first arrival to last event, seconds
-- column: offered_rps                 DOUBLE  requests per second between first and last arrival
-- column: completed_rps               DOUBLE  completed / duration_s
-- column: goodput_rps                 DOUBLE  within_slo / duration_s
-- column: input_tokens_per_s          DOUBLE  prompt tokens of requests that ran / duration_s
-- column: computed_tokens_per_s       DOUBLE  tokens put through the model / duration_s, recomputation included
-- column: output_tokens_per_s         DOUBLE  tokens generated / duration_s
-- column: goodput_output_tokens_per_s DOUBLE  tokens of requests within the SLO / duration_s
-- note:   a request within the SLO was answered in full and kept every limit of its class; one that was refused,
--         given up or never finished misses it.
-- note:   rows of the trace that were not replayed count nowhere.
WITH total AS (
    SELECT
        run_id,
        COUNT(*) AS requests,
        COUNT(*) FILTER (WHERE completed) AS completed,
        COUNT(*) FILTER (WHERE within_slo) AS within_slo,
        SUM(input_tokens) FILTER (WHERE ran) AS input_tokens,
        SUM(computed_tokens) AS computed_tokens,
        SUM(output_tokens) AS output_tokens,
        SUM(output_tokens) FILTER (WHERE within_slo) AS good_output_tokens
    FROM request_latency
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id
)
SELECT
    run_id,
    requests,
    completed,
    within_slo,
    within_slo / requests AS slo_share,
    duration_s,
    (requests - 1) / (NULLIF(last_ns - first_ns, 0) / 1e9) AS offered_rps,
    completed / duration_s AS completed_rps,
    within_slo / duration_s AS goodput_rps,
    COALESCE(input_tokens, 0) / duration_s AS input_tokens_per_s,
    COALESCE(computed_tokens, 0) / duration_s AS computed_tokens_per_s,
    COALESCE(output_tokens, 0) / duration_s AS output_tokens_per_s,
    COALESCE(good_output_tokens, 0) / duration_s AS goodput_output_tokens_per_s
FROM total
JOIN run_span USING (run_id)
ORDER BY run_id;
