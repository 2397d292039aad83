-- purchase_use: how full are the chosen units, minute by minute?
-- kind:   answer
-- grain:  one row per purchase and stretch of the log, of a minute each where it has at most `points` minutes
-- needs:  purchase_minutes, purchases
-- params: purchase VARCHAR = NULL, points INTEGER = 1440
-- column: purchase_id  VARCHAR purchase
-- column: minute       BIGINT  minutes since the first request at which the stretch begins
-- column: minutes      BIGINT  its length
-- column: units        DOUBLE  units that it asks for, mean
-- column: served_units DOUBLE  units that the chosen purchase served, mean
-- column: used_share   DOUBLE  served over bought, mean
-- column: used_max     DOUBLE  the same, highest minute
-- column: unserved_max DOUBLE  units asked for and not served, highest minute
-- note:   empty where no purchase saves money. A request counts in the minute in which it was admitted, so a long one
--         can lift a minute above 1.
WITH cut AS (
    SELECT
        m.*,
        p.chosen_units,
        m.minute // CEIL(COUNT(*) OVER (PARTITION BY m.purchase_id) / $points)::BIGINT AS stretch
    FROM purchase_minutes AS m
    INNER JOIN purchases AS p ON p.purchase_id = m.purchase_id
    WHERE p.chosen_units > 0 AND ($purchase IS NULL OR m.purchase_id = $purchase)
)
SELECT
    purchase_id,
    MIN(minute) AS minute,
    COUNT(*) AS minutes,
    AVG(units) AS units,
    AVG(served_units) AS served_units,
    AVG(served_units / chosen_units) AS used_share,
    MAX(served_units / chosen_units) AS used_max,
    MAX(GREATEST(units - served_units, 0)) AS unserved_max
FROM cut
GROUP BY purchase_id, stretch
ORDER BY purchase_id, minute;
