-- purchase_replicas: how many own replicas keep the SLO?
-- kind:   answer
-- grain:  one row per purchase and number of own replicas that was replayed
-- needs:  purchase_own
-- params: purchase VARCHAR = NULL
-- column: purchase_id VARCHAR purchase
-- column: replicas    BIGINT  replicas of the configured deployment
-- column: gpus        BIGINT  accelerators of these replicas
-- column: slo_share   DOUBLE  share of requests within the SLO
-- column: keeps_slo   BOOLEAN whether that is enough
SELECT purchase_id, replicas, gpus, slo_share, keeps_slo
FROM purchase_own
WHERE $purchase IS NULL OR purchase_id = $purchase
ORDER BY purchase_id, replicas;
