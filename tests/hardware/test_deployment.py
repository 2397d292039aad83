"""Deployments: vLLM's defaults filled in, its refusals repeated, and what the run folder is told."""

import json

import pytest

from pipeline import config
from pipeline.errors import ConfigError
from pipeline.hardware import describe, resolve


def resolved(*overrides):
    return resolve(config.load(overrides=overrides))


def message(*overrides):
    with pytest.raises(ConfigError) as caught:
        resolved(*overrides)
    return str(caught.value)


def test_default_is_llama_8b_on_one_h100_with_server_defaults():
    deployment = resolved()
    assert (deployment.max_num_batched_tokens, deployment.max_num_seqs) == (8192, 1024)
    assert deployment.max_model_len == 131072
    assert deployment.num_gpu_blocks == 26022
    assert deployment.kv_bytes_per_token == 131072
    assert deployment.kv_tokens == 26022 * 16
    assert deployment.weights_gib == pytest.approx(16060522496 / 2**30)
    assert len(deployment.step_time.g_ns) == 8192 + 1024 + 1
    assert not deployment.step_time.estimate
    assert deployment.warnings == ()


@pytest.mark.parametrize(
    ("gpu", "limits"),
    [
        ("h100", (8192, 1024)),
        ("h200", (8192, 1024)),
        ("a100", (2048, 256)),
        ("a100-40gb", (2048, 256)),
        ("l40s", (2048, 256)),
        ("b200", (16384, 1024)),
        ("mi300x", (16384, 1024)),
    ],
)
def test_batch_limits_follow_the_accelerator(gpu, limits):
    deployment = resolved(f"hardware.gpu={gpu}", "engine.max_model_len=4096")
    assert (deployment.max_num_batched_tokens, deployment.max_num_seqs) == limits


def test_vllm_corrects_its_own_defaults():
    few_tokens = resolved("engine.max_num_batched_tokens=512")
    assert (few_tokens.max_num_batched_tokens, few_tokens.max_num_seqs) == (512, 512)
    short = resolved("engine.max_num_seqs=2", "engine.max_model_len=100")
    assert short.max_num_batched_tokens == 200
    whole = resolved("engine.enable_chunked_prefill=false", "engine.max_model_len=20000")
    assert whole.max_num_batched_tokens == 20000


def test_resolved_config_is_spelled_out_and_stable():
    deployment = resolved("hardware.model=meta-llama/Llama-3.1-8B-Instruct", "hardware.gpu=H100")
    sections = config.to_dict(deployment.config)
    assert None not in sections["engine"].values()
    assert None not in sections["hardware"].values()
    assert (sections["hardware"]["gpu"], sections["hardware"]["model"]) == ("h100-80gb-sxm", "llama-3.1-8b")
    assert config.digest(deployment.config) == config.digest(resolved().config)
    again = resolve(config.from_dict(sections))
    assert config.to_dict(again.config) == sections


def test_tensor_parallel_size_must_divide_the_heads():
    assert message("engine.tensor_parallel_size=3") == (
        "engine.tensor_parallel_size = 3: does not divide the 32 attention heads of llama-3.1-8b; "
        "use one of 1, 2, 4, 8, 16 or 32"
    )
    text = message("hardware.model=qwen2.5-7b", "engine.tensor_parallel_size=7")
    assert "neither divides the 4 KV heads of qwen2.5-7b nor is a multiple of them; use one of 1, 2, 4 or 28" in text


def test_kv_heads_are_copied_beyond_their_number():
    eight, sixteen = resolved("engine.tensor_parallel_size=8"), resolved("engine.tensor_parallel_size=16")
    assert sixteen.kv_bytes_per_token_per_gpu == eight.kv_bytes_per_token_per_gpu == 16384
    assert sixteen.kv_bytes_per_token == 2 * eight.kv_bytes_per_token
    assert any("KV heads is kept on 2 GPUs" in text for text in sixteen.warnings)


def test_model_that_does_not_fit_says_what_would():
    text = message("hardware.model=llama-3.1-70b")
    assert "does not fit on 1 x h100-80gb-sxm" in text
    assert "131.42 GiB weights (bf16)" in text
    assert "engine.tensor_parallel_size = 4, 8 or 16" in text
    assert "hardware.weight_dtype = w4a16" in text
    assert "b200-180gb-sxm" in text
    for advice in (["engine.tensor_parallel_size=4"], ["hardware.gpu=b200"]):
        resolved("hardware.model=llama-3.1-70b", "engine.max_model_len=4096", *advice)
    assert "does not fit" in message("hardware.model=llama-3.1-70b", "engine.tensor_parallel_size=2")


def test_context_limits():
    assert message("engine.max_model_len=200000") == (
        "engine.max_model_len = 200000: llama-3.1-8b goes up to 131072 tokens; use at most that"
    )
    small = ("hardware.gpu=rtx4090",)
    text = message(*small)
    assert "the model's own limit does not fit in the KV cache" in text
    longest = int(text.split("at most ")[1].split(",")[0])
    assert resolved(*small, f"engine.max_model_len={longest}").warnings == ()
    assert resolved(*small, "engine.max_model_len=-1").max_model_len == longest
    assert resolved("engine.max_model_len=-1").max_model_len == 131072


def test_null_block_is_warned_of():
    exact = resolved("engine.num_gpu_blocks=100", "engine.max_model_len=1600")
    assert any("beyond 1584 tokens stalls" in text for text in exact.warnings)
    assert resolved("engine.num_gpu_blocks=101", "engine.max_model_len=1600").warnings == ()
    assert "at most 1584" in message("engine.num_gpu_blocks=100", "engine.max_model_len=1601")


def test_blocks_can_be_stated():
    deployment = resolved("engine.num_gpu_blocks=2588", "engine.max_model_len=32768")
    assert deployment.num_gpu_blocks == 2588
    assert deployment.kv_gib == pytest.approx(2588 * 16 * 131072 / 2**30)
    assert any("more than the" in text for text in resolved("engine.num_gpu_blocks=30000").warnings)


def test_dtypes():
    text = message("hardware.gpu=a100", "hardware.weight_dtype=fp8")
    assert 'hardware.weight_dtype = "fp8": a100-80gb-sxm has no FP8 arithmetic; use bf16 or w4a16' in text
    assert resolved("hardware.model=nvidia/Llama-3.1-8B-Instruct-FP8").weight_dtype == "fp8"
    assert resolved("hardware.model=llama-2-7b").kv_cache_dtype == "fp16"
    deepseek = resolved("hardware.model=deepseek-v3", "hardware.gpu=h200", "engine.tensor_parallel_size=8")
    assert (deepseek.weight_dtype, deepseek.kv_cache_dtype) == ("fp8", "bf16")


def test_vllm_batch_rule_after_defaults():
    assert "must be at least engine.max_num_seqs = 2000" in message(
        "hardware.gpu=l40s", "engine.max_num_seqs=2000", "engine.max_num_batched_tokens=1000"
    )
    text = message("engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=8192")
    assert "must be at least engine.max_model_len = 131072" in text


def test_overheads():
    assert resolved().step_time.c0 == 0.8e6
    assert resolved("hardware.model=llama-3.1-70b", "engine.tensor_parallel_size=4").step_overhead_ms == 1.4
    assert resolved("hardware.model=qwen3-30b-a3b").step_overhead_ms == 0
    stated = resolved("hardware.step_overhead_ms=2.5", "hardware.frontend_ms=0")
    assert (stated.step_time.c0, stated.frontend_ms) == (2.5e6, 0)
    assert resolved().frontend_ms == 20


def test_unmodelled_arguments_are_handed_on():
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora"
    assert resolve(config.load(engine_args=line)).unmodelled == config.load(engine_args=line).unmodelled != ()


def test_description_for_the_run_folder():
    told = describe(resolved())
    assert {"gpu", "gpu_name", "model", "tensor_parallel_size", "weights_gib", "kv_gib", "overhead_gib"} <= set(told)
    assert {"kv_bytes_per_token", "num_gpu_blocks", "kv_tokens", "step_time"} <= set(told)
    assert set(told["step_time"]) >= {"config", "estimate", "source", "terms"}
    assert list(told["step_time"]["terms"]) == [
        *("c0", "c1", "L0", "L1", "D0", "D1", "D2", "D3", "D4", "P0", "P1", "P2", "P3", "P4", "P5", "mu")
    ]
    assert told["step_time"]["terms"]["c0"] == 0.8
    assert sum(told["overhead_parts_gib"].values()) == pytest.approx(told["overhead_gib"])
    json.dumps(told, allow_nan=False)
