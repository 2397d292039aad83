"""Fitting step times: known coefficients come back, the file is settings, NVIDIA's tables give the shipped figures."""

import json

import numpy as np
import pytest

from pipeline import config
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue, fit, resolve, step_time
from pipeline.hardware.fit import Kernels
from tests import shared
from tests.replay import servecast

TRUE = {
    "L0": 0.35, "L1": 0.0006, "D0": 0.2, "D1": 0.008, "D2": 0.35, "D3": 0.003, "D4": 4.3e-5,
    "P0": 0.45, "P1": 0.0014, "P2": 2e-6, "P3": 0.2, "P4": 0.0006, "P5": 7.6e-7,
}  # fmt: skip


def kernels(decode_factor=1.0):
    t = TRUE
    return Kernels(
        mixed_ms=lambda n: max(5.0, 0.02 * n),
        decode_ms=lambda n: decode_factor * max(5.0, 0.02 * n),
        head_ms=lambda n: t["L0"] + t["L1"] * n,
        decode_attention_ms=lambda m, n: max(t["D0"] + t["D1"] * m, t["D2"] + t["D3"] * m + t["D4"] * m * n),
        chunk_ms=lambda c, p: max(
            t["P0"] + t["P1"] * c + t["P2"] * (p + c), t["P3"] + t["P4"] * c + t["P5"] * c * (p + c / 2)
        ),
        source="made up",
    )


def deployment(*overrides):
    return resolve(config.load(overrides=overrides))


def test_known_coefficients_come_back():
    table = fit.from_kernels(kernels(), deployment())
    assert table.error_pct < 0.2
    assert pytest.approx(TRUE["D4"], rel=0.01) == table.D4
    assert pytest.approx(TRUE["P5"], rel=0.01) == table.P5
    assert pytest.approx(TRUE["L1"], rel=0.01) == table.L1
    assert table.decode_ms is None
    assert fit.from_kernels(kernels(), deployment()) == table  # the same bytes for the same tables


def test_decode_steps_have_a_table_of_their_own_where_they_differ():
    table = fit.from_kernels(kernels(decode_factor=0.8), deployment())
    assert table.decode_ms is not None
    steps = step_time.from_stated(table, step_overhead_ms=0, max_tokens=100)
    assert steps.g_decode_ns[100] == pytest.approx(0.8 * steps.g_ns[100])


def test_the_file_is_settings(tmp_path):
    fitted = deployment("hardware.gpu=l4", "hardware.model=qwen3-4b", "engine.max_model_len=8192")
    assert fitted.step_time.basis == "roofline"
    path = tmp_path / "fitted.toml"
    path.write_text(fit.toml(fit.from_kernels(kernels(), fitted), fitted))
    used = resolve(config.load(path, ["engine.max_model_len=8192"]))
    assert (used.step_time.basis, used.step_time.estimate) == ("fitted", False)
    assert pytest.approx(TRUE["D4"] * 1e6, rel=0.01) == used.step_time.D4
    sections = config.to_dict(used.config)
    assert config.to_dict(resolve(config.from_dict(sections)).config) == sections
    assert config.digest(used.config) != config.digest(fitted.config)
    other = resolve(config.load(path, ["engine.max_model_len=8192", "hardware.gpu=l40s"]))
    assert other.step_time.basis == "roofline"
    assert other.config.step_time is None


def test_a_table_that_cannot_be_right(tmp_path):
    path = tmp_path / "fitted.toml"
    text = fit.toml(fit.from_kernels(kernels(), deployment()), deployment())
    path.write_text(text.replace("tokens = [1, 2,", "tokens = [2, 1,"))
    with pytest.raises(ConfigError, match=r"fitted.toml: step_time.tokens must rise"):
        config.load(path)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "aiconfigurator_core", None)
    result = servecast.run("hardware", "fit", "--model", "llama-3.1-8b", "--gpu", "h100")
    assert result.exit_code == 2
    assert "pip install 'servecast[aiconfigurator]'" in result.output


@pytest.mark.parametrize(
    ("config_id", "settings"),
    [
        ("h100-80gb-sxm_llama-3.1-8b_tp1_bf16", ()),
        ("h100-80gb-sxm_mixtral-8x7b_tp2_bf16", ("hardware.model=mixtral-8x7b", "engine.tensor_parallel_size=2")),
        (
            "h200-141gb-sxm_deepseek-v3_tp8_fp8",
            ("hardware.model=deepseek-v3", "hardware.gpu=h200", "engine.tensor_parallel_size=8",
             "hardware.kv_cache_dtype=fp8"),
        ),
    ],
)  # fmt: skip
def test_nvidias_tables_give_the_shipped_coefficients(config_id, settings):
    """Dense, mixture of experts, latent attention: D4 is physics, so two fits of one table agree on it."""
    pytest.importorskip("aiconfigurator_core", reason="the extra aiconfigurator is not installed")
    table, _ = fit.fit(config.load(overrides=settings))
    (row,) = (row for row in catalogue.rows("coefficients.csv") if row["config"] == config_id)
    assert float(row["D4"]) == pytest.approx(table.D4, rel=0.05)
    assert table.error_pct <= 5
    if "deepseek" not in config_id:  # its shipped experts are parallel, these tensor parallel
        steps = step_time.from_stated(table, step_overhead_ms=0, max_tokens=4096)
        shipped = step_time.from_table(config_id, step_overhead_ms=0, max_tokens=4096)
        assert steps.g_ns[512] == pytest.approx(shipped.g_ns[512], rel=1e-4)
        assert on_sample_steps(table, row) <= 1.2 * float(row["mape_all"]) + 0.1


def on_sample_steps(table, row):
    """Return the mean error on the recorded steps of a configuration, percent."""
    import polars as pl

    steps = pl.read_parquet(shared.path("steptime", "sample_steps.parquet")).filter(
        pl.col("config") == row["source_config"]
    )
    terms = step_time.from_stated(table, step_overhead_ms=0, max_tokens=20000)
    errors = [
        terms.step_ns(
            step["n_decode"],
            step["sum_decode_ctx"],
            json.loads(step["prefill_chunks_json"]),
            step["sampled_seqs"] - step["n_decode"],
        )
        / 1e6
        / step["step_ms"]
        - 1
        for step in steps.iter_rows(named=True)
    ]
    return 100 * float(np.mean(np.abs(errors)))
