-- purchase_own: how many own replicas were tried?
-- kind:   source
-- grain:  one row per purchase and number of own replicas that was replayed
-- column: purchase_id VARCHAR purchase
-- column: replicas    BIGINT  replicas of the configured deployment
-- column: gpus        BIGINT  accelerators of these replicas
-- column: slo_share   DOUBLE  share of requests within the SLO
-- column: keeps_slo   BOOLEAN whether that is enough
SELECT
    purchase_id,
    replicas,
    gpus,
    slo_share,
    keeps_slo
FROM stored.purchase_own;
