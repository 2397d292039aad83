"""Times as logs write them, to whole microseconds: exact decimals, floored, never through floats."""

from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

import polars as pl

from pipeline.errors import TraceError

_PLAIN = r"^[+-]?\d+(?:\.\d*)?$"
_EXPONENT = r"^[+-]?\d+(?:\.\d*)?[eE][+-]?\d{1,3}$"
_ISO = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,12})?\s?(?:Z|z|UTC|[+-]\d{2}:?\d{2})?$"
_OFFSET = r"(Z|z|UTC|[+-]\d{2}:?\d{2})$"
_SECONDS = 19  # characters before the fraction


def decimal_us(text: pl.Expr, digits: int) -> pl.Expr:
    """Turn decimal text into floored microseconds, Int64; null where it is no number or out of range.

    digits : decimal places from the unit to the microsecond, 6 for seconds, 3 for milliseconds
    """
    text = text.str.strip_chars()
    plain = pl.when(text.str.contains(_PLAIN)).then(text)
    whole = plain.str.extract(r"^[+-]?(\d+)", 1)
    fraction = plain.str.extract(r"\.(\d*)$", 1).fill_null("")
    size = (whole + fraction.str.slice(0, digits).str.pad_end(digits, "0")).cast(pl.Int64, strict=False)
    beyond = fraction.str.slice(digits).str.contains("[1-9]").cast(pl.Int64)
    exact = pl.when(plain.str.starts_with("-")).then(-size - beyond).otherwise(size)
    rare = pl.when(text.str.contains(_EXPONENT)).then(text)
    return pl.coalesce(exact, rare.map_elements(lambda value: _exponent_us(value, digits), pl.Int64, skip_nulls=True))


def _exponent_us(text: str, digits: int) -> int | None:
    try:
        value = int(Decimal(text).scaleb(digits).to_integral_value("ROUND_FLOOR"))
    except (InvalidOperation, OverflowError):
        return None
    return value if -(2**63) <= value < 2**63 else None


def iso_us(text: pl.Expr, naive_zone: str) -> pl.Expr:
    """Turn ISO 8601 text into floored microseconds since 1970 UTC, Int64; null where it is no such time.

    A stamp without offset is local time of `naive_zone`; one that this zone never showed is null, of one that
    it showed twice the earlier is taken.
    """
    stamp = _iso(text)
    seconds = (stamp.str.slice(0, 10) + " " + stamp.str.slice(11, 8)).str.to_datetime(
        "%Y-%m-%d %H:%M:%S", strict=False, time_unit="us"
    )
    digits = stamp.str.slice(_SECONDS).str.extract(r"^[.,](\d+)", 1).fill_null("")
    fraction = digits.str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64, strict=False)
    offset = stamp.str.slice(_SECONDS).str.extract(_OFFSET, 1)
    utc = seconds.dt.replace_time_zone("UTC").dt.epoch("us")
    local = seconds.dt.replace_time_zone(naive_zone, ambiguous="earliest", non_existent="null").dt.epoch("us")
    return pl.when(offset.is_null()).then(local).otherwise(utc - _offset_us(offset)) + fraction


def is_naive(text: pl.Expr) -> pl.Expr:
    """Tell which stamps have no offset of their own."""
    return _iso(text).str.slice(_SECONDS).str.contains(_OFFSET).not_().fill_null(False)


def _iso(text: pl.Expr) -> pl.Expr:
    text = text.str.strip_chars()
    return pl.when(text.str.contains(_ISO)).then(text)


def _offset_us(offset: pl.Expr) -> pl.Expr:
    hours = offset.str.slice(1, 2).cast(pl.Int64, strict=False).fill_null(0)
    minutes = offset.str.slice(-2).cast(pl.Int64, strict=False).fill_null(0)
    size = (hours * 3600 + minutes * 60) * 1_000_000
    return pl.when(offset.str.starts_with("-")).then(-size).otherwise(size)


def zone(name: str) -> str:
    """Return the name of a time zone unchanged; TraceError if there is none of that name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise TraceError(f"naive_timestamps_are = {name}: no such time zone; write UTC or Europe/Berlin") from error
    return name
