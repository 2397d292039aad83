-- purchase_changes: what would change the answer?
-- kind:   answer
-- grain:  one row per purchase and changed assumption
-- needs:  purchase_sensitivities
-- params: purchase VARCHAR = NULL
-- column: purchase_id          VARCHAR purchase
-- column: parameter            VARCHAR what is changed; rule: an admission rule that is not published
-- column: change               VARCHAR the change in words
-- column: units                BIGINT  units that are best then; for a rule, the units replayed
-- column: term                 VARCHAR term that is best then
-- column: usd_per_month        DOUBLE  cost of a month then, USD
-- column: payg_usd_per_month   DOUBLE  pay-as-you-go price of a month then, USD
-- column: saving_usd_per_month DOUBLE  payg_usd_per_month less usd_per_month
-- column: spilled_share        DOUBLE  share of weighted tokens that spill; for rules
-- column: flips_at             DOUBLE  factor nearest to 1 where buying begins or stops to pay; null: none from 0.1 to 10
-- note:   rows other than rules are fluid: only a minute's total matters.
SELECT
    purchase_id,
    parameter,
    change,
    units,
    term,
    usd_per_month,
    payg_usd_per_month,
    payg_usd_per_month - usd_per_month AS saving_usd_per_month,
    spilled_share,
    flips_at
FROM purchase_sensitivities
WHERE $purchase IS NULL OR purchase_id = $purchase
ORDER BY purchase_id, place;
