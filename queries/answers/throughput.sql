-- throughput: how much work got done per second, and how much within the SLO?
-- kind:   answer
-- grain:  one row per run
-- needs:  request_latency
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
SELECT
    NULL::VARCHAR AS run_id,
    NULL::BIGINT AS requests,
    NULL::BIGINT AS completed,
    NULL::BIGINT AS within_slo,
    NULL::DOUBLE AS slo_share,
    NULL::DOUBLE AS duration_s,
    NULL::DOUBLE AS offered_rps,
    NULL::DOUBLE AS completed_rps,
    NULL::DOUBLE AS goodput_rps,
    NULL::DOUBLE AS input_tokens_per_s,
    NULL::DOUBLE AS computed_tokens_per_s,
    NULL::DOUBLE AS output_tokens_per_s,
    NULL::DOUBLE AS goodput_output_tokens_per_s
WHERE $run IS NULL;
