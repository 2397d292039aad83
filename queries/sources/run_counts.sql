-- run_counts: what did the replay count?
-- kind:   source
-- grain:  one row per run and count
-- column: run_id  VARCHAR run
-- column: name    VARCHAR steps, preemptions, or outcomes.finished and so on
-- column: counted BIGINT  the count in run.json
FROM stored.run_counts;
