"""Replays for a comparison: requests as a trace file, settings, and each request's latencies as callers saw them."""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import config, hardware, schema
from pipeline.hardware import Deployment, kv_capacity
from pipeline.replay import driver
from pipeline.replay.manifest import TraceFile


def requests(
    arrival_us: Sequence[int],
    input_tokens: Sequence[int],
    output_tokens: Sequence[int],
    prefix_hashes: Sequence[Sequence[int]],
    block_tokens: int = 16,
) -> pa.Table:
    """Return a trace of requests with prefix hashes of their prompts, rows ordered by arrival."""
    n = len(arrival_us)
    given = {
        "request_id": [str(row) for row in range(n)],
        "attempt": [0] * n,
        "arrival_us": list(arrival_us),
        "input_tokens": list(input_tokens),
        "output_tokens": list(output_tokens),
        "n": [1] * n,
        "status": ["ok"] * n,
        "served_from": ["engine"] * n,
        "replayable": [True] * n,
        "flags": [[] for _ in range(n)],
        "prefix_hashes": [np.asarray(hashes, np.int64).astype(np.uint64).tolist() for hashes in prefix_hashes],
        "prefix_block_tokens": [block_tokens] * n,
        "prefix_tokens": [block_tokens * len(hashes) for hashes in prefix_hashes],
        "prefix_kind": ["token_blocks"] * n,
    }
    wanted = schema.arrow_schema(schema.TRACE)
    columns = [pa.array(given.get(name, [None] * n), wanted.field(name).type) for name in wanted.names]
    return pa.table(columns, schema=wanted)


def before_graphs_counted(settings: Sequence[str]) -> list[str]:
    """Return settings with the KV blocks that vLLM before 0.21 had, when CUDA graphs came out of the rest."""
    deployment = hardware.resolve(config.load(overrides=settings))
    memory = kv_capacity.memory(
        deployment.gpu,
        deployment.model,
        tensor_parallel_size=deployment.tensor_parallel_size,
        weight_dtype=deployment.weight_dtype,
        kv_cache_dtype=deployment.kv_cache_dtype,
        gpu_memory_utilization=deployment.config.engine.limit("gpu_memory_utilization"),
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        max_num_seqs=deployment.max_num_seqs,
        graphs_counted=False,
    )
    return [*settings, f"engine.num_gpu_blocks={memory.num_gpu_blocks}"]


def replay(trace: pa.Table, settings: Sequence[str]) -> tuple[pl.DataFrame, Deployment]:
    """Replay and return one row per request in the order of the trace: ttft_ms, tpot_ms, e2e_ms, preemptions."""
    chosen = config.load(overrides=settings)
    deployment = hardware.resolve(chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        pq.write_table(trace, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rows = pl.DataFrame(driver.requests(TraceFile(path, path.name, digest), chosen))
    return latencies(rows, deployment.frontend_ms), deployment


def latencies(rows: pl.DataFrame, frontend_ms: float) -> pl.DataFrame:
    """Return the latencies of requests.parquet as the queries define them (queries/facts/request_latency.sql)."""
    after = pl.col("output_tokens") - 1
    return rows.sort("request").select(
        "preemptions",
        "output_tokens",
        ttft_ms=(pl.col("first_token_ns") - pl.col("arrival_ns")) / 1e6 + frontend_ms,
        e2e_ms=(pl.col("finish_ns") - pl.col("arrival_ns")) / 1e6 + frontend_ms,
        tpot_ms=pl.when(after > 0).then((pl.col("finish_ns") - pl.col("first_token_ns")) / 1e6 / after),
    )
