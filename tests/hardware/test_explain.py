"""`servecast hardware`: the figures by hand, each trap in words, 80 columns."""

import json

import pytest

from pipeline import config
from pipeline.hardware import resolve
from pipeline.hardware.explain import explain
from tests.replay import servecast


def told(*overrides, lengths=()):
    return explain(resolve(config.load(overrides=overrides)), lengths)


def shown(*arguments):
    result = servecast.run("hardware", *arguments)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    return " ".join(result.stdout.split())


def test_requests_at_once_by_hand():
    # Llama-3.1-8B on one H100: 26,022 blocks (test_kv_capacity.py), of which one is never handed out.
    rows = told(lengths=[100, 2048, 2049, 131072, 200000])["concurrency"]
    assert [row["at_once"] for row in rows] == [1024, 26021 // 128, 26021 // 129, 26021 // 8192, 0]
    assert [row["limit"] for row in rows][:2] == ["max_num_seqs", "KV memory"]
    assert rows[-1]["limit"].startswith("refused")


def test_the_share_is_of_total_memory_weights_included():
    naive = told()["naive"]
    weights = 16060522496 / 2**30
    assert naive["budget_gib_per_gpu"] == pytest.approx(0.9 * (79.18 - weights))
    assert naive["weights_outside_share_gib"] == pytest.approx(0.1 * weights)
    assert naive["tokens"] == int(0.9 * (79.18 - weights) * 2**30 / 131072)
    assert naive["over_pct"] > 10
    text = shown("--model", "llama-3.1-8b")
    assert "gpu_memory_utilization = 0.9 of it all, weights too" in text
    assert "takes 0.9 of what the weights leave instead of 0.9 of the whole" in text


def test_max_model_len_caps_only_engines_that_reserve_it():
    short, long = told("engine.max_model_len=8192", lengths=[2048]), told(lengths=[2048])
    assert short["concurrency"][0]["at_once"] == long["concurrency"][0]["at_once"] == 203
    assert short["reserving"] == 26021 // 512
    assert long["reserving"] == 26021 // 8192
    assert long["naive"]["at_once"] == long["naive"]["tokens"] // 131072
    text = shown("--model", "llama-3.1-8b")
    assert "max_model_len = 131,072 refuses longer prompts, and one sequence of it must fit at start" in text
    assert "does not cap how many run; an engine that reserves it for each request does" in text


def test_types_of_weights_and_kv():
    own, fp8, four_bit, kv = told()["types"]
    assert {row["kv_bytes_per_token"] for row in (own, fp8, four_bit)} == {131072}
    assert own["weights_gib"] > fp8["weights_gib"] > four_bit["weights_gib"]
    assert fp8["step_ms"] < own["step_ms"]
    assert (kv["kv_bytes_per_token"], kv["weights_gib"]) == (65536, own["weights_gib"])
    assert kv["at_once"] in (2 * own["at_once"], 2 * own["at_once"] + 1)
    assert "a smaller KV type is what multiplies the requests that fit" in shown("--gpu", "h100")
    assert [row["weight_dtype"] for row in told("hardware.gpu=a100")["types"]] == ["bf16", "w4a16", "bf16"]


def test_tensor_parallelism():
    rows = {row["tensor_parallel_size"]: row for row in told()["tensor_parallel"]}
    assert [size for size, row in rows.items() if not row["possible"]] == [3, 6]
    assert [rows[size]["kv_bytes_per_token"] for size in (1, 2, 4, 8, 16)] == [131072, 65536, 32768, 16384, 16384]
    assert rows[16]["kv_copies"] == 2
    assert "KV is divided up to its 8 heads and copied beyond" in shown("--tp", "2")
    text = shown("--model", "deepseek-v3", "--gpu", "h200", "--tp", "8")
    assert "Latent attention keeps its one entry on every GPU" in text
    assert "MLA, latent" in text


def test_estimates_are_marked():
    assert "Step time: measured" in shown("--model", "llama-3.1-8b")
    text = shown("--gpu", "l4", "--set", "engine.max_model_len=4096")
    assert "Step time: ESTIMATE, roofline, about +-17 % a step" in text


def test_catalogue_and_json():
    text = shown()
    for word in ("h100-80gb-sxm", "llama-3.1-8b", "gqa", "131,072"):
        assert word in text
    every = json.loads(servecast.run("hardware", "--json").stdout)
    assert {"gpus", "models"} == set(every)
    assert all(row["source"] for rows in every.values() for row in rows)
    one = json.loads(servecast.run("hardware", "--gpu", "h200", "--json", "--lengths", "4096").stdout)
    assert one["concurrency"][0]["length"] == 4096
    assert one["hardware"]["gpu"] == "h200-141gb-sxm"


def test_mistakes():
    assert "must be whole numbers of tokens" in servecast.run("hardware", "--gpu", "h100", "--lengths", "a").output
    assert "does not divide the 32 attention heads" in str(servecast.run("hardware", "--tp", "3").output)
