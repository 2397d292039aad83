-- purchase_days: what does each day of the log save?
-- kind:   source
-- grain:  one row per purchase and whole day of the log, from its first request on
-- column: purchase_id VARCHAR purchase
-- column: day         BIGINT  days since the first request
-- column: payg_usd    DOUBLE  pay-as-you-go price of the day, USD
-- column: saved_usd   DOUBLE  saved by the recommended purchase, else by the cheapest one, USD
SELECT
    purchase_id,
    day,
    payg_usd,
    saved_usd
FROM stored.purchase_days;
