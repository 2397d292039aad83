-- step_load: how loaded was a replica while a step ran?
-- kind:   fact
-- grain:  one row per run, replica and step
-- needs:  runs, steps
-- column: run_id         VARCHAR  run
-- column: replica        SMALLINT replica
-- column: step           BIGINT   step
-- column: start_ns       BIGINT   when it began to run
-- column: end_ns         BIGINT   when it ended
-- column: duration_ns    BIGINT   how long it ran
-- column: running        INTEGER  requests running
-- column: waiting        INTEGER  requests waiting
-- column: scheduled      INTEGER  requests that got tokens
-- column: sampled        INTEGER  requests that sampled a token
-- column: prefill_tokens INTEGER  tokens of prefill chunks
-- column: decode_tokens  INTEGER  decoding requests, one token each
-- column: hit_tokens     INTEGER  tokens found in the prefix cache
-- column: preempted      INTEGER  requests preempted
-- column: evicted_blocks INTEGER  cached blocks handed out for new content
-- column: used_blocks    INTEGER  KV blocks in use by requests
-- column: usable_blocks  INTEGER  KV blocks that requests can use
-- column: cached_blocks  INTEGER  blocks that hold a cached prefix, in use or idle
-- column: kv_share       DOUBLE   used_blocks / usable_blocks
-- note:   what the scheduler decided for a step is taken to hold from its start to its end; between steps nothing
--         runs or waits.
SELECT
    run_id,
    replica,
    step,
    start_ns,
    start_ns + duration_ns AS end_ns,
    duration_ns,
    running,
    waiting,
    scheduled,
    sampled,
    prefill_tokens,
    decode_tokens,
    hit_tokens,
    preempted,
    evicted_blocks,
    runs.usable_blocks - free_blocks AS used_blocks,
    runs.usable_blocks,
    cached_blocks,
    used_blocks / runs.usable_blocks AS kv_share
FROM steps
JOIN runs USING (run_id);
