"""Accounting: what each request counts against bought capacity, and what it costs without.

Weighted tokens are whole numbers: every weight is a fraction, and counts are multiplied by the common denominator
`scale` of all weights, so that sums and comparisons are exact.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl

from pipeline.capacity.rates import Offer, TokenPrices, Unit, Weights
from pipeline.config import Prices
from pipeline.errors import ConfigError, TraceError

# The settings, besides the offer's, that `demand` depends on.
SETTINGS = ("max_tokens_policy", "fixed_max_tokens", "spill_cached_share", "output_tokens_per_s")
_ROLLING = 1000  # requests whose mean output stands for an unknown max_tokens


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests in order of arrival, as arrays of equal length.

    arrival_us, duration_us : when a request comes, and how long it takes
    estimate, actual        : weighted tokens times `scale`, as admission counts them and as they turn out
    second_estimate, second_actual : the same for the second budget, output, where a unit has two; else empty
    raw_tokens              : input and output as they are
    payg_usd, spill_usd     : its price without capacity, and when it spills from it
    served                  : False where bought capacity refuses it whatever the load (prompt too long)
    """

    arrival_us: np.ndarray
    duration_us: np.ndarray
    estimate: np.ndarray
    actual: np.ndarray
    second_estimate: np.ndarray
    second_actual: np.ndarray
    raw_tokens: np.ndarray
    payg_usd: np.ndarray
    spill_usd: np.ndarray
    served: np.ndarray
    scale: int

    def __len__(self) -> int:
        """Return how many requests there are."""
        return len(self.arrival_us)


class Counter:
    """Counts what requests ask of a unit of an offer, batch by batch; `count` in order of arrival."""

    def __init__(self, offer: Offer, prices: Prices) -> None:
        """Raises ConfigError if unit or prices of the offer are not known."""
        if offer.unit is None or offer.prices is None:
            raise ConfigError("; ".join(offer.withheld.values()))
        self.offer, self.prices = offer, prices
        self.unit, self.price = offer.unit, offer.prices
        self.scale = _denominator(self.unit)
        self.rows = 0
        self.recent = np.zeros(0, np.int64)  # output tokens of the last requests

    def count(self, rows: pl.DataFrame) -> Demand:
        """Return what the next requests ask.

        rows : columns arrival_us, input_tokens, output_tokens, and where known cached_tokens, cache_write_tokens,
            max_tokens, obs_e2e_us
        Raises TraceError if a prompt has fewer tokens than were cached.
        """
        unit, scale = self.unit, self.scale
        prompt_tokens, output = _whole(rows, "input_tokens"), _whole(rows, "output_tokens")
        cached, written = _whole(rows, "cached_tokens"), _whole(rows, "cache_write_tokens")
        plain = prompt_tokens - cached - written
        if (plain < 0).any():
            row = int(np.argmax(plain < 0))
            raise TraceError(
                f"row {self.rows + row} of the trace: cached_tokens + cache_write_tokens = "
                f"{cached[row] + written[row]:,} is more than input_tokens = {prompt_tokens[row]:,}"
            )
        prompt = _weighted(unit, "prompt", plain, cached, written, prompt_tokens, scale)
        per_output = _weighted(unit, "output", plain, cached, written, prompt_tokens, scale)
        two = unit.output_tokens_per_minute is not None
        guess = output if two else admitted_output(rows, self.prices, self.recent)
        self.rows += len(rows)
        self.recent = np.concatenate([self.recent, output])[-_ROLLING:]
        none = np.zeros(0, np.int64)
        return Demand(
            arrival_us=rows["arrival_us"].to_numpy().astype(np.int64),
            duration_us=_durations(rows, output, unit, self.prices),
            estimate=prompt if two else prompt + per_output * guess,
            actual=prompt if two else prompt + per_output * output,
            second_estimate=per_output * guess if two else none,
            second_actual=per_output * output if two else none,
            raw_tokens=prompt_tokens + output,
            payg_usd=dollars(self.price, self.offer, plain, cached, written, output),
            spill_usd=dollars(self.price, self.offer, *_spilled(plain, cached, written, self.prices), output),
            served=prompt_tokens <= (unit.refused_above_tokens or np.iinfo(np.int64).max),
            scale=scale,
        )


def weighted_tokens(weights: Weights, plain: int, cached: int, written: int, output: int) -> Fraction:
    """Return what one request counts, in plain input tokens."""
    return weights.input * plain + weights.cached * cached + weights.cache_write * written + weights.output * output


def dollars(
    price: TokenPrices, offer: Offer, plain: np.ndarray, cached: np.ndarray, written: np.ndarray, output: np.ndarray
) -> np.ndarray:
    """Return the pay-as-you-go price of each request, USD; a long prompt moves the whole request to its rate."""
    usual = _dollars(price, plain, cached, written, output)
    unit, long = offer.unit, offer.long_prices
    if long is None or unit is None or unit.long_context_tokens is None:
        return usual
    return np.where(
        plain + cached + written > unit.long_context_tokens, _dollars(long, plain, cached, written, output), usual
    )


def admitted_output(rows: pl.DataFrame, prices: Prices, recent: np.ndarray) -> np.ndarray:
    """Return the output tokens that admission counts for each request, by prices.max_tokens_policy.

    recent : output tokens of the requests just before these, int64
    """
    if prices.max_tokens_policy == "fixed":
        return np.full(len(rows), prices.fixed_max_tokens, np.int64)
    guess = _recent_means(_whole(rows, "output_tokens"), recent)
    if prices.max_tokens_policy == "logged" and "max_tokens" in rows.columns:
        guess = rows.select(pl.coalesce(pl.col("max_tokens").cast(pl.Int64), pl.Series(guess)))[:, 0].to_numpy()
    return guess.astype(np.int64)


def _recent_means(output: np.ndarray, recent: np.ndarray) -> np.ndarray:
    """Return the mean of the last outputs before each request, rounded up.

    Nothing is known before the first: it is taken as it was.
    """
    sums = np.concatenate([[0], np.cumsum(np.concatenate([recent, output]))])
    end = len(recent) + np.arange(len(output))
    begin = np.maximum(end - _ROLLING, 0)
    return np.where(end == begin, output, -(-(sums[end] - sums[begin]) // np.maximum(end - begin, 1)))


def _dollars(
    price: TokenPrices, plain: np.ndarray, cached: np.ndarray, written: np.ndarray, output: np.ndarray
) -> np.ndarray:
    return (price.input * plain + price.cached * cached + price.cache_write * written + price.output * output) / 1e6


def _spilled(
    plain: np.ndarray, cached: np.ndarray, written: np.ndarray, prices: Prices
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the input classes on the other side, whose cache knows only a share of what was cached here."""
    still = np.floor(cached * prices.spill_cached_share)
    return plain + (cached - still), still, written


def _weighted(
    unit: Unit, what: str, plain: np.ndarray, cached: np.ndarray, written: np.ndarray, prompt: np.ndarray, scale: int
) -> np.ndarray:
    """Return the prompt's weighted tokens, or the weight of an output token, times `scale`, by class of length."""

    def one(weights: Weights) -> np.ndarray:
        w = [int(weight * scale) for weight in (weights.input, weights.cached, weights.cache_write, weights.output)]
        if what == "output":
            return np.full(len(plain), w[3], np.int64)
        return w[0] * plain + w[1] * cached + w[2] * written

    usual = one(unit.weights)
    if unit.long_context is None or unit.long_context_tokens is None:
        return usual
    return np.where(prompt > unit.long_context_tokens, one(unit.long_context), usual)


def _denominator(unit: Unit) -> int:
    weights = [unit.weights, *([unit.long_context] if unit.long_context else [])]
    return math.lcm(*(w.denominator for one in weights for w in (one.input, one.cached, one.cache_write, one.output)))


def _whole(trace: pl.DataFrame, name: str) -> np.ndarray:
    """Return a column of counts, zeros where nothing is known of it."""
    if name not in trace.columns:
        return np.zeros(len(trace), np.int64)
    return trace[name].fill_null(0).cast(pl.Int64).to_numpy()


def _durations(trace: pl.DataFrame, output: np.ndarray, unit: Unit, prices: Prices) -> np.ndarray:
    """Return how long each request takes, microseconds: as logged, else its output at the stated or target speed."""
    speed = prices.output_tokens_per_s or unit.tokens_per_s or 50.0
    guessed = np.rint(1e6 * output / speed).astype(np.int64)
    if "obs_e2e_us" not in trace.columns:
        return guessed
    return trace.select(pl.coalesce("obs_e2e_us", pl.Series(guessed)))[:, 0].to_numpy().astype(np.int64)
