"""The nearest measurement: chosen by model and accelerator, the worst of them quoted, estimates apart."""

import pytest

from pipeline import config
from pipeline.hardware import catalogue, describe, evidence, resolve

ROWS = [
    ("rtx4090-24gb", "llama-3.1-8b", "TPOT p95", "1.5", "judged"),
    ("rtxpro6000-96gb", "llama-3.1-8b", "TPOT p95", "-2.9", "judged"),
    ("h100-80gb-sxm", "llama-2-70b", "TPOT mean", "2.7", "judged"),
    ("h100-80gb-sxm", "mixtral-8x7b", "TPOT mean", "19.6", "fitted"),
    ("h100-80gb-sxm", "codellama-34b", "TPOT mean", "8.1", "estimate"),
]


@pytest.fixture
def known(monkeypatch):
    names = ("gpu", "model", "metric", "error_pct", "standing")
    rows = [dict(zip(names, row, strict=True)) for row in ROWS]
    monkeypatch.setattr(evidence.catalogue, "rows", lambda file: rows if file == "validation.csv" else [])


@pytest.mark.parametrize(
    ("gpu", "model", "estimate", "same", "error_pct", "words"),
    [
        ("rtx4090", "llama-3.1-8b", False, "model and accelerator", 1.5, "this model's p95 TPOT was within 1.5 %"),
        ("h100", "llama-3.1-8b", False, "model", 2.9, "On comparable hardware (rtx4090-24gb, rtxpro6000-96gb)"),
        ("h100", "qwen3-32b", False, "accelerator", 2.7, "other models' (llama-2-70b) mean TPOT was within 2.7 %"),
        ("h100", "qwen3-8b", True, "accelerator", 8.1, "codellama-34b"),
        ("l4", "qwen3-8b", True, None, None, "Nothing comparable was measured"),
    ],
)
def test_nearest(gpu, model, estimate, same, error_pct, words, request):
    found_gpu, found_model = catalogue.gpu(gpu), catalogue.model(model)[0]
    request.getfixturevalue("known")
    found = evidence.nearest(found_gpu, found_model, estimate)
    assert (found["same"], found["error_pct"]) == (same, error_pct)
    assert words in found["text"]


def test_a_run_is_told_of_it():
    told = describe(resolve(config.load()))["evidence"]
    assert told["same"] == "model"
    assert told["error_pct"] < 5
    assert "On comparable hardware" in told["text"]
