-- purchase_plans: what does a month cost by each number of units and term?
-- kind:   answer
-- grain:  one row per purchase, term and number of units that was replayed
-- needs:  purchase_minutes, purchase_sizes, purchase_terms, purchases
-- params: purchase VARCHAR = NULL
-- column: purchase_id             VARCHAR purchase
-- column: term                    VARCHAR term; pay-as-you-go for no units
-- column: units                   BIGINT  units bought
-- column: capacity_usd            DOUBLE  price of the units, USD per month
-- column: spilled_usd             DOUBLE  price of what spills, USD per month
-- column: usd_per_month           DOUBLE  both together
-- column: fluid_usd_per_month     DOUBLE  the same if only a minute's total mattered
-- column: usd_per_1m_tokens       DOUBLE  usd_per_month per million raw tokens
-- column: spilled_requests_share  DOUBLE  share of requests that spill or give up
-- column: spilled_share           DOUBLE  share of weighted tokens that spill
-- column: spilled_raw_share       DOUBLE  share of raw tokens that spill
-- column: throttled               BIGINT  refusals (429) in the log
-- column: delay_s           DOUBLE  time lost to refusals in the log, seconds: waits before retries, and the detour of what spills
-- column: used_mean               DOUBLE  served over bought, mean over minutes
-- column: is_recommended          BOOLEAN the purchase that is recommended, or no units where none is
-- column: is_withheld             BOOLEAN the log is too short for this term
-- note:   the log is taken to repeat for a month of minutes_per_month.
-- note:   fluid: units x price + value of a unit x mean of what each minute asks beyond the units.
WITH demand AS (
    SELECT purchase_id, SUM(weighted_tokens) AS weighted_tokens, SUM(raw_tokens) AS raw_tokens
    FROM purchase_minutes
    GROUP BY purchase_id
),
beyond AS (
    SELECT s.purchase_id, s.units, AVG(GREATEST(m.units - s.units, 0)) AS units_beyond
    FROM purchase_sizes AS s
    INNER JOIN purchase_minutes AS m ON m.purchase_id = s.purchase_id
    GROUP BY s.purchase_id, s.units
),
terms AS (
    SELECT purchase_id, term, usd_per_unit_month, withheld IS NOT NULL AS is_withheld
    FROM purchase_terms
    UNION ALL
    SELECT purchase_id, 'pay-as-you-go' AS term, 0.0 AS usd_per_unit_month, FALSE AS is_withheld
    FROM purchases
)
SELECT
    p.purchase_id,
    t.term,
    s.units,
    s.units * t.usd_per_unit_month AS capacity_usd,
    s.spilled_usd / p.months AS spilled_usd,
    s.units * t.usd_per_unit_month + s.spilled_usd / p.months AS usd_per_month,
    s.units * t.usd_per_unit_month + p.value_usd_per_unit_month * b.units_beyond AS fluid_usd_per_month,
    1e6 * (s.units * t.usd_per_unit_month + s.spilled_usd / p.months)
    / NULLIF(d.raw_tokens / p.months, 0) AS usd_per_1m_tokens,
    (s.spilled + s.refused) / p.requests AS spilled_requests_share,
    s.spilled_weighted_tokens / NULLIF(d.weighted_tokens, 0) AS spilled_share,
    s.spilled_raw_tokens / NULLIF(d.raw_tokens, 0) AS spilled_raw_share,
    s.throttled,
    s.delay_s,
    s.used_mean,
    s.units = p.best_units AND COALESCE(t.term = p.best_term, t.term = 'pay-as-you-go') AS is_recommended,
    t.is_withheld
FROM purchases AS p
INNER JOIN terms AS t ON t.purchase_id = p.purchase_id
INNER JOIN purchase_sizes AS s ON s.purchase_id = p.purchase_id AND (s.units > 0) = (t.term <> 'pay-as-you-go')
INNER JOIN beyond AS b ON b.purchase_id = s.purchase_id AND b.units = s.units
INNER JOIN demand AS d ON d.purchase_id = p.purchase_id
WHERE $purchase IS NULL OR p.purchase_id = $purchase
ORDER BY p.purchase_id, t.term, s.units;
