"""What the catalogue lacks: dimensions to counts, config.json of a model, an accelerator of a few numbers."""

import json

import pytest

from pipeline import config
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue, own, resolve

MINE = ("accelerator.name=mine", "accelerator.memory_gib=80", "accelerator.bandwidth_gb_per_s=3000",
        "accelerator.bf16_tflops=900")  # fmt: skip
# Fields of the published config.json of Llama-3.1-8B and Qwen3-30B-A3B.
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
QWEN_MOE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


def written(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize("model_id", sorted(catalogue.models()))
def test_counts_equal_those_of_the_catalogue(model_id):
    """Rows of models.csv were counted by others; biases and small norms are left out of some of them."""
    (row,) = (row for row in catalogue.rows("models.csv") if row["model"] == model_id)
    model = own.from_dimensions(own.dimensions(model_id))
    assert model.attention == row["attention"]
    assert model.matmul_params_per_token == pytest.approx(int(row["params_matmul_per_token"]), rel=1e-4)
    assert model.weight_bytes["bf16"] == pytest.approx(int(row["weight_bytes_bf16"]), rel=1e-4)
    assert model.weight_bytes["fp8"] == pytest.approx(int(row["weight_bytes_fp8"]), rel=1e-4)
    assert model.attention_flops == int(row["attn_flops_per_token_per_ctx"])
    assert model.kv_elements_per_gpu(1) == catalogue.models()[model_id].kv_elements_per_gpu(1)


def test_config_json_of_a_known_shape_has_its_step_times(tmp_path):
    path = written(tmp_path, **LLAMA)
    deployment = resolve(config.load(overrides=[f"hardware.model={path}"]))
    assert deployment.model.id == tmp_path.name
    assert deployment.step_time.config == "h100-80gb-sxm_llama-3.1-8b_tp1_bf16"
    assert deployment.num_gpu_blocks == 26022
    sections = config.to_dict(deployment.config)
    path.unlink()  # the resolved settings hold the dimensions, so a run can be told without the file
    assert config.to_dict(resolve(config.from_dict(sections)).config) == sections


def test_config_json_of_experts_and_quantised_weights(tmp_path):
    path = written(tmp_path, **QWEN_MOE, quantization_config={"quant_method": "fp8"})
    model, dtype, _ = own.model(config.load(overrides=[f"hardware.model={path}"]))
    assert (dtype, model.tables_of) == ("fp8", "qwen3-30b-a3b")
    assert model.weight_bytes["fp8"] == 31154638848  # models.csv
    four_bit = written(tmp_path, **LLAMA, quantization_config={"quant_method": "awq", "bits": 4})
    assert own.read_config_json(four_bit).dtype == "w4a16"


def test_a_new_model_is_an_estimate(tmp_path):
    path = written(tmp_path, **LLAMA | {"num_hidden_layers": 40})
    deployment = resolve(config.load(overrides=[f"hardware.model={tmp_path}"]))
    assert deployment.step_time.basis == "roofline"
    assert deployment.kv_bytes_per_token == 2 * 40 * 8 * 128 * 2
    assert path.is_file()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"hidden_size": None}, "config.json: has no hidden_size, which is needed for `hidden`"),
        ({"quantization_config": {"quant_method": "odd"}}, 'quant_method = "odd": known are fp8'),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layers of several kinds are not modelled"),
        ({"interleave_moe_layer_step": 2}, "only models with experts in every layer"),
        ({"num_key_value_heads": 5}, "must divide model.heads = 32"),
    ],
)
def test_config_json_that_cannot_be_used(tmp_path, fields, text):
    with pytest.raises(ConfigError) as caught:
        own.read_config_json(written(tmp_path, **LLAMA | fields))
    assert text in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def test_an_accelerator_of_a_few_numbers():
    deployment = resolve(config.load(overrides=MINE))
    # 0.9 x 80 GiB less weights and the activation, non-torch and graphs of the H100 by hand (test_kv_capacity.py)
    h100 = resolve(config.load())
    more_gib = 0.9 * (80 - 79.18)
    assert deployment.memory.kv_gib == pytest.approx(h100.memory.kv_gib + more_gib)
    assert (deployment.gpu.id, deployment.step_time.basis) == ("mine", "roofline")
    other = resolve(config.load(overrides=[*MINE, "hardware.gpu=h100"]))
    assert other.gpu.id == "h100-80gb-sxm"
    assert config.digest(other.config) == config.digest(h100.config)  # what is not used is not part of the run
    assert config.digest(deployment.config) != config.digest(h100.config)


def test_own_names_and_missing_numbers():
    with pytest.raises(ConfigError, match=r'accelerator.name = "h100": is in the catalogue already'):
        resolve(config.load(overrides=[*MINE, "accelerator.name=h100"]))
    with pytest.raises(ConfigError, match=r"accelerator.bandwidth_gb_per_s: must be stated"):
        config.load(overrides=MINE[:2])
    with pytest.raises(ConfigError, match=r"accelerator.memory_gb: unknown setting; did you mean"):
        config.load(overrides=["accelerator.memory_gb=80"])
