"""KV capacity: the sum by hand, and against starts of real vLLM servers."""

import csv
import math

import pytest

from pipeline.hardware import catalogue, kv_capacity
from tests import shared


def plan(gpu="h100", model="llama-3.1-8b", **changed):
    settings = {
        "tensor_parallel_size": 1,
        "weight_dtype": "bf16",
        "kv_cache_dtype": "bf16",
        "gpu_memory_utilization": 0.9,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1024,
    }
    return kv_capacity.memory(catalogue.gpu(gpu), catalogue.model(model)[0], **settings | changed)


def test_by_hand():
    # Llama-3.1-8B on one H100 at server defaults: 38 bytes x 1024 x 128256 logits + 2 x 4096 x 2 bytes x 8192 tokens.
    activation = (38 * 1024 * 128256 + 2 * 4096 * 2 * 8192) / 2**30
    kv_gib = 0.9 * 79.18 - 16060522496 / 2**30 - activation - 0.13 - 32 * 0.018
    memory = plan()
    assert memory.activation_gib == pytest.approx(activation)
    assert memory.kv_gib == pytest.approx(kv_gib)
    assert memory.num_gpu_blocks == math.floor(kv_gib * 2**30 / (16 * 131072)) == 26022


def test_forward_pass_can_be_the_peak():
    # 16 sequences: 38 x 16 x 32000 bytes of logits are less than 3 x 11008 x 2 bytes x 8192 tokens of MLP.
    memory = plan(model="llama-2-7b", max_num_seqs=16)
    assert memory.activation_gib * 2**30 == pytest.approx(8192 * 2 * (2 * 4096 + 3 * 11008))


def test_quantised_weights_leave_kv_alone_and_quantised_kv_doubles_it():
    base, weights, kv = plan(), plan(weight_dtype="w4a16"), plan(kv_cache_dtype="fp8")
    assert weights.kv_bytes_per_token == base.kv_bytes_per_token
    assert weights.kv_gib - base.kv_gib == pytest.approx(base.weights_gib - weights.weights_gib)
    assert kv.weights_gib == base.weights_gib
    assert kv.num_gpu_blocks in (2 * base.num_gpu_blocks, 2 * base.num_gpu_blocks + 1)


def test_tensor_parallelism_stops_dividing_kv_at_the_kv_heads():
    per_gpu = {tp: plan(tensor_parallel_size=tp).kv_bytes_per_token for tp in (1, 2, 4, 8, 16, 32)}
    assert per_gpu == {1: 131072, 2: 65536, 4: 32768, 8: 16384, 16: 16384, 32: 16384}


def test_model_that_does_not_fit_has_no_blocks():
    memory = plan(model="llama-3.1-70b")
    assert memory.kv_gib < 0
    assert memory.num_gpu_blocks == 0


def test_explained_start_is_inconsistent_in_itself():
    with shared.path("groundtruth", "kv_blocks.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["id"] == "lld-gptoss120b")
    parts = ("available_kv_gib_per_gpu", "logged_weights_gib_per_gpu", "logged_peak_activation_gib")
    used = sum(float(row[part]) for part in parts) + float(row["logged_non_torch_gib"])
    assert used / float(row["total_gpu_gib"]) == pytest.approx(0.95, abs=0.002)
    assert row["gpu_memory_utilization"] == "0.9"
