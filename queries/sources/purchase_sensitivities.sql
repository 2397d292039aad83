-- purchase_sensitivities: what would change the answer?
-- kind:   source
-- grain:  one row per purchase and changed assumption
-- column: purchase_id        VARCHAR purchase
-- column: place              BIGINT  place in the table, from 1
-- column: parameter          VARCHAR what is changed; rule: an admission rule that is not published
-- column: change             VARCHAR the change in words
-- column: factor             DOUBLE  by how much it is multiplied
-- column: units              BIGINT  units that are best then; for a rule, the units replayed
-- column: term               VARCHAR term that is best then
-- column: usd_per_month      DOUBLE  cost of a month then, USD
-- column: payg_usd_per_month DOUBLE  pay-as-you-go price of a month then, USD
-- column: spilled_share      DOUBLE  share of weighted tokens that spill; for rules
-- column: flips_at           DOUBLE  factor nearest to 1 where buying begins or stops to pay
SELECT
    purchase_id,
    place,
    parameter,
    change,
    factor,
    units,
    term,
    usd_per_month,
    payg_usd_per_month,
    spilled_share,
    flips_at
FROM stored.purchase_sensitivities;
