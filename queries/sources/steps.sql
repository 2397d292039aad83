-- steps: what did each engine step do?
-- kind:   source
-- grain:  one row per run and engine step, numbered per replica
-- column: run_id                VARCHAR  run
-- column: replica               SMALLINT replica that ran it
-- column: step                  BIGINT   number of the step in its replica, from 0
-- column: scheduled_ns          BIGINT   when the scheduler decided it
-- column: start_ns              BIGINT   when it began to run
-- column: duration_ns           BIGINT   how long it ran
-- column: running               INTEGER  requests running after the decision
-- column: waiting               INTEGER  requests waiting after the decision
-- column: scheduled             INTEGER  requests that got tokens in the step
-- column: sampled               INTEGER  requests that sampled a token in the step
-- column: prefill_tokens        INTEGER  tokens of prefill chunks
-- column: decode_tokens         INTEGER  decoding requests, one token each
-- column: context_tokens        BIGINT   sum over scheduled requests of tokens in KV after the step
-- column: decode_context_tokens BIGINT   the same over decoding requests alone
-- column: prefill_area          DOUBLE   sum over prefill chunks of c * (p + c / 2): c new tokens after p in KV
-- column: held_tokens           BIGINT   tokens in KV of all running requests after the step, shared ones once for each
-- column: admitted              INTEGER  requests started for the first time
-- column: resumed               INTEGER  preempted requests started again
-- column: preempted             INTEGER  requests preempted
-- column: hit_tokens            INTEGER  tokens found in the prefix cache by the started requests
-- column: free_blocks           INTEGER  KV blocks used by no request, after the decision
-- column: cached_blocks         INTEGER  distinct block contents in the prefix cache, after the decision
-- column: evicted_blocks        INTEGER  cached blocks handed out for new content in the decision
SELECT
    run_id,
    replica,
    step,
    scheduled_ns,
    start_ns,
    duration_ns,
    running,
    waiting,
    scheduled,
    sampled,
    prefill_tokens,
    decode_tokens,
    context_tokens,
    decode_context_tokens,
    prefill_area,
    held_tokens,
    admitted,
    resumed,
    preempted,
    hit_tokens,
    free_blocks,
    cached_blocks,
    evicted_blocks
FROM stored.steps;
