"""The catalogue: ids agree between files, names are found, facts equal published ones."""

import csv

import pytest

from pipeline.errors import ConfigError
from pipeline.hardware import catalogue
from tests import shared


@pytest.mark.parametrize(
    ("name", "gpu_id"),
    [("h100", "h100-80gb-sxm"), ("H100-80GB-SXM", "h100-80gb-sxm"), ("A100", "a100-80gb-sxm"), ("l40s", "l40s-48gb")],
)
def test_accelerator_names(name, gpu_id):
    assert catalogue.gpu(name).id == gpu_id


@pytest.mark.parametrize(
    ("name", "model_id", "dtype"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("META-LLAMA/llama-3.1-8b", "llama-3.1-8b", None),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b", None),
        ("Qwen/Qwen3-32B", "qwen3-32b", None),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8"),
    ],
)
def test_model_names(name, model_id, dtype):
    model, implied = catalogue.model(name)
    assert (model.id, implied) == (model_id, dtype)


def test_unknown_names_list_the_nearest():
    with pytest.raises(ConfigError, match=r'hardware.gpu = "h101": not in the catalogue; did you mean h100-80gb-sxm'):
        catalogue.gpu("h101")
    with pytest.raises(ConfigError, match=r"did you mean llama-3.1-8b") as caught:
        catalogue.model("meta-llama/Llama-3.1-9B")
    assert "Known ids: codellama-34b, deepseek-v3" in str(caught.value)


def test_one_id_per_thing():
    for row in catalogue.rows("coefficients.csv"):
        assert row["gpu"] in catalogue.gpus()
        assert row["model"] in catalogue.models()
    for row in catalogue.rows("aliases.csv"):
        assert row["id"] in (catalogue.gpus() if row["kind"] == "gpu" else catalogue.models())
    assert {row["scope"] for row in catalogue.rows("roofline.csv")} <= {"all", *catalogue.gpus()}
    configs = {row["config"] for row in catalogue.rows("coefficients.csv")}
    assert configs == {row["config"] for row in catalogue.rows("g_knots.csv")}


def test_every_row_names_a_source():
    assert all(gpu.source for gpu in catalogue.gpus().values())
    assert all(model.source for model in catalogue.models().values())
    assert all(row["source"] for row in catalogue.rows("coefficients.csv"))
    assert all(row["source"] for row in catalogue.rows("overheads.csv"))


@pytest.mark.parametrize(
    ("model_id", "dtype", "gib"),
    [
        # Weights that vLLM logs per accelerator at start, GiB (llm-d benchmark, vLLM 0.11, one H100).
        ("llama-3.1-8b", "bf16", 14.99),
        ("qwen3-32b", "bf16", 61.03),
        ("qwen3-0.6b", "bf16", 1.12),
    ],
)
def test_weights_are_what_vllm_logs(model_id, dtype, gib):
    assert catalogue.models()[model_id].weight_bytes[dtype] / 2**30 == pytest.approx(gib, rel=0.01)


def test_kv_elements_by_attention_kind():
    llama = catalogue.models()["llama-3.1-8b"]  # 32 layers, 8 KV heads of 128
    assert llama.kv_elements_per_gpu(1) == 2 * 32 * 8 * 128
    assert llama.kv_elements_per_gpu(4) == 2 * 32 * 2 * 128
    assert llama.kv_elements_per_gpu(16) == llama.kv_elements_per_gpu(8) == 2 * 32 * 128  # one head, then copies
    deepseek = catalogue.models()["deepseek-v3"]  # 61 layers, latent 512 + rotary 64, on every accelerator
    assert deepseek.kv_elements_per_gpu(1) == deepseek.kv_elements_per_gpu(8) == 61 * 576


def test_tensor_parallel_sizes():
    assert catalogue.models()["llama-3.1-8b"].tensor_parallel_sizes() == [1, 2, 4, 8, 16, 32]
    assert catalogue.models()["qwen2.5-7b"].tensor_parallel_sizes() == [1, 2, 4, 28]  # 28 heads, 4 KV heads


def test_facts_equal_their_source():
    with shared.path("steptime", "models.csv").open() as file:
        for row in csv.DictReader(file):
            model = catalogue.models()[row["model"]]
            assert model.kv_elements_per_gpu(1) == int(row["kv_elems_per_token"]), model.id
            assert model.weight_bytes["fp8"] == int(row["weight_bytes_fp8"])
            assert model.max_context == int(row["max_context"])
    with shared.path("steptime", "coefficients.csv").open() as file:
        copied = {row["source_config"]: row for row in catalogue.rows("coefficients.csv")}
        for row in csv.DictReader(file):
            for name in ("L0", "L1", "D0", "D1", "D2", "D3", "D4", "P0", "P1", "P2", "P3", "P4", "P5"):
                assert copied[row["config"]][name] == row[name]
