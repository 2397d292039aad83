"""Step time: the formula by hand, its data, and steps composed from measured kernels."""

import numpy as np
import pytest

from pipeline import config, hardware
from pipeline.hardware import catalogue, step_time

H100_8B = "h100-80gb-sxm_llama-3.1-8b_tp1_bf16"


def build(gpu="h100", model="llama-3.1-8b", **changed):
    settings = {
        "tensor_parallel_size": 1,
        "weight_dtype": "bf16",
        "kv_cache_dtype": "bf16",
        "step_overhead_ms": 0.8,
        "max_tokens": 20000,
    }
    return step_time.build(catalogue.gpu(gpu), catalogue.model(model)[0], **settings | changed)


def knots(config, phase="mixed"):
    rows = [row for row in catalogue.rows("g_knots.csv") if (row["config"], row["phase"]) == (config, phase)]
    return {int(row["tokens"]): float(row["ms"]) for row in rows}


def test_decode_step_by_hand():
    # 64 decodes at 1,000 tokens of context each; coefficients as printed in the source, milliseconds.
    flat, linear = 0.1939546 + 0.00769731 * 64, 0.3524839 + 0.003284676 * 64 + 4.265814e-05 * 64000
    expected = 0.8 + knots(H100_8B)[64] + 0.3500752 + 0.0005905462 * 64 + max(flat, linear)
    assert build().step_ns(64, 64000) == pytest.approx(expected * 1e6, abs=1)


def test_mixed_step_by_hand():
    # RTX 4090: mu = 1.777232 counts where decodes meet chunks. Two chunks, one of which samples.
    config = "rtx4090-24gb_llama-3.1-8b_tp1_bf16"
    g = np.interp(4 + 300 + 208, list(knots(config)), list(knots(config).values()))
    decode = max(0.3130933 + 0.01126087 * 4, 0.3945144 + 0.003859344 * 4 + 0.0001445442 * 8000)

    def chunk(c, p):
        memory = 0.2555689 + 2.072415e-17 * c + 0.0009893975 * (p + c)
        return max(memory, 0.02509603 + 0.001548961 * c + 3.710138e-06 * c * (p + c / 2))

    expected = 0.8 + g + 1.11454 + 0.002776775 * 5 + 2.259 * decode + chunk(300, 1000) + chunk(208, 0)
    steps = build(gpu="rtx4090")
    assert steps.step_ns(4, 8000, [(300, 1000), (208, 0)], 1) == pytest.approx(expected * 1e6, abs=1)
    assert steps.step_ns(4, 8000) == pytest.approx((0.8 + knots(config)[4] + 1.11454 + 0.002776775 * 4 + decode) * 1e6)


def test_step_without_tokens_takes_no_time():
    assert build().step_ns(0, 0) == 0


def test_g_goes_through_its_knots_and_beyond_them():
    steps, points = build(), knots(H100_8B)
    assert steps.g_ns[0] == 0
    assert len(steps.g_ns) == 20001
    assert steps.g_ns.dtype == np.float64
    for tokens, ms in points.items():
        assert steps.g_ns[tokens] == pytest.approx(ms * 1e6)
    (t1, g1), (t2, g2) = sorted(points.items())[-2:]
    assert steps.g_ns[20000] == pytest.approx((g2 + (g2 - g1) / (t2 - t1) * (20000 - t2)) * 1e6)
    assert steps.g_decode_ns is steps.g_ns


def test_decode_steps_of_deepseek_have_a_table_of_their_own():
    config = "h200-141gb-sxm_deepseek-v3_tp8_fp8"
    steps = step_time.from_table(config, step_overhead_ms=0, max_tokens=100)
    assert steps.g_ns[32] == pytest.approx(knots(config)[32] * 1e6)
    assert steps.g_decode_ns[32] == pytest.approx(knots(config, "decode")[32] * 1e6)
    assert knots(config)[32] != knots(config, "decode")[32]


def test_one_token_on_b200_is_not_slower_than_two():
    points = knots("b200-180gb-sxm_llama-3.1-70b_tp2_fp8")
    assert points[1] == points[2] == 10.2655


@pytest.mark.parametrize(
    ("gpu", "model", "tp"),
    [
        ("h100", "llama-3.1-8b", 1),
        ("a100", "llama-3.1-8b", 1),
        ("l40s", "llama-3.1-8b", 1),
        ("h100", "llama-3.1-70b", 4),
        ("a100", "llama-3.1-70b", 4),
        ("h200", "llama-3.1-70b", 4),
        ("h100", "qwen3-32b", 2),
    ],
)
def test_configurations_with_a_measured_table(gpu, model, tp):
    steps = build(gpu=gpu, model=model, tensor_parallel_size=tp)
    assert (steps.basis, steps.estimate, steps.notes) == ("measured", False, ())


def test_tables_of_other_engines_are_not_taken():
    assert build().config == H100_8B
    assert build(weight_dtype="fp8", kv_cache_dtype="fp8").config == "h100-80gb-sxm_llama-3.1-8b_tp1_fp8"


def test_quantised_weights_leave_the_reading_of_kv_alone():
    base, weights, kv = build(), build(weight_dtype="fp8"), build(kv_cache_dtype="fp8")
    assert weights.basis == "combined"
    assert weights.D4 == base.D4
    assert weights.g_ns[1] < 0.7 * base.g_ns[1]
    assert np.array_equal(kv.g_ns, base.g_ns)
    assert pytest.approx(base.D4 / 2, rel=0.1) == kv.D4
    assert H100_8B in weights.notes[0]


def test_scaled_reading_of_kv_is_an_estimate():
    measured = step_time.from_table("h100-80gb-sxm_qwen3-32b_tp1_fp8", step_overhead_ms=0.8, max_tokens=20000)
    steps = build(model="qwen3-32b", weight_dtype="fp8")
    assert (steps.basis, steps.estimate) == ("scaled", True)
    assert steps.D4 == 2 * measured.D4
    assert "estimate" in steps.notes[0]


def test_roofline_by_hand():
    # Qwen3-8B on one H100 with the parameters of H100 rows; LM head 151936 x 4096.
    steps = build(model="qwen3-8b")
    head, layers_params = 151936 * 4096, 7568097280 - 151936 * 4096
    compute = 2 * layers_params * 100 / (0.67472 * 989e12) * 1e3
    memory = (16381452288 - 4 * head) / (0.91362 * 3350e9) * 1e3
    norms = 14 * 36 * 4096 * 2 * 100 / (0.8 * 3350e9) * 1e3
    g = 0.052287 * 36 + (compute**4 + memory**4) ** 0.25 + norms
    assert steps.g_ns[100] == pytest.approx(g * 1e6)
    assert pytest.approx(2 * head / (0.85 * 3350e9) * 1e9) == steps.L0
    assert pytest.approx(147456 / (0.86113 * 3350e9) * 1e9) == steps.D4
    assert (steps.estimate, steps.config, steps.error_pct) == (True, None, 12.0)
    assert "about +-12 %" in steps.notes[0]


def test_roofline_bands():
    assert build(gpu="l4", model="llama-3.1-8b").error_pct == 17
    assert build(gpu="mi300x", model="mixtral-8x7b").error_pct == 50


def test_tied_embeddings_are_read_once():
    steps = build(model="qwen3-0.6b")
    layers = 2 * (596049920 - 151936 * 1024)
    assert steps.g_ns[1] / 1e6 == pytest.approx(0.052287 * 28 + layers / (0.91362 * 3350e9) * 1e3, rel=0.01)


def test_roofline_is_near_the_tables_it_was_fitted_to():
    """A unit or a term that is wrong would show as a factor; the worst single step is 37 % off (FP8, 576 tokens)."""
    for row in catalogue.rows("coefficients.csv"):
        if row["backend"] != "vllm" or row["gpu"].startswith("rtx") or row["model"] == "deepseek-v3":
            continue
        table = step_time.from_table(row["config"], step_overhead_ms=0, max_tokens=4096)
        rough = step_time.roofline(
            catalogue.gpus()[row["gpu"]],
            catalogue.models()[row["model"]],
            tensor_parallel_size=int(row["tensor_parallel_size"]),
            weight_dtype=row["weight_dtype"],
            kv_cache_dtype=row["kv_dtype"],
            step_overhead_ms=0,
            max_tokens=4096,
        )
        for step in ((32, 32000), (1, 500), (0, 0, [(2048, 0)], 1), (64, 100000, [(512, 1024)], 1)):
            assert rough.step_ns(*step) == pytest.approx(table.step_ns(*step), rel=0.4), (row["config"], step)


def test_all_reduce_is_added_where_the_table_lacks_it():
    bare = step_time.from_table("rtxpro6000-96gb_qwen3-32b_tp2_bf16-nocomm", step_overhead_ms=0.8, max_tokens=2048)
    steps = build(gpu="rtxpro6000", model="qwen3-32b", tensor_parallel_size=2, max_tokens=2048)
    # Row `all` of the roofline: 2.9158 us to start, 1.7323 of the 64 GB/s link, 64 layers twice a step.
    extra_us = 2 * 64 * (2.9158 + 4 * 2048 * 5120 * 0.5 / (1.7323 * 64e9) * 1e6)
    assert steps.g_ns[2048] - bare.g_ns[2048] == pytest.approx(extra_us * 1e3)
    assert steps.g_ns[0] == 0
    assert "without all-reduce" in steps.notes[0]


def test_arrays_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        build().g_ns[1] = 0


def test_a_factor_on_the_kernels_leaves_the_engine_alone():
    plain, scaled = (
        hardware.resolve(config.load(overrides=[f"hardware.step_time_scale={factor}"])).step_time for factor in (1, 1.5)
    )
    chunks = [(300, 100)]
    assert scaled.c0 == plain.c0
    expected = plain.c0 + 1.5 * (plain.step_ns(7, 5000, chunks, 1) - plain.c0)
    assert scaled.step_ns(7, 5000, chunks, 1) == pytest.approx(expected, abs=2)
