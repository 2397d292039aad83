"""Public traces of the shared folder: figures that its README states."""

import polars as pl
import pytest

from pipeline.ingest import importer, prefix
from tests import shared


def test_azure_2023():
    trace = importer.load([shared.path("traces", "azure_2023", "AzureLLMInferenceTrace_conv.csv")]).trace
    assert len(trace) == 19_366
    assert trace["replayable"].all()
    assert round(trace["arrival_us"][-1] / 1e6, 1) == 3501.7
    assert (round(trace["input_tokens"].mean(), 1), round(trace["output_tokens"].mean(), 1)) == (1154.7, 211.1)
    assert (trace["input_tokens"].max(), (trace["output_tokens"] == 1000).sum()) == (14_050, 11)
    assert trace["arrival_us"].n_unique() == 19_366


def test_azure_agrees_with_the_same_trace_in_another_schema():
    trace = importer.load([shared.path("traces", "azure_2023", "AzureLLMInferenceTrace_conv.csv")]).trace
    vidur = pl.read_csv(shared.path("traces", "vidur", "splitwise_conv.csv"), infer_schema=False)
    assert vidur["num_prefill_tokens"].cast(pl.Int32).equals(trace["input_tokens"].rename("num_prefill_tokens"))
    seconds = vidur["arrived_at"].cast(pl.Float64)
    assert (seconds * 1e6 - trace["arrival_us"]).abs().max() <= 1.0  # both ends of a difference floored


@pytest.mark.parametrize(
    ("name", "rows", "span_s", "distinct", "blocks", "listed", "full"),
    [
        ("conversation", 12_031, 3537.0, 1_180, 288_500, 37.4, 37.3),
        ("synthetic", 3_993, 1022.0, 3_982, 121_877, 65.1, 65.0),
    ],
)
def test_mooncake(name, rows, span_s, distinct, blocks, listed, full):
    found = importer.load([shared.path("traces", "mooncake", f"{name}_trace.jsonl.gz")])
    trace = found.trace
    assert (len(trace), trace["arrival_us"].n_unique()) == (rows, distinct)
    assert round(trace["arrival_us"][-1] / 1e6, 1) == span_s
    assert trace["prefix_hashes"].list.len().sum() == blocks
    reuse = prefix.reuse(trace)
    assert round(100 * reuse["listed_tokens"] / reuse["prompt_tokens"], 1) == listed
    assert round(100 * reuse["full_tokens"] / reuse["prompt_tokens"], 1) == full


def test_mooncake_ticks_are_spread_over_three_seconds():
    path = shared.path("traces", "mooncake", "conversation_trace.jsonl.gz")
    trace = importer.load([path], spread_ticks=1).trace
    assert trace["request_id"].to_list() == [f"mooncake:{n}" for n in range(1, 12_032)]
    gaps = trace["arrival_us"].diff().drop_nulls()
    assert 0.95 < gaps.std() / gaps.mean() < 1.1  # about Poisson; 3.03 when read literally
