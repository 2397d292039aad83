-- purchase_minutes: what does each minute of the log ask for?
-- kind:   source
-- grain:  one row per purchase and minute of the log, empty ones included
-- column: purchase_id     VARCHAR purchase
-- column: minute          BIGINT  minutes since the first request
-- column: requests        BIGINT  requests that arrived
-- column: weighted_tokens DOUBLE  what they count against capacity, in plain input tokens
-- column: units           DOUBLE  units that would have served just this minute
-- column: raw_tokens      BIGINT  their input and output tokens
-- column: payg_usd        DOUBLE  their pay-as-you-go price, USD
-- column: served_units    DOUBLE  what the chosen purchase served, in units; null if none saves money
SELECT
    purchase_id,
    minute,
    requests,
    weighted_tokens,
    units,
    raw_tokens,
    payg_usd,
    served_units
FROM stored.purchase_minutes;
