-- purchase_hours: what is worth having by the hour?
-- kind:   source
-- grain:  one row per purchase and hour of the day in the log, where units are sold by the hour
-- column: purchase_id     VARCHAR purchase
-- column: hour            BIGINT  hour of the day, UTC; of the log where it has no dates
-- column: units           BIGINT  units worth having by the hour above the recommended ones
-- column: saved_usd_month DOUBLE  what they save in a month, USD
SELECT
    purchase_id,
    hour,
    units,
    saved_usd_month
FROM stored.purchase_hours;
