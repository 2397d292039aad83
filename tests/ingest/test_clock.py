from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import floor

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import TraceError
from pipeline.ingest import clock


def decimal_us(texts, digits=6):
    return (
        pl.DataFrame({"t": pl.Series(texts, dtype=pl.String)})
        .select(clock.decimal_us(pl.col("t"), digits))["t"]
        .to_list()
    )


def iso_us(texts, zone="UTC"):
    return (
        pl.DataFrame({"t": pl.Series(texts, dtype=pl.String)})
        .select(clock.iso_us(pl.col("t"), zone).alias("t"))["t"]
        .to_list()
    )


def test_decimals_are_exact_and_floored():
    texts = ["61.114", "19440110.0", "5", "-0.0000005", "-1", "1763371953.1234569", "5e-05", "1.5E3", "0.0000009", "7."]
    assert decimal_us(texts) == [
        61114000,
        19440110000000,
        5000000,
        -1,
        -1000000,
        1763371953123456,
        50,
        1500000000,
        0,
        7000000,
    ]


def test_milliseconds():
    assert decimal_us(["3000", "2999.9996"], 3) == [3000000, 2999999]


@pytest.mark.parametrize(
    "text", ["", "abc", "NaN", "inf", "1,5", "0x10", "1e400", "99999999999999999999", "--1", "1.2.3"]
)
def test_no_number_is_null(text):
    assert decimal_us([text]) == [None]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.decimals(-(10**9), 10**9, places=9, allow_nan=False), min_size=1, max_size=20))
def test_decimals_agree_with_fractions(values):
    assert decimal_us([format(v, "f") for v in values]) == [floor(Fraction(v) * 10**6) for v in values]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_shortest_floats_agree_with_decimals(values):
    wanted = [int((Decimal(repr(v)) * 10**6).to_integral_value("ROUND_FLOOR")) for v in values]
    assert decimal_us([repr(v) for v in values]) == wanted


def us(*parts, tz=UTC, micro=0):
    return (datetime(*parts, tzinfo=tz) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + micro


def test_iso_stamps():
    texts = [
        "2023-11-16 18:17:03.9799609",
        "2024-05-12 00:00:04+00:00",
        "2024-05-12T02:00:04.5+02:00",
        "2024-05-12T00:00:04.25Z",
        "2024-05-11 20:30:04-0330",
    ]
    assert iso_us(texts) == [
        us(2023, 11, 16, 18, 17, 3, micro=979960),
        us(2024, 5, 12, 0, 0, 4),
        us(2024, 5, 12, 0, 0, 4, micro=500000),
        us(2024, 5, 12, 0, 0, 4, micro=250000),
        us(2024, 5, 11, 20, 30, 4, tz=timezone(-timedelta(hours=3, minutes=30))),
    ]


def test_naive_stamps_are_local_times_of_the_stated_zone():
    assert iso_us(["2024-07-01 12:00:00", "2024-01-01 12:00:00"], "Europe/Berlin") == [
        us(2024, 7, 1, 10),
        us(2024, 1, 1, 11),
    ]


def test_hours_that_a_zone_skips_or_repeats():
    skipped, repeated = iso_us(["2024-03-31 02:30:00", "2024-10-27 02:30:00"], "Europe/Berlin")
    assert skipped is None
    assert repeated == us(2024, 10, 27, 0, 30)


@pytest.mark.parametrize(
    "text", ["", "2024-13-01 00:00:00", "2024-02-30 00:00:00", "12/05/2024", "2024-05-12", "1715472000"]
)
def test_no_time_is_null(text):
    assert iso_us([text]) == [None]


def test_unknown_zone_is_named():
    with pytest.raises(TraceError, match="Mars/Base: no such time zone"):
        clock.zone("Mars/Base")
