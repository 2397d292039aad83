"""A trace of the user's own: what is repaired, what is rejected, what makes the file unusable."""

from datetime import UTC, datetime

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.errors import TraceError
from pipeline.ingest import importer, ingest
from pipeline.schema import TRACE, arrow_schema
from tests.ingest import build


def load(tmp_path, **columns):
    return importer.load([build.canonical(tmp_path / "t.parquet", **columns)])


def test_what_is_left_out_is_derived(tmp_path):
    row = load(tmp_path).trace.row(0, named=True)
    stated = {name: value for name, value in row.items() if value is not None}
    assert stated == {
        "request_id": "trace:1",
        "attempt": 0,
        "arrival_us": 0,
        "input_tokens": 100,
        "output_tokens": 10,
        "n": 1,
        "status": "ok",
        "served_from": "engine",
        "replayable": True,
        "flags": ["relative_clock"],
    }


HASHES = pl.Series([[1, 2], [1], None], dtype=pl.List(pl.UInt64))
FITTING = {"prefix_hashes": HASHES, "prefix_block_tokens": [64, 64, None], "prefix_tokens": [100, 64, None]}


def over(name, value, row=1):
    values = list(FITTING[name])
    values[row] = value
    return {**FITTING, name: pl.Series(values, dtype=HASHES.dtype) if name == "prefix_hashes" else values}


@pytest.mark.parametrize(
    ("columns", "reason", "detail"),
    [
        ({"input_tokens": [1, -2, 3]}, "negative_tokens", "input_tokens is below 0"),
        ({"input_tokens": [1, 10**8, 3]}, "bad_row", "input_tokens is above 10,000,000"),
        ({"input_tokens": [1, 2**40, 3]}, "bad_row", "input_tokens is out of the range of int32"),
        ({"input_tokens": [1.0, float("nan"), 3.0]}, "bad_row", "input_tokens is no whole number"),
        ({"output_tokens": [1.0, float("inf"), 3.0]}, "bad_row", "output_tokens is no whole number"),
        ({"output_tokens": [1.0, 2.5, 3.0]}, "bad_row", "output_tokens is no whole number"),
        ({"arrival_us": [0, None, 5]}, "missing_arrival", "no arrival"),
        ({"arrival_us": [0.0, float("nan"), 5.0]}, "bad_timestamp", "arrival is no time"),
        ({"status": ["ok", "fine", "ok"]}, "bad_row", "status is none of ok, error, throttled"),
        ({"served_from": ["engine", "disk", None]}, "bad_row", "served_from is none of engine, response_cache"),
        ({"capacity_class": [None, "spot", None]}, "bad_row", "capacity_class is none of on_demand"),
        ({"prefix_kind": [None, "guess", None]}, "bad_row", "prefix_kind is none of token_blocks"),
        ({"n": [1, 0, 1]}, "bad_row", "n is below 1"),
        ({"n": [1, 40_000, 1]}, "bad_row", "n is out of the range of int16"),
        ({"turn": [1, 0, 1]}, "bad_row", "turn is below 1"),
        ({"think_us": [1, -1, 1]}, "bad_row", "think_us is below 0"),
        ({"cached_tokens": [1, 201, 1]}, "bad_row", "cached_tokens is above input_tokens"),
        (over("prefix_block_tokens", None), "bad_row", "prefix_hashes without prefix_block_tokens"),
        (over("prefix_block_tokens", 0), "bad_row", "prefix_block_tokens is below 1"),
        (over("prefix_tokens", None), "bad_row", "prefix_hashes without prefix_tokens"),
        (over("prefix_tokens", 65), "bad_row", "not ceil(prefix_tokens / prefix_block_tokens) prefix_hashes"),
        (over("prefix_hashes", [1, 2]), "bad_row", "not ceil(prefix_tokens / prefix_block_tokens) prefix_hashes"),
        (over("prefix_hashes", [None]), "bad_row", "prefix_hashes holds a null"),
        (
            {
                **over("prefix_tokens", 221),
                "prefix_hashes": pl.Series([[1, 2], [1, 2, 3, 4], None], dtype=HASHES.dtype),
            },
            "bad_row",
            "prefix_tokens above input + output",
        ),
        (
            {"request_id": ["a", "a", "b"], "arrival_us": [0, 0, 1], "input_tokens": [1] * 3, "output_tokens": [1] * 3},
            "duplicate",
            "request id and content repeat an earlier record",
        ),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, columns, reason, detail):
    found = load(tmp_path, **columns)
    [(row, locator, why, said)] = found.rejects.select("source_row", "locator", "reason", "detail").rows()
    assert (row, locator, why) == (2, "row 2", reason)
    assert said.startswith(detail)
    assert len(found.trace) == 2


def test_fitting_prefixes_pass(tmp_path):
    found = load(tmp_path, **FITTING)
    assert found.trace["prefix_kind"].to_list() == ["given_hashes", "given_hashes", None]
    assert found.rejects.is_empty()


def test_signed_hashes_keep_their_bits(tmp_path):
    hashes = pl.Series([[1, -1], [1], None], dtype=pl.List(pl.Int64))
    assert load(tmp_path, **{**FITTING, "prefix_hashes": hashes}).trace["prefix_hashes"][0].to_list() == [1, 2**64 - 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"input_token": [1, 2, 3], "drop": "input_tokens"},
            r"column input_token is unknown; did you mean input_tokens\?",
        ),
        ({"drop": "output_tokens"}, "columns missing: output_tokens"),
        ({"drop": "arrival_us"}, "columns missing: arrival_time or arrival_us"),
        ({"input_tokens": ["1", "2", "3"]}, "column input_tokens is String; int32 is needed"),
        (
            {"arrival_time": ["2024", "2025", "2026"]},
            r"column arrival_time is String; timestamp\[us, tz=UTC\] is needed",
        ),
        ({"stream": [1, 0, 1]}, "column stream is Int64; bool is needed"),
        ({"model": [1, 2, 3]}, "column model is Int64; dictionary"),
        ({"prefix_hashes": [["a"], ["b"], []]}, r"column prefix_hashes is List\(String\); list"),
    ],
)
def test_columns_that_make_a_file_unusable(tmp_path, columns, message):
    path = build.canonical(tmp_path / "t.parquet", **{k: v for k, v in columns.items() if k != "drop"})
    if "drop" in columns:
        pl.read_parquet(path).drop(columns["drop"]).write_parquet(path)
    with pytest.raises(TraceError, match=message):
        importer.load([path])


def test_columns_without_rows(tmp_path):
    path = build.canonical(tmp_path / "t.parquet")
    pl.read_parquet(path)[:0].write_parquet(path)
    with pytest.raises(TraceError, match="has columns and no rows"):
        importer.load([path])


def test_another_version_is_refused(tmp_path):
    path = build.canonical(tmp_path / "t.parquet")
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"servecast": "run/1"}), path)
    with pytest.raises(TraceError, match="is a run/1 file; a trace is trace/1"):
        importer.load([path])


def test_further_columns_are_noted(tmp_path):
    assert load(tmp_path, colour=["r", "g", "b"]).notes == [
        "t.parquet: 1 columns that a trace does not have are not read"
    ]


def test_disorder_is_sorted_and_said_and_ties_keep_their_order(tmp_path):
    found = load(tmp_path, arrival_us=[20, 5, 5])
    assert found.trace.select("request_id", "arrival_us").rows() == [("trace:2", 0), ("trace:3", 0), ("trace:1", 15)]
    assert found.notes == ["1 records came earlier than the one before them; all were sorted by arrival."]


TIMES = [datetime(2026, 1, 31, 9, 0, s, 250, tzinfo=UTC) for s in (0, 1, 2)]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_arrival_time_is_the_clock(tmp_path, unit):
    times = pl.Series(TIMES).dt.cast_time_unit(unit)
    path = build.canonical(tmp_path / "t.parquet", arrival_time=times)
    pl.read_parquet(path).drop("arrival_us").write_parquet(path)
    trace = importer.load([path]).trace
    assert trace["arrival_us"].to_list() == [0, 1_000_000, 2_000_000]
    assert trace["arrival_time"][0] == TIMES[0].replace(microsecond=0 if unit == "ms" else 250)
    assert trace["flags"].to_list() == [[]] * 3


def test_nanoseconds_are_floored(tmp_path):
    times = pl.Series([-1, 1_999, 2_000]).cast(pl.Datetime("ns", "UTC"))
    path = build.canonical(tmp_path / "t.parquet", arrival_time=times)
    pl.read_parquet(path).drop("arrival_us").write_parquet(path)
    assert importer.load([path]).trace["arrival_us"].to_list() == [0, 2, 3]


def test_naive_times_are_of_the_stated_zone(tmp_path):
    path = build.canonical(
        tmp_path / "t.parquet",
        arrival_time=pl.Series(TIMES).dt.replace_time_zone(None),
        arrival_us=[0, 10**6, 2 * 10**6],
    )
    found = importer.load([path], read_options={"naive_timestamps_are": "Europe/Berlin"})
    assert found.trace["arrival_time"][0].hour == 8
    assert found.time_zone == "Europe/Berlin assumed: stamps state no offset"


def test_two_clocks_that_disagree(tmp_path):
    with pytest.raises(TraceError, match="arrival_us and arrival_time disagree in 1 rows, first in row 3"):
        load(tmp_path, arrival_time=TIMES, arrival_us=[7, 1_000_007, 5])


def test_what_the_log_says_is_not_replayable_stays_so(tmp_path):
    found = load(tmp_path, replayable=[True, False, None], status=["error", "ok", "cancelled"])
    assert found.trace["replayable"].to_list() == [False, False, True]


def test_negative_durations_are_dropped_and_flagged(tmp_path):
    trace = load(tmp_path, obs_e2e_us=[5, -5, None]).trace
    assert trace["obs_e2e_us"].to_list() == [5, None, None]
    assert trace["flags"][1].to_list() == ["negative_duration", "relative_clock"]


def test_links_to_rows_that_are_not_there(tmp_path):
    trace = load(
        tmp_path, request_id=["a", "b", "c"], parent_request_id=[None, "x", "a"], after_request_id=[None, "y", "a"]
    ).trace
    assert trace["after_request_id"].to_list() == [None, None, "a"]
    assert trace["flags"][1].to_list() == ["after_outside_window", "parent_outside_window", "relative_clock"]


def test_a_written_trace_has_the_schema_and_the_same_bytes_again(tmp_path):
    path = build.canonical(tmp_path / "t.parquet", **FITTING, tenant=["x", "y", "x"])
    first, second, again = (tmp_path / f"{name}.parquet" for name in ("first", "second", "again"))
    ingest([path], out=first)
    ingest([path], out=second)
    ingest([first], out=again)
    schema = pq.read_schema(first)
    assert schema.equals(arrow_schema(TRACE))
    assert schema.metadata == arrow_schema(TRACE).metadata
    assert schema.field("n").metadata[b"doc"] == b"samples asked for"
    assert first.read_bytes() == second.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["t.parquet", *(f"{n}{end}" for n in ("first", "second", "again") for end in (".parquet", ".rejects.parquet"))]
    )
