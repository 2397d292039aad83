"""One purchase decision: demand by the minute, candidate sizes, terms, what would change the answer.

Costs are per month of `hours_per_month`: the log is taken to repeat. Two figures stand side by side for each size:
`fluid`, where only a minute's total matters, and `replayed`, where each request met the vendor's admission rule. The
recommendation is made on replayed costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.capacity import accounting, admission, economics
from pipeline.capacity.accounting import Demand
from pipeline.capacity.admission import Admitted
from pipeline.capacity.economics import Confidence, Hour, Plan
from pipeline.capacity.rates import Offer, Term
from pipeline.config import Prices

MINUTE_US = 60_000_000
DAY_US = 1440 * MINUTE_US
YEARLY_DAYS = 28  # a yearly term is not recommended on less
MONTHLY_DAYS = 7  # nor any commitment without a word on how short the log is
_MOST_SIZES = 24  # replayed one by one; the curve between them is the fluid one
_BATCH = 1 << 20
_TAIL_US = 60 * MINUTE_US
COLUMNS = (
    "arrival_us", "arrival_time", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "max_tokens",
    "obs_e2e_us",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Market:
    """Everything a decision looks at: requests, offer, settings, and demand by the minute.

    units : demand of each minute in units, empty minutes included; of two budgets, the one that needs more
    """

    trace: pl.DataFrame
    offer: Offer
    prices: Prices
    demand: Demand
    span_us: int
    units: np.ndarray

    @property
    def months(self) -> float:
        """Length of the log in months."""
        return self.span_us / MINUTE_US / self.offer.minutes_per_month

    @property
    def payg_usd_month(self) -> float:
        """Pay-as-you-go price of a month, USD."""
        return float(self.demand.payg_usd.sum()) / self.months

    @property
    def value(self) -> float:
        """What a unit that never idles saves in a month, USD: the log's own mix at pay-as-you-go prices."""
        mean = float(self.units.mean())
        return self.payg_usd_month / mean if mean > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A number of units at a term with its monthly cost; expected: per month of need, by prices.monthly_survival."""

    term: Term
    units: int
    fluid_usd_month: float
    replayed_usd_month: float
    expected_usd_month: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to buy, with all that led to it.

    best       : the cheapest candidate that the length of the log allows; None: buy nothing
    cheapest   : the cheapest candidate whatever the length of the log
    candidates : for every term, every replayed size
    habits     : sizes that people choose by habit, by name: mean, peak
    withheld   : terms that the log is too short for, with the reason
    layers     : units by committed term, longest first, each including those before it
    hours      : units worth having by the hour above the recommended ones, by hour of the day; empty if not sold so
    """

    market: Market
    admitted: tuple[Admitted, ...]
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    cheapest: Candidate | None
    habits: dict[str, int]
    confidence: Confidence | None
    daily_savings_usd: tuple[tuple[int, float, float], ...]
    withheld: dict[str, str]
    layers: tuple[Plan, ...]
    hours: tuple[Hour, ...]

    @property
    def chosen(self) -> Candidate | None:
        """The recommended purchase, else the cheapest one that saves money."""
        return self.best or self.cheapest


def market(trace: pl.DataFrame, offer: Offer, prices: Prices) -> Market:
    """Return the market of a trace: its replayable requests as the offer counts them.

    Raises ConfigError or TraceError as `accounting.demand`.
    """
    rows = trace.filter("replayable") if "replayable" in trace.columns else trace
    rows = rows.select(name for name in COLUMNS if name in rows.columns)
    counted = accounting.demand(rows, offer, prices)
    last = int(counted.arrival_us[-1])
    span_us = (last // MINUTE_US + 1) * MINUTE_US
    return Market(rows, offer, prices, counted, span_us, _units(counted, offer, span_us))


def decide(market: Market) -> Decision:
    """Replay candidate sizes and return the cheapest purchase that the log can support."""
    offer = market.offer
    assert offer.unit is not None
    committed = [term for term in offer.terms if term.months > 0] or list(offer.terms)
    habits = _habits(market)
    sizes = _sizes(market, committed, habits)
    admitted = admit(market, market.prices, sizes)
    usd = {one.units: one.spilled_usd / market.months for one in admitted}
    candidates = [
        Candidate(
            term,
            units,
            economics.cost(market.units, units, term.usd_per_unit_month, market.value),
            units * term.usd_per_unit_month + usd[units],
            units * economics.needed_price(term, market.prices.monthly_survival) + usd[units],
        )
        for term in offer.terms
        for units in sizes
    ]
    withheld = _too_short(market, offer.terms)
    best = _cheapest([c for c in candidates if c.term.name not in withheld], market)
    cheapest = _cheapest(candidates, market)
    days = _days(market, best or cheapest)
    sure = economics.confidence([saved for _, _, saved in days], market.prices.seed) if len(days) > 1 else None
    unit = offer.unit
    layers = economics.layers(market.units, offer.terms, market.value, unit.minimum, unit.increment)
    hours = _hours(market, best.units if best else 0)
    return Decision(
        market, tuple(admitted), tuple(candidates), best, cheapest, habits, sure, tuple(days), withheld, tuple(layers),
        tuple(hours),
    )  # fmt: skip


def admit(market: Market, prices: Prices, sizes: Sequence[int]) -> list[Admitted]:
    """Replay the requests through purchases of several sizes under some admission settings."""
    assert market.offer.unit is not None
    demand = market.demand
    if any(getattr(prices, name) != getattr(market.prices, name) for name in accounting.SETTINGS):
        demand = accounting.demand(market.trace, market.offer, prices)
    batches = [demand] if prices.retry != "none" else admission.pieces(demand, _BATCH)
    before = None
    if prices.retry == "none":
        # The log is taken to repeat, so it begins with the bucket as its end leaves it.
        before = admission.tail(demand, market.span_us, min(market.span_us, _TAIL_US))
    return admission.sweep(market.offer.unit, prices, sizes, batches, market.span_us, before)


def by_minute(arrival_us: np.ndarray, amount: np.ndarray, span_us: int) -> np.ndarray:
    """Return the sum of an amount in every minute of the log, float64."""
    return np.bincount(arrival_us // MINUTE_US, amount.astype(float), span_us // MINUTE_US)


def _units(demand: Demand, offer: Offer, span_us: int) -> np.ndarray:
    unit = offer.unit
    assert unit is not None
    first = by_minute(demand.arrival_us, demand.actual, span_us) / demand.scale / float(unit.tokens_per_minute)
    if unit.output_tokens_per_minute is None:
        return first
    second = by_minute(demand.arrival_us, demand.second_actual, span_us) / demand.scale
    return np.maximum(first, second / float(unit.output_tokens_per_minute))


def _habits(market: Market) -> dict[str, int]:
    unit = market.offer.unit
    assert unit is not None
    wanted = {"mean": float(market.units.mean()), "peak": float(market.units.max())}
    return {name: economics.rounded(units, unit.minimum, unit.increment) for name, units in wanted.items()}


def _sizes(market: Market, terms: Sequence[Term], habits: dict[str, int]) -> list[int]:
    """Return the sizes to replay: none, the fluid optimum of each term and its neighbours, the habits, a grid."""
    unit = market.offer.unit
    assert unit is not None
    found = {0, unit.minimum, *habits.values()}
    for term in terms:
        best = economics.optimum(market.units, term, market.value, unit.minimum, unit.increment).units
        around = range(best - 3 * unit.increment, best + 4 * unit.increment, unit.increment)
        found |= {size for size in around if size >= unit.minimum}
    every = economics.sizes(market.units, unit.minimum, unit.increment)
    missing = max(0, _MOST_SIZES - len(found))
    if missing:
        found |= {every[i] for i in np.unique(np.linspace(0, len(every) - 1, missing).astype(int)).tolist()}
    return sorted(found)


def _hours(market: Market, base: int) -> list[Hour]:
    """Return what to deploy by the hour above a base, by hour of the day: UTC, or of a log without dates."""
    unit, hourly = market.offer.unit, next((t for t in market.offer.terms if t.months == 0), None)
    assert unit is not None
    if hourly is None:
        return []
    first = market.trace["arrival_time"][0] if "arrival_time" in market.trace.columns else None
    minute = 0 if first is None else first.hour * 60 + first.minute
    return economics.hourly_top(market.units, minute, base, hourly, market.value, unit.minimum, unit.increment)


def _cheapest(candidates: Sequence[Candidate], market: Market) -> Candidate | None:
    """Return the cheapest purchase if it costs less than none, the smaller and shorter one of equals."""
    bought = [c for c in candidates if c.units > 0]
    if not bought:
        return None
    best = min(bought, key=lambda c: (round(c.expected_usd_month, 6), c.units, c.term.months))
    return best if best.expected_usd_month < market.payg_usd_month - 1e-6 else None


def _too_short(market: Market, terms: Sequence[Term]) -> dict[str, str]:
    days = market.span_us / DAY_US
    short = {term.name for term in terms if term.months >= 12 and days < YEARLY_DAYS}
    covered = f"the log covers {span_text(market.span_us)}"
    reason = f"{covered}; a yearly term is not recommended on less than {YEARLY_DAYS} days"
    return dict.fromkeys(sorted(short), reason)


def span_text(span_us: int) -> str:
    """Return the length of a log in words: `60 minutes`, `5.0 hours`, `31.0 days`."""
    days = span_us / DAY_US
    if days < 2 / 24:
        return f"{days * 1440:,.0f} minutes"
    return f"{days * 24:,.1f} hours" if days < 2 else f"{days:,.1f} days"


def _days(market: Market, chosen: Candidate | None) -> list[tuple[int, float, float]]:
    """Return (day from 0, pay-as-you-go USD, USD saved by the purchase) of each whole day of the log."""
    if chosen is None:
        return []
    whole = market.span_us // DAY_US
    minutes = 1440 * whole
    if whole == 0:
        return []
    units = market.units[:minutes].reshape(whole, 1440)
    payg, spill = (
        by_minute(market.demand.arrival_us, usd, market.span_us)[:minutes].reshape(whole, 1440)
        for usd in (market.demand.payg_usd, market.demand.spill_usd)
    )
    left = np.maximum(units - chosen.units, 0.0)
    spilled = (spill * left / np.maximum(units, np.finfo(float).tiny)).sum(axis=1)
    price = chosen.units * chosen.term.usd_per_unit_month * 24 / market.offer.hours_per_month
    return [
        (day, float(paid), float(paid - price - spilt))
        for day, (paid, spilt) in enumerate(zip(payg.sum(axis=1), spilled, strict=True))
    ]


def scaled(market: Market, growth: float = 1.0, output: float = 1.0, cached: float = 1.0) -> Market:
    """Return the market with more traffic, longer answers, or another share of cached input.

    growth multiplies every request's weight and price; output multiplies output tokens; cached multiplies cached
    input, what is no longer cached being plain and at most all of it.
    """
    trace = market.trace
    if output != 1.0:
        trace = trace.with_columns(
            (pl.col(name).cast(pl.Float64) * output).round().clip(1).cast(pl.Int64)
            for name in ("output_tokens", "max_tokens")
            if name in trace.columns
        )
    if cached != 1.0:
        written = pl.col("cache_write_tokens").fill_null(0) if "cache_write_tokens" in trace.columns else pl.lit(0)
        room = pl.col("input_tokens").cast(pl.Int64) - written.cast(pl.Int64)
        more = (pl.col("cached_tokens").fill_null(0).cast(pl.Float64) * cached).round().cast(pl.Int64)
        trace = trace.with_columns(pl.min_horizontal(more, room).alias("cached_tokens"))
    demand = market.demand
    if trace is not market.trace:
        demand = accounting.demand(trace, market.offer, market.prices)
    if growth != 1.0:
        demand = replace(
            demand,
            actual=np.rint(demand.actual * growth).astype(np.int64),
            estimate=np.rint(demand.estimate * growth).astype(np.int64),
            second_actual=np.rint(demand.second_actual * growth).astype(np.int64),
            second_estimate=np.rint(demand.second_estimate * growth).astype(np.int64),
            payg_usd=demand.payg_usd * growth,
            spill_usd=demand.spill_usd * growth,
        )
    return replace(market, trace=trace, demand=demand, units=_units(demand, market.offer, market.span_us))


def repriced(market: Market, payg: float = 1.0, unit: float = 1.0) -> Market:
    """Return the market with pay-as-you-go prices, or prices of units, multiplied."""
    terms = tuple(replace(term, usd_per_unit_month=term.usd_per_unit_month * unit) for term in market.offer.terms)
    demand = replace(market.demand, payg_usd=market.demand.payg_usd * payg, spill_usd=market.demand.spill_usd * payg)
    return replace(market, offer=replace(market.offer, terms=terms), demand=demand)


def fluid_best(market: Market, term_names: Sequence[str]) -> dict[str, Any]:
    """Return units, term, cost and saving of the cheapest fluid purchase at the named terms."""
    unit, value = market.offer.unit, market.value
    assert unit is not None
    demand, payg = market.units, market.payg_usd_month
    found: list[tuple[float, int, Term | None]] = []
    for term in market.offer.terms:
        if term.name in term_names:
            needed = replace(term, usd_per_unit_month=economics.needed_price(term, market.prices.monthly_survival))
            plan = economics.optimum(demand, needed, value, unit.minimum, unit.increment)
            found.append((plan.usd_per_month, plan.units, term))
    _, units, best = min(found, key=lambda one: (round(one[0], 6), one[1]), default=(payg, 0, None))
    usd = economics.cost(demand, units, best.usd_per_unit_month, value) if best is not None else payg
    return {
        "units": units,
        "term": best.name if best is not None and units else None,
        "usd_per_month": usd,
        "payg_usd_per_month": payg,
        "saving_usd_per_month": payg - usd,
    }
