"""Small traces and offers for tests of purchases."""

from collections.abc import Sequence
from fractions import Fraction

import polars as pl

from pipeline.capacity import accounting, rates
from pipeline.capacity.accounting import Demand
from pipeline.config import Prices

MINUTE_US = 60_000_000


def prices(**stated: object) -> Prices:
    """Return price settings for gpt-4.1 on Azure, changed as stated."""
    return Prices(**({"model": "gpt-4.1"} | stated))  # type: ignore[arg-type]


def trace(calls: Sequence[tuple[float, int, int]], **columns: Sequence[object]) -> pl.DataFrame:
    """Return a trace of (second, input tokens, output tokens), with further columns."""
    return pl.DataFrame(
        {
            "arrival_us": [round(1e6 * second) for second, _, _ in calls],
            "input_tokens": [tokens for _, tokens, _ in calls],
            "output_tokens": [tokens for _, _, tokens in calls],
            **columns,
        },
        schema_overrides={
            name: pl.Int64
            for name in ("arrival_us", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens",
                         "max_tokens", "obs_e2e_us")
            if name in columns or name in ("arrival_us", "input_tokens", "output_tokens")
        },
    )  # fmt: skip


def demand(frame: pl.DataFrame, settings: Prices) -> Demand:
    """Return what the trace asks of the published unit."""
    return accounting.Counter(rates.offer(settings), settings).count(frame)


def minutes_of(units: Sequence[int], tokens_per_minute: int = 3000, **columns: Sequence[object]) -> pl.DataFrame:
    """Return a trace whose minutes ask for so many units, one call of input alone in each."""
    return trace([(60.0 * i, tokens_per_minute * n, 0) for i, n in enumerate(units)], **columns)


def exact(weighted: object, scale: int) -> Fraction:
    """Return weighted tokens as a fraction."""
    return Fraction(int(weighted), scale)  # type: ignore[call-overload]
