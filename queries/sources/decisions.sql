-- decisions: what did the scheduler decide, request by request?
-- kind:   source
-- grain:  one row per run and step and request, in the order of the decision; only with --decisions
-- column: run_id           VARCHAR  run
-- column: step             BIGINT   step of the replica
-- column: replica          SMALLINT replica that decided
-- column: position         INTEGER  place in the step; for a preemption, its place among the preempted
-- column: request          BIGINT   row number in the trace
-- column: event            TINYINT  0 running, 1 first admission, 2 resumption, 3 preempted (its KV is lost), 4 swapped out, 5 swapped in, 6 dropped as it can never fit
-- column: scheduled_tokens INTEGER  tokens given in the step; 0 if preempted
-- column: computed_tokens  INTEGER  tokens in KV before the step; if preempted, the tokens lost
-- column: is_prefill       BOOLEAN  the tokens belong to a prompt or to a recomputation
-- column: samples          BOOLEAN  the step samples a token for it
-- column: hit_tokens       INTEGER  tokens found in the prefix cache (events 1 and 2)
-- note:   empty for runs made without --decisions.
SELECT
    run_id,
    step,
    replica,
    position,
    request,
    event,
    scheduled_tokens,
    computed_tokens,
    is_prefill,
    samples,
    hit_tokens
FROM stored.decisions;
