-- purchase_choices: what do pay-as-you-go, each term at its best, the habits of sizing and own GPUs cost?
-- kind:   answer
-- grain:  one row per purchase and choice
-- needs:  purchase_gpu_terms, purchase_minutes, purchase_plans, purchase_terms, purchases
-- params: purchase VARCHAR = NULL
-- column: purchase_id       VARCHAR purchase
-- column: choice            VARCHAR what one could do
-- column: units             BIGINT  units or accelerators; null for none
-- column: term              VARCHAR term
-- column: usd_per_month     DOUBLE  cost of a month, USD
-- column: against_payg      DOUBLE  usd_per_month over pay-as-you-go, less 1
-- column: usd_per_1m_tokens DOUBLE  usd_per_month per million raw tokens
-- column: spilled_share     DOUBLE  share of weighted tokens that spill
-- column: is_recommended    BOOLEAN the choice that is recommended
-- column: is_withheld       BOOLEAN the log is too short for this term
-- note:   mean and peak size the purchase to the mean and to the highest minute, at the cheapest term; they show
--         what these habits cost.
-- note:   layered: what pays in every week of the log at the long term, what pays over the whole log at the short one.
-- note:   own GPUs: replicas that keep the SLO, and one more as a warm spare; another model serves the traffic.
WITH plans AS (
    FROM purchase_plans($purchase)
),
payg AS (
    SELECT purchase_id, usd_per_month AS payg_usd
    FROM plans
    WHERE term = 'pay-as-you-go'
),
tokens AS (
    SELECT m.purchase_id, SUM(m.raw_tokens) / ANY_VALUE(p.months) AS tokens_per_month
    FROM purchase_minutes AS m
    INNER JOIN purchases AS p ON p.purchase_id = m.purchase_id
    GROUP BY m.purchase_id
),
best AS (
    SELECT *
    FROM plans
    QUALIFY ROW_NUMBER() OVER (PARTITION BY purchase_id, term ORDER BY ROUND(usd_per_month, 6), units) = 1
),
habits AS (
    SELECT n.*, h.habit
    FROM plans AS n
    INNER JOIN purchases AS p ON p.purchase_id = n.purchase_id
    INNER JOIN (VALUES ('mean'), ('peak')) AS h (habit)
        ON n.units = CASE h.habit WHEN 'mean' THEN p.habit_mean_units ELSE p.habit_peak_units END
    WHERE n.term <> 'pay-as-you-go' AND NOT n.is_withheld
    QUALIFY ROW_NUMBER() OVER (PARTITION BY n.purchase_id, h.habit ORDER BY n.usd_per_month) = 1
),
layers AS (
    SELECT
        purchase_id,
        term,
        base_units,
        usd_per_unit_month,
        withheld IS NOT NULL AS is_withheld,
        base_units - LAG(base_units, 1, 0) OVER (PARTITION BY purchase_id ORDER BY base_units) AS layer_units
    FROM purchase_terms
    WHERE base_units > 0
),
layered AS (
    SELECT
        l.purchase_id,
        STRING_AGG(l.layer_units || ' at ' || l.term, ', ' ORDER BY l.base_units) AS term,
        MAX(l.base_units) AS units,
        SUM(l.layer_units * l.usd_per_unit_month) AS capacity_usd,
        BOOL_OR(l.is_withheld) AS is_withheld
    FROM layers AS l
    GROUP BY l.purchase_id
    HAVING COUNT(*) > 1
),
own AS (
    SELECT
        p.purchase_id,
        g.term,
        (p.own_replicas + s.spare) * p.own_gpus_per_replica AS gpus,
        s.spare,
        gpus * g.usd_per_gpu_hour * p.minutes_per_month / 60 AS usd_per_month
    FROM purchases AS p
    INNER JOIN purchase_gpu_terms AS g ON g.purchase_id = p.purchase_id
    CROSS JOIN (VALUES (0), (1)) AS s (spare)
    WHERE p.own_replicas IS NOT NULL AND ($purchase IS NULL OR p.purchase_id = $purchase)
),
together AS (
    SELECT
        purchase_id,
        CASE WHEN term = 'pay-as-you-go' THEN 1 ELSE 2 END AS place,
        CASE WHEN term = 'pay-as-you-go' THEN term ELSE 'best at ' || term END AS choice,
        NULLIF(units, 0) AS units,
        NULLIF(term, 'pay-as-you-go') AS term,
        usd_per_month,
        spilled_share,
        is_recommended,
        is_withheld
    FROM best
    UNION ALL
    SELECT purchase_id, 3, 'sized to the ' || habit, units, term, usd_per_month, spilled_share, FALSE, is_withheld
    FROM habits
    UNION ALL
    SELECT
        l.purchase_id, 2, 'layered', l.units, l.term, l.capacity_usd + n.spilled_usd, n.spilled_share, FALSE,
        l.is_withheld
    FROM layered AS l
    INNER JOIN plans AS n ON n.purchase_id = l.purchase_id AND n.units = l.units
    QUALIFY ROW_NUMBER() OVER (PARTITION BY l.purchase_id ORDER BY n.term) = 1
    UNION ALL
    SELECT
        purchase_id, 4, 'own GPUs' || CASE spare WHEN 1 THEN ', warm spare' ELSE '' END, gpus, term, usd_per_month,
        NULL, FALSE, FALSE
    FROM own
)
SELECT
    t.purchase_id,
    t.choice,
    t.units,
    t.term,
    t.usd_per_month,
    t.usd_per_month / NULLIF(y.payg_usd, 0) - 1 AS against_payg,
    1e6 * t.usd_per_month / NULLIF(k.tokens_per_month, 0) AS usd_per_1m_tokens,
    t.spilled_share,
    t.is_recommended,
    t.is_withheld
FROM together AS t
INNER JOIN payg AS y ON y.purchase_id = t.purchase_id
INNER JOIN tokens AS k ON k.purchase_id = t.purchase_id
ORDER BY t.purchase_id, t.place, t.usd_per_month, t.choice;
