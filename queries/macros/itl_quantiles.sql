-- itl_quantiles: how long are the gaps between consecutive tokens, all gaps of a group pooled?
-- kind:   macro
-- grain:  one row per run and group that has a gap
-- needs:  odd_gaps, step_tokens
-- params: dimension VARCHAR, run VARCHAR, shares DOUBLE[], minutes INTEGER
-- column: run_id       VARCHAR  run
-- column: label        VARCHAR  tenant, model or class, as $dimension says; else null
-- column: minute       BIGINT   stretch of $minutes minutes in which the gap ends; null unless $dimension is minute
-- column: samples      BIGINT   token gaps
-- column: mean_ms      DOUBLE   mean, milliseconds
-- column: max_ms       DOUBLE   largest, milliseconds
-- column: quantiles_ms DOUBLE[] quantiles at $shares, interpolated linearly at share * (samples - 1)
-- note:   exact: every gap counts as often as requests saw it. A first pass counts gaps by coarse length (2^15 ns),
--         a second one sorts only the lengths in which a quantile lies; nothing has a row per token.
WITH gap AS NOT MATERIALIZED (
    SELECT run_id, label, minute, gap_ns, requests
    FROM step_tokens($dimension, $run, $minutes)
    UNION ALL
    SELECT run_id, label, minute, gap_ns, 1
    FROM odd_gaps($dimension, $run, $minutes)
),
coarse AS MATERIALIZED (
    SELECT
        run_id,
        label,
        minute,
        gap_ns >> 15 AS bin,
        SUM(requests)::BIGINT AS tokens,
        SUM(requests::HUGEINT * gap_ns) AS total_ns,
        MAX(gap_ns) AS longest_ns
    FROM gap
    GROUP BY run_id, label, minute, gap_ns >> 15
),
grouped AS (
    SELECT
        run_id,
        label,
        minute,
        SUM(tokens)::BIGINT AS samples,
        SUM(total_ns) / SUM(tokens) / 1e6 AS mean_ms,
        MAX(longest_ns) / 1e6 AS max_ms
    FROM coarse
    GROUP BY ALL
),
place AS (
    SELECT
        run_id,
        label,
        minute,
        share,
        share * (samples - 1) AS place,
        UNNEST([FLOOR(place), CEIL(place)])::BIGINT AS rank
    FROM (SELECT *, UNNEST($shares) AS share FROM grouped)
),
binned AS (
    SELECT *, (SUM(tokens) OVER (PARTITION BY run_id, label, minute ORDER BY bin))::BIGINT AS upto
    FROM coarse
),
wanted AS (
    SELECT DISTINCT place.run_id, place.label, place.minute, share, place, rank, bin, upto - tokens AS before
    FROM place
    JOIN binned
        ON binned.run_id = place.run_id
        AND binned.label IS NOT DISTINCT FROM place.label
        AND binned.minute IS NOT DISTINCT FROM place.minute
        AND rank >= upto - tokens
        AND rank < upto
),
fine AS (
    SELECT
        run_id,
        label,
        minute,
        gap_ns >> 15 AS bin,
        gap_ns,
        (SUM(SUM(requests)) OVER in_bin)::BIGINT AS upto,
        SUM(requests)::BIGINT AS tokens
    FROM gap
    WHERE gap_ns >> 15 IN (SELECT bin FROM wanted)
    GROUP BY run_id, label, minute, gap_ns
    WINDOW in_bin AS (PARTITION BY run_id, label, minute, gap_ns >> 15 ORDER BY gap_ns)
),
quantile AS (
    SELECT
        wanted.run_id,
        wanted.label,
        wanted.minute,
        share,
        (MIN(gap_ns) + (MAX(gap_ns) - MIN(gap_ns)) * (ANY_VALUE(place) - FLOOR(ANY_VALUE(place)))) / 1e6 AS value_ms
    FROM wanted
    JOIN fine
        ON fine.run_id = wanted.run_id
        AND fine.label IS NOT DISTINCT FROM wanted.label
        AND fine.minute IS NOT DISTINCT FROM wanted.minute
        AND fine.bin = wanted.bin
        AND rank - before >= fine.upto - fine.tokens
        AND rank - before < fine.upto
    GROUP BY ALL
)
SELECT
    grouped.run_id,
    grouped.label,
    grouped.minute,
    ANY_VALUE(samples) AS samples,
    ANY_VALUE(mean_ms) AS mean_ms,
    ANY_VALUE(max_ms) AS max_ms,
    LIST(value_ms ORDER BY share) AS quantiles_ms
FROM grouped
JOIN quantile
    ON quantile.run_id = grouped.run_id
    AND quantile.label IS NOT DISTINCT FROM grouped.label
    AND quantile.minute IS NOT DISTINCT FROM grouped.minute
GROUP BY ALL;
