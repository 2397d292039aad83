-- requests: what became of every row of the trace?
-- kind:   source
-- grain:  one row per run and trace row, in trace order
-- column: run_id                VARCHAR     run
-- column: request               BIGINT      row number in the trace, from 0
-- column: request_id            VARCHAR     id in the trace
-- column: arrival_time          TIMESTAMPTZ logged arrival; null for relative clocks
-- column: tenant                VARCHAR     as in the trace
-- column: model                 VARCHAR     as in the trace
-- column: deployment            VARCHAR     as in the trace
-- column: class                 VARCHAR     as in the trace
-- column: session_id            VARCHAR     as in the trace
-- column: turn                  INTEGER     as in the trace
-- column: log_status            VARCHAR     status in the log
-- column: obs_ttft_us           BIGINT      observed time to first token, microseconds
-- column: obs_e2e_us            BIGINT      observed total time, microseconds
-- column: outcome               VARCHAR     what the replay made of it: finished, max_model_len, rejected, timed_out,
--             cancelled, queue_full, never_finished, not_replayed
-- column: arrival_ns            BIGINT      replayed arrival, nanoseconds from the start of the trace
-- column: first_scheduled_ns    BIGINT      start of the first step that ran it
-- column: first_token_ns        BIGINT      end of the step that sampled its first token
-- column: finish_ns             BIGINT      when it left: end of its last step, or when its client left
-- column: first_token_step      BIGINT      step of its replica that sampled its first token
-- column: finish_step           BIGINT      step of its replica that sampled its last token
-- column: input_tokens          INTEGER     prompt tokens
-- column: output_tokens         INTEGER     tokens generated in the replay; null if not replayed
-- column: cached_tokens         INTEGER     prompt tokens found in the prefix cache at first admission
-- column: resumed_cached_tokens BIGINT      tokens found in the cache at resumptions, summed
-- column: computed_tokens       BIGINT      tokens put through the model for it, recomputation included
-- column: preemptions           INTEGER     times it was preempted
-- column: replica               SMALLINT    replica that served it
SELECT
    run_id,
    request,
    request_id,
    arrival_time,
    tenant,
    model,
    deployment,
    class,
    session_id,
    turn,
    log_status,
    obs_ttft_us,
    obs_e2e_us,
    outcome,
    arrival_ns,
    first_scheduled_ns,
    first_token_ns,
    finish_ns,
    first_token_step,
    finish_step,
    input_tokens,
    output_tokens,
    cached_tokens,
    resumed_cached_tokens,
    computed_tokens,
    preemptions,
    replica
FROM stored.requests;
