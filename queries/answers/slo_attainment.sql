-- slo_attainment: which promise is broken, by class?
-- kind:   answer
-- grain:  one row per run and class
-- needs:  request_latency, run_span
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
-- note:   a request within the SLO was answered in full and kept every limit of its class; one that was refused,
--         given up or never finished misses it.
-- note:   rows of the trace that were not replayed count nowhere.
-- note:   a request can miss several limits.
SELECT
    run_id,
    class,
    ttft_slo_ms,
    tpot_slo_ms,
    e2e_slo_ms,
    COUNT(*) AS requests,
    COUNT(*) FILTER (WHERE within_slo) AS within_slo,
    COUNT(*) FILTER (WHERE within_slo) / COUNT(*) AS slo_share,
    COUNT(*) FILTER (WHERE ttft_ms > ttft_slo_ms) AS ttft_missed,
    COUNT(*) FILTER (WHERE tpot_ms > tpot_slo_ms) AS tpot_missed,
    COUNT(*) FILTER (WHERE e2e_ms > e2e_slo_ms) AS e2e_missed,
    COUNT(*) FILTER (WHERE NOT completed) AS unanswered,
    COUNT(*) FILTER (WHERE within_slo) / ANY_VALUE(duration_s) AS goodput_rps
FROM request_latency
JOIN run_span USING (run_id)
WHERE $run IS NULL OR run_id = $run
GROUP BY run_id, class, ttft_slo_ms, tpot_slo_ms, e2e_slo_ms
ORDER BY run_id, class;
