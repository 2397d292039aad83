-- purchase_gpu_terms: what does an hour of an own accelerator cost?
-- kind:   source
-- grain:  one row per purchase and term
-- column: purchase_id      VARCHAR purchase
-- column: term             VARCHAR how the hour is paid for
-- column: usd_per_gpu_hour DOUBLE  price of an accelerator for an hour, USD
-- column: source           VARCHAR who published the price
-- column: as_of            VARCHAR date of the price
FROM stored.purchase_gpu_terms;
