-- observed_latency: what did the log see, and what did the replay make of it?
-- kind:   fact
-- grain:  one row per run, request and metric that both the log and the replay have
-- needs:  request_latency, requests
-- column: run_id       VARCHAR run
-- column: request      BIGINT  row number in the trace
-- column: metric       VARCHAR ttft, tpot or e2e
-- column: observed_ms  DOUBLE  as logged, milliseconds; tpot = (e2e - ttft) / (output tokens - 1)
-- column: predicted_ms DOUBLE  as replayed, milliseconds
-- note:   only requests whose client got every token it stayed for in the replay, so that both sides tell of the same.
WITH logged AS (
    SELECT
        run_id,
        request,
        obs_ttft_us / 1e3 AS ttft_ms,
        (obs_e2e_us - obs_ttft_us) / 1e3 / NULLIF(output_tokens - 1, 0) AS tpot_ms,
        obs_e2e_us / 1e3 AS e2e_ms
    FROM requests
    WHERE obs_ttft_us IS NOT NULL OR obs_e2e_us IS NOT NULL
)
SELECT run_id, request, metric, observed_ms, predicted_ms
FROM (
    SELECT
        run_id,
        request,
        UNNEST(['ttft', 'tpot', 'e2e']) AS metric,
        UNNEST([logged.ttft_ms, logged.tpot_ms, logged.e2e_ms]) AS observed_ms,
        UNNEST([replayed.ttft_ms, replayed.tpot_ms, replayed.e2e_ms]) AS predicted_ms
    FROM logged
    JOIN request_latency AS replayed USING (run_id, request)
    WHERE completed
)
WHERE observed_ms IS NOT NULL AND predicted_ms IS NOT NULL;
