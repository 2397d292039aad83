-- blocks_in_range: does a step use more KV blocks than there are, or fewer than none?
-- kind:   check
-- grain:  one row per run, replica and step that does
-- needs:  runs, steps
-- column: run_id        VARCHAR  run
-- column: replica       SMALLINT replica
-- column: step          BIGINT   step
-- column: free_blocks   INTEGER  KV blocks used by no request
-- column: cached_blocks INTEGER  blocks that hold a cached prefix
-- column: usable_blocks INTEGER  KV blocks that requests can use
SELECT run_id, replica, step, free_blocks, cached_blocks, usable_blocks
FROM steps
JOIN runs USING (run_id)
WHERE free_blocks NOT BETWEEN 0 AND usable_blocks OR cached_blocks NOT BETWEEN 0 AND usable_blocks
ORDER BY run_id, replica, step;
