-- steps_sample_all_tokens: do the steps sample fewer tokens than the requests got, or preempt other requests?
-- kind:   check
-- grain:  one row per run where they do
-- needs:  requests, steps
-- column: run_id      VARCHAR run
-- column: sampled     BIGINT  tokens sampled, summed over steps
-- column: tokens      BIGINT  tokens generated, summed over requests
-- column: preempted   BIGINT  preemptions, summed over steps
-- column: preemptions BIGINT  preemptions, summed over requests
-- note:   a token sampled after its client left is in a step and in no request.
WITH step AS (
    SELECT run_id, SUM(sampled)::BIGINT AS sampled, SUM(preempted)::BIGINT AS preempted
    FROM steps
    GROUP BY run_id
),
request AS (
    SELECT run_id, SUM(output_tokens)::BIGINT AS tokens, SUM(requests.preemptions)::BIGINT AS preemptions
    FROM requests
    GROUP BY run_id
)
SELECT run_id, sampled, tokens, preempted, preemptions
FROM request
LEFT JOIN step USING (run_id)
WHERE COALESCE(sampled, 0) < COALESCE(tokens, 0) OR COALESCE(preempted, 0) <> COALESCE(preemptions, 0)
ORDER BY run_id;
