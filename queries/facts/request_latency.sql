-- request_latency: what did each replayed request experience?
-- kind:   fact
-- grain:  one row per run and request, without rows that were not replayed
-- needs:  requests, runs, slo, steps
-- column: run_id              VARCHAR  run
-- column: request             BIGINT   row number in the trace
-- column: request_id          VARCHAR  id in the trace
-- column: tenant              VARCHAR  as logged
-- column: model               VARCHAR  as logged
-- column: class               VARCHAR  as logged
-- column: outcome             VARCHAR  what the replay made of it
-- column: replica             SMALLINT replica that served it
-- column: arrival_ns          BIGINT   arrival, nanoseconds from the start of the trace
-- column: first_scheduled_ns  BIGINT   start of the first step that ran it
-- column: finish_ns           BIGINT   when it left
-- column: completed           BOOLEAN  its client got every token it stayed for
-- column: ran                 BOOLEAN  at least one step ran it
-- column: ttft_ms             DOUBLE   first token - arrival + frontend, milliseconds
-- column: tpot_ms             DOUBLE   (e2e - ttft) / (output tokens - 1); null for one token
-- column: itl_request_mean_ms DOUBLE   mean of its own token gaps, also where its client gave up; null for one token
-- column: e2e_ms              DOUBLE   leaving - arrival + frontend; null unless completed
-- column: queue_ms            DOUBLE   start of its first step - arrival, milliseconds
-- column: input_tokens        INTEGER  prompt tokens
-- column: output_tokens       INTEGER  tokens generated
-- column: cached_tokens       INTEGER  prompt tokens found in the prefix cache at first admission
-- column: computed_tokens     BIGINT   tokens put through the model, recomputation included
-- column: preemptions         INTEGER  times it was preempted
-- column: ttft_slo_ms         DOUBLE   limit of ttft of its class; null is none
-- column: tpot_slo_ms         DOUBLE   limit of tpot of its class; null is none
-- column: e2e_slo_ms          DOUBLE   limit of e2e of its class; null is none
-- column: within_slo          BOOLEAN  completed, and no limit exceeded
-- note:   ttft, tpot and e2e as `vllm bench serve` defines them.
-- note:   completed are outcomes finished, max_model_len and cancelled; all others miss the SLO.
-- note:   rows the replay leaves out (not_replayed) neither meet nor miss it.
WITH last_token AS (
    -- A client that gave up left between two tokens, so finish_ns is not the time of its last token.
    SELECT run_id, request, start_ns + duration_ns AS last_token_ns
    FROM requests
    JOIN steps USING (run_id, replica)
    WHERE step = finish_step AND outcome NOT IN ('finished', 'max_model_len')
),
measured AS (
    SELECT
        asked.*,
        outcome IN ('finished', 'max_model_len', 'cancelled') AS completed,
        first_scheduled_ns IS NOT NULL AS ran,
        (first_token_ns - arrival_ns) / 1e6 + COALESCE(frontend_ms, 0) AS ttft_ms,
        CASE WHEN completed THEN (finish_ns - first_token_ns) / 1e6 / NULLIF(output_tokens - 1, 0) END AS tpot_ms,
        CASE
            WHEN output_tokens > 1 THEN
                (CASE WHEN outcome IN ('finished', 'max_model_len') THEN finish_ns ELSE last_token_ns END
                    - first_token_ns) / 1e6 / (output_tokens - 1)
        END AS itl_request_mean_ms,
        CASE WHEN completed THEN (finish_ns - arrival_ns) / 1e6 + COALESCE(frontend_ms, 0) END AS e2e_ms,
        (first_scheduled_ns - arrival_ns) / 1e6 AS queue_ms,
        CASE WHEN own.run_id IS NULL THEN general.ttft_ms ELSE own.ttft_ms END AS ttft_slo_ms,
        CASE WHEN own.run_id IS NULL THEN general.tpot_ms ELSE own.tpot_ms END AS tpot_slo_ms,
        CASE WHEN own.run_id IS NULL THEN general.e2e_ms ELSE own.e2e_ms END AS e2e_slo_ms
    FROM requests AS asked
    JOIN runs USING (run_id)
    LEFT JOIN last_token USING (run_id, request)
    LEFT JOIN slo AS own ON own.run_id = asked.run_id AND own.class = asked.class
    LEFT JOIN slo AS general ON general.run_id = asked.run_id AND general.class IS NULL
    WHERE outcome <> 'not_replayed'
)
SELECT
    run_id,
    request,
    request_id,
    tenant,
    model,
    class,
    outcome,
    replica,
    arrival_ns,
    first_scheduled_ns,
    finish_ns,
    completed,
    ran,
    ttft_ms,
    tpot_ms,
    itl_request_mean_ms,
    e2e_ms,
    queue_ms,
    input_tokens,
    output_tokens,
    cached_tokens,
    computed_tokens,
    preemptions,
    ttft_slo_ms,
    tpot_slo_ms,
    e2e_slo_ms,
    completed
        AND COALESCE(ttft_ms <= ttft_slo_ms, ttft_slo_ms IS NULL)
        AND COALESCE(tpot_ms <= tpot_slo_ms, TRUE)
        AND COALESCE(e2e_ms <= e2e_slo_ms, TRUE) AS within_slo
FROM measured;
