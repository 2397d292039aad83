-- purchase_sizes: what does each number of units serve?
-- kind:   source
-- grain:  one row per purchase and number of units that was replayed through the admission rule
-- column: purchase_id             VARCHAR purchase
-- column: units                   BIGINT  units bought
-- column: accepted                BIGINT  requests that the units served
-- column: spilled                 BIGINT  requests that went to pay-as-you-go
-- column: refused                 BIGINT  requests whose clients gave up
-- column: throttled               BIGINT  refusals (429), every attempt counted
-- column: delay_s           DOUBLE  time lost to refusals, seconds: waits before retries, and the detour of what spills
-- column: spilled_weighted_tokens DOUBLE  weighted tokens that the units did not serve
-- column: spilled_raw_tokens      BIGINT  input and output tokens that the units did not serve
-- column: spilled_usd             DOUBLE  pay-as-you-go price of what spilled or was refused for good in the log, USD
-- column: used_mean               DOUBLE  served over bought, mean over minutes; null without units
-- column: used_p95                DOUBLE  the same, 95th percentile
-- column: used_max                DOUBLE  the same, highest minute
SELECT
    purchase_id,
    units,
    accepted,
    spilled,
    refused,
    throttled,
    delay_s,
    spilled_weighted_tokens,
    spilled_raw_tokens,
    spilled_usd,
    used_mean,
    used_p95,
    used_max
FROM stored.purchase_sizes;
