"""Schedulers side by side: who gets what, and what is said of it."""

import json
from pathlib import Path

import pytest

from pipeline import config
from pipeline.errors import ConfigError
from pipeline.sweep import compare
from pipeline.sweep.results import DONE, Result
from tests.replay.servecast import LITTLE

BASE = config.load(overrides=[f"{key}={value}" for key, value in LITTLE.items() if value is not None])


def test_every_policy_has_the_memory_and_limits_of_the_deployment():
    grid = compare.grid(BASE, ["vllm", "reserve"], [2, 1])
    assert [point.settings for point in grid.points] == [
        {"engine.policy": policy, "load.rate_scale": load} for policy in ("vllm", "reserve") for load in (1, 2)
    ]
    vllm, reserve = grid.points[0].config.engine, grid.points[2].config.engine
    assert (vllm.block_size, reserve.block_size) == (16, 16)
    # One block of either engine is never handed out.
    assert reserve.num_gpu_blocks == vllm.num_gpu_blocks
    assert reserve.max_num_seqs == vllm.max_num_seqs
    assert grid.points[3].config.load.rate_scale == 2


@pytest.mark.parametrize(
    ("policies", "loads", "message"),
    [
        (["vllm", "vlm"], [1], "--policies vlm: there is no such policy"),
        (["vllm"], [1, 2, 3, 4, 5], "must be 1 to 4 factors above 0"),
        (["vllm"], [0], "must be 1 to 4 factors above 0"),
    ],
)
def test_what_cannot_be_compared_is_said(policies, loads, message):
    with pytest.raises(ConfigError, match=message):
        compare.grid(BASE, policies, loads)


def test_a_closed_load_cannot_be_scaled():
    closed = config.load(overrides=["load.kind=closed", "load.concurrency=4"])
    with pytest.raises(ConfigError, match=r"needs load\.kind = open"):
        compare.grid(closed, ["vllm"], [1])


def result(number: int, policy: str, load: float, slo_share: float | None, goodput_rps: float) -> Result:
    figures = {"slo_share": slo_share, "goodput_rps": goodput_rps}
    return Result(number, {"engine.policy": policy, "load.rate_scale": load}, DONE, "run", figures)


def test_the_policy_that_serves_most_within_the_slo_is_named():
    points = [
        result(1, "a", 1, 0.995, 10.0),
        result(2, "a", 2, 0.8, 12.0),
        result(3, "b", 1, 0.999, 10.0),
        result(4, "b", 2, 0.991, 19.0),
        result(5, "c", 1, 0.5, 5.0),
        result(6, "c", 2, None, 0.0),
    ]
    choice = compare.choose(points, 0.99)
    assert choice.number == 4
    assert choice.reason == (
        "The SLO is kept for 99 % of the requests by b up to load 2, a up to load 1; c at none of these loads. "
        "Most goodput within it: b with 19 requests/s."
    )
    assert compare.choose(points[4:], 0.99).number is None


def test_the_command_writes_a_page_with_every_chart(tmp_path):
    from click.testing import CliRunner

    from pipeline.cli import main

    log = tmp_path / "log.jsonl"
    rows = [{"timestamp": 100 * i, "input_length": 30, "output_length": 8, "hash_ids": [i]} for i in range(12)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = [part for key, value in LITTLE.items() if value is not None for part in ("--set", f"{key}={value}")]
    asked = ["compare", str(log), "--policies", "vllm,reserve", "--loads", "1,2", "-o", str(tmp_path / "runs"), *sets]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    page = done.output.rsplit("report ", 1)[1].strip()
    html = Path(page).read_text(encoding="utf-8")
    assert html.count("<figure>") == 9  # eight charts and the table
    assert "Schedulers compared" in html
