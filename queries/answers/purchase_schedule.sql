-- purchase_schedule: what is worth deploying by the hour above the recommended units?
-- kind:   answer
-- grain:  one row per purchase and hour of the day in the log
-- needs:  purchase_hours
-- params: purchase VARCHAR = NULL
-- column: purchase_id     VARCHAR purchase
-- column: hour            BIGINT  hour of the day, UTC; of the log where it has no dates
-- column: units           BIGINT  units worth having by the hour above the recommended ones
-- column: saved_usd_month DOUBLE  what they save in a month, USD
-- note:   the best that a schedule by hour of the day can do, known from the log itself: an upper bound. Empty where
--         units are not sold by the hour.
SELECT purchase_id, hour, units, saved_usd_month
FROM purchase_hours
WHERE $purchase IS NULL OR purchase_id = $purchase
ORDER BY purchase_id, hour;
