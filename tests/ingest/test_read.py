from datetime import UTC, datetime

import polars as pl
import pytest

from pipeline.errors import TraceError
from pipeline.ingest import ingest, read_trace
from tests.ingest import build


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    times = [datetime(2026, 1, 31, hour, tzinfo=UTC) for hour in (8, 9, 10)]
    path = build.canonical(
        folder / "t.parquet",
        arrival_time=times,
        arrival_us=[0, build.HOUR, 2 * build.HOUR],
        request_id=["a", "b", "c"],
        model=["m", "k", "m"],
        tenant=["x", None, "y"],
        **{"class": ["chat", "chat", "batch"]},
    )
    ingest([path], out=folder / "out.parquet")
    return folder / "out.parquet"


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (None, "abc"),
        ("model = 'm'", "ac"),
        ("class = 'batch' OR tenant IS NULL", "bc"),
        ("tenant IN ('x', 'y') AND input_tokens > 100", "c"),
        ("arrival_time >= '2026-01-31T09:00:00Z'", "bc"),
        ("arrival_time > '2026-01-31 10:30:00+02:00' and model='k'", "b"),
        ("arrival_time BETWEEN '2026-01-31 08:30' AND '2026-01-31 09:30'", "b"),
        ("'2026-01-31T08:00:00.000001' <= arrival_time", "bc"),
        ("arrival_time >= TIMESTAMP '2026-01-31 09:00:00'", "bc"),
        ("arrival_us < 3600000000", "a"),
        ("model = 'none'", ""),
    ],
)
def test_where(trace, where, ids):
    rows = read_trace(trace, where).collect()
    assert "".join(rows["request_id"]) == ids
    assert rows.schema["arrival_time"] == pl.Datetime("us", "UTC")
    assert rows.schema["model"] == pl.String


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("modle = 'm'", r"column modle is unknown; did you mean model\?"),
        ("input_tokens + 1", "is no condition"),
        ("1 = 1", "is no condition"),
        ("model = 5", "compares values of different kinds"),
        ("SELECT 1", "is no SQL condition"),
        ("model = ", "is no SQL condition"),
        ("arrival_time > 'noon'", "'noon' is no time"),
        ("model = 'm'; DROP TABLE x", "is no SQL condition"),
    ],
)
def test_conditions_that_cannot_be_used(trace, where, message):
    with pytest.raises(TraceError, match=message):
        read_trace(trace, where)


def test_times_of_a_relative_clock_cannot_be_asked_for(tmp_path):
    ingest([build.canonical(tmp_path / "t.parquet")], out=tmp_path / "out.parquet")
    with pytest.raises(TraceError, match="relative clock, arrival_time is empty; use arrival_us"):
        read_trace(tmp_path / "out.parquet", "arrival_time > '2026-01-01'")


def test_files_that_are_no_trace(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "none.parquet")
    with pytest.raises(TraceError, match="is no Parquet file"):
        read_trace(build.write(tmp_path / "log", build.AZURE))
    with pytest.raises(TraceError, match="is no trace/1 file as servecast writes it"):
        read_trace(build.canonical(tmp_path / "t.parquet"))
