"""The recorded layouts of the shared folder, each with what must come of it in its expected.json."""

import json
from collections import Counter

import polars as pl
import pytest

from pipeline.ingest import importer
from tests import shared

LAYOUTS = [
    "azure_apim",
    "azure_diag",
    "azure_trace_2023",
    "azure_trace_2024",
    "bedrock",
    "burstgpt_v1",
    "burstgpt_v3",
    "langfuse",
    "litellm_s3",
    "litellm_spendlogs",
    "mooncake",
    "otel_genai",
    "qwen_bailian",
    "sglang_metrics",
    "vertex",
    "vllm_bench",
    "vllm_log",
]


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request):
    folder = shared.path("logs", request.param)
    expected = json.loads((folder / "expected.json").read_text())
    stated = {key: str(value) for key, value in expected["read_options"].items()}
    files = [folder / name for name in expected["files"]]
    return expected, importer.load(files, read_options=stated, keep_ids=True)


def test_counts(layout):
    expected, found = layout
    counts = expected["counts"]
    assert found.format == expected["source"]
    assert found.records == expected["physical_records"]
    assert len(found.trace) == counts["valid"]
    assert found.trace["replayable"].sum() == counts["replayable"]
    assert Counter(found.trace["status"]) == counts["valid_by_status"]
    assert Counter(found.rejects["reason"]) == counts["reject_reasons"]


def test_rejects_name_their_place(layout):
    expected, found = layout
    rejected = sorted(found.rejects.select("locator", "reason").iter_rows())
    assert rejected == sorted((record["at"], record["reason"]) for record in expected["rejected"])


def test_totals(layout):
    expected, found = layout
    rows = found.trace.filter("replayable")
    sums = {name: rows[name].cast(pl.Int64).fill_null(0).sum() for name in expected["totals_replayable"]}
    assert sums == expected["totals_replayable"]
    assert found.trace["obs_ttft_us"].count() == expected["records_with_observed_ttft"]
    assert found.trace["obs_e2e_us"].count() == expected["records_with_observed_e2e"]
    assert found.trace["arrival_us"][-1] == expected["span_us"]


def stamp(value) -> str | None:
    return None if value is None else f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"


def test_picked_records(layout):
    expected, found = layout
    rows = {(row["request_id"], row["attempt"]): row for row in found.trace.iter_rows(named=True)}
    for picked in expected["picked"]:
        wanted = picked["canonical"]
        row = rows[wanted["request_id"], wanted["attempt"]]
        row = {**row, "arrival_time": stamp(row["arrival_time"])}
        for name in ("obs_ttft_us", "obs_e2e_us", "obs_queue_us"):
            if row[name] is not None and wanted[name] is not None and abs(row[name] - wanted[name]) <= 2:
                row[name] = wanted[name]
        assert {name: row[name] for name in wanted} == wanted, picked["at"]
