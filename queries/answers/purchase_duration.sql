-- purchase_duration: how much of the time is how much capacity needed?
-- kind:   answer
-- grain:  one row per purchase and point of the curve
-- needs:  purchase_minutes
-- params: purchase VARCHAR = NULL, points INTEGER = 200
-- column: purchase_id   VARCHAR purchase
-- column: share_of_time DOUBLE  share of minutes that need at least so many units
-- column: units         DOUBLE  units
-- note:   every minute of the log counts, empty ones included; the demand duration curve of power systems.
WITH ranked AS (
    SELECT
        purchase_id,
        units,
        ROW_NUMBER() OVER (PARTITION BY purchase_id ORDER BY units DESC) AS place,
        COUNT(*) OVER (PARTITION BY purchase_id) AS minutes
    FROM purchase_minutes
    WHERE $purchase IS NULL OR purchase_id = $purchase
)
SELECT purchase_id, place / minutes AS share_of_time, units
FROM ranked
WHERE
    place = 1 OR place = minutes OR FLOOR(place * $points / minutes) <> FLOOR((place - 1) * $points / minutes)
ORDER BY purchase_id, share_of_time;
