"""Comparisons with measurements: limits by hand, what counts, the recorded table, and that it can be recomputed."""

import csv
import json
import math

import numpy as np
import pytest

from pipeline import validate
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue
from pipeline.validate import checks, closedloop, kv, openloop, served
from pipeline.validate.checks import Check, Limit, Table
from tests import shared
from tests.replay import servecast


def check(error=None, standing="judged", metric="TPOT", **more):
    values = {"observed": None, "predicted": None, "unit": "ms", "run": "r", "gpu": "g", "model": "m"} | more
    return Check(table="t", tensor_parallel_size=1, metric=metric, error_pct=error, standing=standing, **values)


def table(*limits):
    return Table("t", "T", "about", limits, "file", lambda path: [])


def test_limits_by_hand():
    rows = [check(1.0), check(-4.0), check(2.5), check(90.0, "fitted"), check(None), check(7.0, metric="E2E")]
    of = {statistic: Limit("x", statistic, 3.0, ("TPOT",)) for statistic in ("mean", "median", "worst")}
    found = {v.limit.statistic: v for v in checks.verdicts(table(*of.values()), rows)}
    assert {name: (v.rows, v.value_pct, v.kept) for name, v in found.items()} == {
        "mean": (3, 2.5, True),
        "median": (3, 2.5, True),
        "worst": (3, 4.0, False),
    }
    (nothing,) = checks.verdicts(table(Limit("x", "mean", 3.0, ("none",))), rows)
    assert (nothing.value_pct, nothing.kept) == (None, None)


def test_errors_are_of_the_observed():
    assert checks.error_pct(200.0, 190.0) == pytest.approx(-5)
    assert checks.error_pct(None, 1.0) is checks.error_pct(1.0, None) is None


def test_rows_come_back_from_csv(tmp_path):
    rows = [check(-1.25, observed=2588.0, predicted=2502.0), check(standing="predicted", predicted=57.5, note="a, b")]
    checks.write(rows, tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert checks.read(csv.DictReader(file)) == rows


def test_every_recorded_limit_is_kept():
    found = validate.recorded(validate.TABLES)
    judged = {
        table.name: checks.verdicts(table, [c for c in found if c.table == table.name]) for table in validate.TABLES
    }
    assert all(verdict.kept for verdicts in judged.values() for verdict in verdicts), judged
    assert {name for name, verdicts in judged.items() if verdicts} >= {
        "kv",
        "steps",
        "replay",
        "open_loop",
        "closed_loop",
    }
    assert {row.standing for row in found} <= set(checks.STANDINGS)


def test_what_was_fitted_is_not_judged():
    found = {row.run: row for row in validate.recorded([kv.TABLE, openloop.TABLE])}
    for run, row in found.items():
        if run in kv.FITTED or "mixtral" in run:
            assert row.standing != "judged", run
    fitted_on = " ".join(row["fitted_on"] for row in catalogue.rows("overheads.csv"))
    assert "RTX" not in fitted_on
    assert all(row["judged_on"] for row in catalogue.rows("overheads.csv"))


@pytest.mark.parametrize("name", ["kv", "steps", "replay", "open_loop", "closed_loop", "static"])
def test_recorded_table_can_be_recomputed(name, tmp_path):
    (chosen,) = validate.chosen([name])
    data = shared.path("steptime" if name == "steps" else "groundtruth")
    checks.write(validate.recompute([chosen], data), tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        again = checks.read(csv.DictReader(file))
    for row, before in zip(again, validate.recorded([chosen]), strict=True):
        assert (row.run, row.metric, row.standing) == (before.run, before.metric, before.standing)
        for value, recorded in ((row.predicted, before.predicted), (row.error_pct, before.error_pct)):
            assert (value is None) == (recorded is None), row
            assert recorded is None or value == pytest.approx(recorded, rel=1e-4, abs=1e-4), row


def test_mu_of_mixed_batches_is_the_time_weighted_median():
    import polars as pl

    batches = pl.read_parquet(shared.path("steptime", "rtx_mixed_attention.parquet"))
    fits = {"rtx4090-24gb_llama-3.1-8b_tp1_bf16": 41_408, "rtxpro6000-96gb_llama-3.1-8b_tp1_bf16": 572_000}
    for config, kv_tokens in fits.items():
        (row,) = (row for row in catalogue.rows("coefficients.csv") if row["config"] == config)
        term = {name: float(row[name]) for name in ("D0", "D1", "D2", "D3", "D4", "P0", "P1", "P2", "P3", "P4", "P5")}
        mine = batches.filter(pl.col("config") == row["source_config"])
        c, p, m, each, ms = (
            mine[name].to_numpy().astype(float)
            for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "ms")
        )
        decode = np.maximum(term["D0"] + term["D1"] * m, term["D2"] + term["D3"] * m + term["D4"] * m * each)
        prefill = np.maximum(
            term["P0"] + term["P1"] * c + term["P2"] * (p + c),
            term["P3"] + term["P4"] * c + term["P5"] * c * (p + c / 2),
        )
        keep = m * each + p + c <= kv_tokens
        ratio, weight = ((ms - prefill) / decode)[keep], decode[keep]
        order = np.argsort(ratio)
        half = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
        assert float(row["mu_mixed"]) == pytest.approx(ratio[order][half], abs=0.001)


def test_a_replay_by_hand():
    # One request of 100 > 3 alone: prefill and two decode steps of Llama-3.1-8B on one H100, plus the frontend.
    trace = served.requests([0], [100], [3], [[]])
    found, deployment = served.replay(trace, ["hardware.gpu=h100"])
    steps = deployment.step_time
    prefill_ns = steps.step_ns(0, 0, [(100, 0)], 1)
    decode_ns = [steps.step_ns(1, context) for context in (101, 102)]
    assert found["ttft_ms"][0] == pytest.approx(prefill_ns / 1e6 + 20)
    assert found["e2e_ms"][0] == pytest.approx((prefill_ns + sum(decode_ns)) / 1e6 + 20)
    assert found["tpot_ms"][0] == pytest.approx(sum(decode_ns) / 2e6)


def test_prompts_that_repeat_share_their_prefix():
    first, second = openloop._hashes(0, 0, 6, 30), openloop._hashes(0, 1, 6, 30)
    assert first[:6] == second[:6]
    assert not set(first[6:]) & set(second[6:])
    assert not set(openloop._hashes(1, 2, 6, 30)) & set(first)


def test_clients_of_a_closed_load_do_not_start_in_step():
    inputs, outputs = closedloop.lengths(1000, 200, 4, shortest=1.0)
    assert outputs[:5] == [50, 100, 150, 200, 200]
    assert set(inputs) == {1000}
    assert len(inputs) == 40
    drawn, _ = closedloop.lengths(1000, 200, 64, shortest=0.8)
    assert 800 <= min(drawn) < 850
    assert 950 < max(drawn) <= 1000
    assert closedloop.lengths(1000, 200, 64, 0.8)[0] == drawn


def one_start(folder, blocks):
    """Write a log of one start: Llama-3.1-8B on one H100 at 2048 tokens and 128 sequences, by our sum 27,5xx blocks."""
    names = [
        "id", "gpu", "model", "tp", "gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs", "engine",
        "weight_dtype", "kv_dtype", "num_gpu_blocks", "available_kv_gib_per_gpu", "kv_tokens", "note",
    ]  # fmt: skip
    values = ["mine", "h100", "llama-3.1-8b", 1, 0.9, 2048, 128, "V1", "bf16", "bf16", blocks, "", "", ""]
    with (folder / "kv_blocks.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, values])


def test_recomputing_from_a_folder(tmp_path):
    activation = max(38 * 128 * 128256, 3 * 14336 * 2 * 2048) + 2 * 4096 * 2 * 2048
    gib = 0.9 * 79.18 - (16060522496 + activation) / 2**30 - 0.13
    blocks = math.floor(gib * 2**30 / (16 * 131072))
    one_start(tmp_path, blocks)
    good = servecast.run("validate", "kv", "--data", tmp_path)
    assert good.exit_code == 0, good.output
    assert "+0.00 %" in good.stdout
    one_start(tmp_path, 2 * blocks)
    bad = servecast.run("validate", "kv", "--data", tmp_path)
    assert bad.exit_code == 1
    assert "NOT KEPT" in bad.stdout


def test_the_command(tmp_path):
    result = servecast.run("validate", "-o", tmp_path / "rows.csv")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    for word in ("RTX4090__Llama-3.1-8B", "kept", "estimate", "explained", "bloom-176b"):
        assert word in result.stdout
    assert (tmp_path / "rows.csv").read_text().count("\n") == len(validate.recorded(validate.TABLES)) + 1
    told = json.loads(servecast.run("validate", "kv", "--json").stdout)
    assert told["kv"]["limits"][0]["kept"] is True
    assert "no such comparison; there are kv, steps" in servecast.run("validate", "x").output
    assert "has no vllm_replay" in servecast.run("validate", "replay", "--data", tmp_path).output


def test_unknown_names_are_named():
    with pytest.raises(ConfigError, match="no such comparison"):
        validate.chosen(["nothing"])
