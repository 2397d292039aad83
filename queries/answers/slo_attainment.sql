-- slo_attainment: which promise is broken, by class?
-- kind:   answer
-- grain:  one row per run and class
-- needs:  request_latency
-- params: run VARCHAR = NULL
-- column: run_id      VARCHAR run
-- column: class       VARCHAR class, as logged
-- column: ttft_slo_ms DOUBLE  limit of ttft, milliseconds; null is none
-- column: tpot_slo_ms DOUBLE  limit of tpot, milliseconds; null is none
-- column: e2e_slo_ms  DOUBLE  limit of e2e, milliseconds; null is none
-- column: requests    BIGINT  requests replayed, refused ones included
-- column: within_slo  BIGINT  requests within every limit
-- column: slo_share   DOUBLE  within_slo / requests
-- column: ttft_missed BIGINT  requests over the limit of ttft
-- column: tpot_missed BIGINT  requests over the limit of tpot
-- column: e2e_missed  BIGINT  requests over the limit of e2e
-- column: unanswered  BIGINT  requests refused, given up or never finished
-- column: goodput_rps DOUBLE  within_slo per second of the run
SELECT
    NULL::VARCHAR AS run_id,
    NULL::VARCHAR AS class,
    NULL::DOUBLE AS ttft_slo_ms,
    NULL::DOUBLE AS tpot_slo_ms,
    NULL::DOUBLE AS e2e_slo_ms,
    NULL::BIGINT AS requests,
    NULL::BIGINT AS within_slo,
    NULL::DOUBLE AS slo_share,
    NULL::BIGINT AS ttft_missed,
    NULL::BIGINT AS tpot_missed,
    NULL::BIGINT AS e2e_missed,
    NULL::BIGINT AS unanswered,
    NULL::DOUBLE AS goodput_rps
WHERE $run IS NULL;
