"""Every folder of tests/logs holds a log in a real layout and, in expected.json, what must come of it."""

import json
import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from pipeline.ingest import importer

LOGS = Path(__file__).parents[1] / "logs"
FOLDERS = sorted(path.parent for path in LOGS.glob("*/expected.json"))


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def sample(request):
    expected = json.loads((request.param / "expected.json").read_text())
    found = importer.load([request.param / name for name in expected["files"]], read_options=expected["read_options"])
    return expected, found


def number(at: str) -> int:
    """Place of a record in its file: the last number of its locator."""
    return int(re.findall(r"\d+", at)[-1])


def test_format_is_detected(sample):
    expected, found = sample
    assert found.format == expected["source"]


def test_counts(sample):
    expected, found = sample
    counts, trace = expected["counts"], found.trace
    assert found.records == expected["physical_records"]
    assert len(trace) == counts["valid"]
    assert trace["replayable"].sum() == counts["replayable"]
    assert Counter(trace["status"]) == counts["valid_by_status"]
    assert Counter(found.rejects["reason"]) == counts["reject_reasons"]


def test_rejects_name_their_place(sample):
    expected, found = sample
    rejected = [(number(locator), reason) for locator, reason in found.rejects.select("locator", "reason").iter_rows()]
    assert rejected == [(number(record["at"]), record["reason"]) for record in expected["rejected"]]


def test_totals(sample):
    expected, found = sample
    rows = found.trace.filter("replayable")
    sums = {name: rows[name].cast(pl.Int64).fill_null(0).sum() for name in expected["totals_replayable"]}
    assert sums == expected["totals_replayable"]
    assert found.trace["obs_ttft_us"].count() == expected["records_with_observed_ttft"]
    assert found.trace["obs_e2e_us"].count() == expected["records_with_observed_e2e"]


def stamp(value) -> str | None:
    return None if value is None else f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"


def test_clock(sample):
    expected, found = sample
    assert stamp(found.trace["arrival_time"][0]) == expected["t0_utc"]
    assert found.trace["arrival_us"].is_sorted()
    assert (found.trace["arrival_us"][0], found.trace["arrival_us"][-1]) == (0, expected["span_us"])


def test_picked_records(sample):
    expected, found = sample
    trace = found.trace
    for picked in expected["picked"]:
        at = found.rows["source_row"].index_of(number(picked["at"]))
        row = {**trace.row(at, named=True), "arrival_time": stamp(trace["arrival_time"][at])}
        assert {name: row[name] for name in picked["canonical"]} == picked["canonical"], picked["at"]


def test_prefix_blocks(sample):
    expected, found = sample
    if "prefix" not in expected:
        return
    seen: set[int] = set()
    found_blocks = {}
    for row, hashes in zip(found.rows["source_row"], found.rows["prefix_hashes"], strict=True):
        known = 0
        while known < len(hashes) and hashes[known] in seen:
            known += 1
        seen.update(hashes)
        found_blocks[row] = (len(hashes), known)
    wanted = {number(p["at"]): (p["blocks"], p["leading_blocks_seen_before"]) for p in expected["prefix"]}
    assert found_blocks == wanted


def test_there_are_samples():
    assert len(FOLDERS) >= 6
