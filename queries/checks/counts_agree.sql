-- counts_agree: do the tables hold as many rows as the replay counted?
-- kind:   check
-- grain:  one row per run and count that differs
-- needs:  requests, run_counts, steps
-- column: run_id  VARCHAR run
-- column: name    VARCHAR count in run.json
-- column: counted BIGINT  what run.json says
-- column: found   BIGINT  what the tables say
WITH tables AS (
    SELECT run_id, 'outcomes.' || outcome AS name, COUNT(*) AS found FROM requests GROUP BY run_id, outcome
    UNION ALL
    SELECT run_id, 'steps', COUNT(*) FROM steps GROUP BY run_id
    UNION ALL
    SELECT run_id, 'preemptions', SUM(preempted)::BIGINT FROM steps GROUP BY run_id
)
SELECT run_id, name, counted, COALESCE(found, 0) AS found
FROM run_counts
FULL JOIN tables USING (run_id, name)
WHERE (name LIKE 'outcomes.%' OR name IN ('steps', 'preemptions')) AND COALESCE(counted, 0) <> COALESCE(found, 0)
ORDER BY run_id, name;
