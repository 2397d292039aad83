-- slo: what latency was promised?
-- kind:   source
-- grain:  one row per run and class that has limits of its own, and one with class null for all others
-- column: run_id  VARCHAR run
-- column: class   VARCHAR class; null is every class without a row of its own
-- column: ttft_ms DOUBLE  limit of ttft, milliseconds; null is none
-- column: tpot_ms DOUBLE  limit of tpot, milliseconds; null is none
-- column: e2e_ms  DOUBLE  limit of e2e, milliseconds; null is none
FROM stored.slo;
