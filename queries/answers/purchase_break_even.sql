-- purchase_break_even: how much must a unit work to pay for itself, by term?
-- kind:   answer
-- grain:  one row per purchase and term
-- needs:  purchase_minutes, purchase_terms, purchases
-- params: purchase VARCHAR = NULL
-- column: purchase_id        VARCHAR purchase
-- column: term               VARCHAR term
-- column: months             DOUBLE  commitment in months; 0: by the hour
-- column: usd_per_unit_month DOUBLE  price of a unit for a month, USD
-- column: break_even_share   DOUBLE  share of the time that a unit must work; above 1: never
-- column: marginal_units     BIGINT  units that work so much, one by one, whatever can be bought
-- column: base_units         BIGINT  units to buy at this or a longer term where terms are layered
-- column: cancellation       VARCHAR what ending it early costs
-- column: source             VARCHAR who published the price
-- column: as_of              VARCHAR date of the price
-- column: withheld           VARCHAR why the term is not recommended, whatever it costs
-- note:   break_even_share = usd_per_unit_month / value_usd_per_unit_month, at the log's own mix of tokens.
WITH steps AS (
    SELECT purchase_id, UNNEST(RANGE(1, CEIL(MAX(units))::BIGINT + 1)) AS k
    FROM purchase_minutes
    WHERE $purchase IS NULL OR purchase_id = $purchase
    GROUP BY purchase_id
),
used AS (
    SELECT s.purchase_id, s.k, AVG(LEAST(GREATEST(m.units - (s.k - 1), 0), 1)) AS used_share
    FROM steps AS s
    INNER JOIN purchase_minutes AS m ON m.purchase_id = s.purchase_id
    GROUP BY s.purchase_id, s.k
),
marginal AS (
    SELECT t.purchase_id, t.term, COUNT(u.k) AS marginal_units
    FROM purchase_terms AS t
    INNER JOIN purchases AS p ON p.purchase_id = t.purchase_id
    LEFT JOIN used AS u
        ON
            u.purchase_id = t.purchase_id
            AND u.used_share * p.value_usd_per_unit_month >= t.usd_per_unit_month * (1 - 1e-12)
    GROUP BY t.purchase_id, t.term
)
SELECT
    t.purchase_id,
    t.term,
    t.months,
    t.usd_per_unit_month,
    t.usd_per_unit_month / NULLIF(p.value_usd_per_unit_month, 0) AS break_even_share,
    n.marginal_units,
    t.base_units,
    t.cancellation,
    t.source,
    t.as_of,
    t.withheld
FROM purchase_terms AS t
INNER JOIN purchases AS p ON p.purchase_id = t.purchase_id
INNER JOIN marginal AS n ON n.purchase_id = t.purchase_id AND n.term = t.term
WHERE $purchase IS NULL OR t.purchase_id = $purchase
ORDER BY t.purchase_id, t.usd_per_unit_month DESC, t.term;
