-- sweep_points: what does each run deliver, and on how many accelerators?
-- kind:   answer
-- grain:  one row per run
-- needs:  engine_use, headline, run_config, run_latency, runs
-- params: run VARCHAR = NULL
-- column: run_id              VARCHAR run
-- column: requests            BIGINT  requests replayed, refused ones included
-- column: replicas            INTEGER replicas of the deployment
-- column: gpus                INTEGER accelerators, replicas x tensor_parallel_size
-- column: offered_rps         DOUBLE  requests per second between first and last arrival
-- column: completed_rps       DOUBLE  requests answered in full per second
-- column: goodput_rps         DOUBLE  requests within the SLO per second
-- column: goodput_per_gpu_rps DOUBLE  goodput_rps / gpus
-- column: output_tokens_per_s DOUBLE  tokens generated per second
-- column: ttft_p95_ms         DOUBLE  95th percentile of ttft, milliseconds
-- column: tpot_p95_ms         DOUBLE  95th percentile of tpot, milliseconds
-- column: e2e_p95_ms          DOUBLE  95th percentile of e2e, milliseconds
-- column: itl_p99_ms          DOUBLE  99th percentile of all token gaps, milliseconds
-- column: kv_peak_share       DOUBLE  KV blocks in use, highest share
-- column: kv_used_share       DOUBLE  KV blocks that requests hold, mean share while steps run
-- column: kv_held_share       DOUBLE  tokens held in KV, as a share of what all blocks could hold, mean
-- column: place_share         DOUBLE  requests running, mean share of max_num_seqs
-- column: place_idle_share    DOUBLE  places empty while requests wait, mean share
-- column: recomputed_share    DOUBLE  share of the computed tokens that had been computed before
-- column: preemptions         BIGINT  preemptions
-- column: slo_share           DOUBLE  share of requests within the SLO
-- note:   the figures are those of headline and engine_use.
WITH fleet AS (
    SELECT run_id, COALESCE(MAX(value) FILTER (WHERE key = 'fleet.replicas'), '1')::INTEGER AS replicas
    FROM run_config
    GROUP BY run_id
),
gap AS (
    SELECT run_id, p99_ms AS itl_p99_ms
    FROM run_latency
    WHERE metric = 'itl'
)
SELECT
    run_id,
    requests,
    replicas,
    replicas * tensor_parallel_size AS gpus,
    offered_rps,
    completed_rps,
    goodput_rps,
    goodput_rps / gpus AS goodput_per_gpu_rps,
    output_tokens_per_s,
    ttft_p95_ms,
    tpot_p95_ms,
    e2e_p95_ms,
    itl_p99_ms,
    kv_peak_share,
    kv_used_share,
    kv_held_share,
    place_share,
    place_idle_share,
    recomputed_share,
    preemptions,
    slo_share
FROM headline($run)
JOIN runs USING (run_id)
JOIN fleet USING (run_id)
LEFT JOIN engine_use($run) USING (run_id)
LEFT JOIN gap USING (run_id)
ORDER BY run_id;
