-- purchase_savings: which days pay for the purchase?
-- kind:   answer
-- grain:  one row per purchase and whole day of the log
-- needs:  purchase_days
-- params: purchase VARCHAR = NULL
-- column: purchase_id VARCHAR purchase
-- column: day         BIGINT  days since the first request
-- column: payg_usd    DOUBLE  pay-as-you-go price of the day, USD
-- column: saved_usd   DOUBLE  saved by the recommended purchase, else by the cheapest one, USD
SELECT purchase_id, day, payg_usd, saved_usd
FROM purchase_days
WHERE $purchase IS NULL OR purchase_id = $purchase
ORDER BY purchase_id, day;
