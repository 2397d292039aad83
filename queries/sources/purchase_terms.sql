-- purchase_terms: at which terms are units sold?
-- kind:   source
-- grain:  one row per purchase and term at which units are sold
-- column: purchase_id        VARCHAR purchase
-- column: term               VARCHAR name of the term
-- column: months             DOUBLE  commitment in months; 0: by the hour
-- column: usd_per_unit_month DOUBLE  price of a unit for a month, USD
-- column: base_units         BIGINT  units bought at this or a longer term where terms are layered
-- column: cancellation       VARCHAR what ending it early costs
-- column: source             VARCHAR who published the price
-- column: as_of              VARCHAR date of the price
-- column: withheld           VARCHAR why the term is not recommended, whatever it costs
SELECT
    purchase_id,
    term,
    months,
    usd_per_unit_month,
    base_units,
    cancellation,
    source,
    as_of,
    withheld
FROM stored.purchase_terms;
