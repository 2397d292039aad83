"""Pooled token gaps against a naive twin that writes down every token."""

import itertools
import random

import numpy as np
import pytest

from pipeline.query import session
from tests.queries import fake_run

SHARES = [0.0, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0]


def made_up_run(seed: int) -> tuple[list[dict], dict[int, list[dict]], list[dict], list[dict]]:
    """Return random requests, steps and gaps, and every token gap as (tenant, minute, gap_ns)."""
    rng = random.Random(seed)
    steps, ends, after_idle = {}, {}, set()
    for replica in range(rng.choice([1, 2])):
        now, rows = rng.randrange(10**9), []
        for step in range(rng.choice([1, 2, 40])):
            idle_ns = rng.choice([0, 0, 0, 20 * 10**9])
            if idle_ns:
                after_idle.add((replica, step))
            now += idle_ns
            duration = rng.choice([5_000_000, 5_000_001, rng.randrange(10**6, 10**8)])
            rows.append({"step": step, "scheduled_ns": now, "start_ns": now, "duration_ns": duration})
            now += duration
        steps[replica], ends[replica] = rows, [row["start_ns"] + row["duration_ns"] for row in rows]
    requests, gaps, pooled = [], [], []
    for request in range(rng.choice([1, 3, 25])):
        replica = rng.choice(list(steps))
        tokens = sorted(rng.sample(range(len(ends[replica])), rng.randrange(0, min(len(ends[replica]), 20) + 1)))
        # A request rarely misses steps: most requests sample in every step of their span.
        if tokens and rng.random() < 0.7:
            tokens = list(range(tokens[0], tokens[-1] + 1))
        # No engine waits while it could go on with a request.
        tokens = [t for t in tokens if t - 1 not in tokens or (replica, t) not in after_idle]
        tenant = rng.choice(["x", "y", None])
        requests.append(
            {
                "request": request,
                "tenant": tenant,
                "replica": replica,
                "outcome": "finished",
                "first_token_step": tokens[0] if tokens else None,
                "finish_step": tokens[-1] if tokens else None,
            }
        )
        for before, step in itertools.pairwise(tokens):
            gap_ns = ends[replica][step] - ends[replica][before]
            pooled.append((tenant, ends[replica][step] // 60_000_000_000, gap_ns))
            if step - before > 1:
                found = {"request": request, "replica": replica, "step": step, "previous_step": before}
                gaps.append(found | {"gap_ns": gap_ns})
    return requests, steps, gaps, pooled


@pytest.mark.parametrize("seed", range(6))
def test_pooled_gaps_agree_with_one_row_per_token(tmp_path, seed):
    requests, steps, gaps, pooled = made_up_run(seed)
    same = {"request_id": "r", "log_status": "ok", "arrival_ns": 0}
    fake_run.write_tables(tmp_path, [same | row for row in requests], _filled(steps), gaps, part_rows=17)
    fake_run.write_manifest(tmp_path, "a", fake_run.CONFIG, ["finished"] * len(requests), steps)
    connection = session.open([tmp_path])
    for dimension in ("all", "tenant", "minute"):
        compare(connection, dimension, pooled)


def compare(connection, dimension: str, pooled: list[tuple]) -> None:
    got = session.frame(connection, f"FROM itl_quantiles('{dimension}', NULL, {SHARES}, 1)").to_dicts()

    groups: dict[tuple, list[int]] = {}
    for tenant, minute, gap_ns in pooled:
        key = (tenant if dimension == "tenant" else None, minute if dimension == "minute" else None)
        groups.setdefault(key, []).append(gap_ns)
    assert {(row["label"], row["minute"]) for row in got} == set(groups)
    for row in got:
        values = np.array(groups[row["label"], row["minute"]])
        assert row["samples"] == len(values)
        assert row["mean_ms"] == pytest.approx(values.mean() / 1e6, rel=1e-12)
        assert row["max_ms"] == values.max() / 1e6
        np.testing.assert_allclose(row["quantiles_ms"], np.quantile(values, SHARES) / 1e6, rtol=1e-12)


def _filled(steps: dict[int, list[dict]]) -> dict[int, list[dict]]:
    counts = ("running", "waiting", "scheduled", "sampled", "prefill_tokens", "decode_tokens", "context_tokens")
    counts += ("decode_context_tokens", "prefill_area", "held_tokens", "admitted", "resumed", "preempted", "hit_tokens")
    counts += ("free_blocks", "cached_blocks", "evicted_blocks")
    zeros = dict.fromkeys(counts, 0)
    return {replica: [zeros | row for row in rows] for replica, rows in steps.items()}
