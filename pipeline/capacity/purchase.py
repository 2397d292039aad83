"""One purchase decision: demand by the minute, candidate sizes, terms, what would change the answer.

Costs are per month of `hours_per_month`: the log is taken to repeat. Two figures stand side by side for each size:
`fluid`, where only a minute's total matters, and `replayed`, where each request met the vendor's admission rule. The
recommendation is made on replayed costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.capacity import admission, economics
from pipeline.capacity.admission import Admitted
from pipeline.capacity.economics import Confidence, Hour, Plan
from pipeline.capacity.rates import Offer, Term
from pipeline.capacity.traffic import MINUTE_US, Minutes, Survey, Traffic, survey
from pipeline.config import Prices

DAY_US = 1440 * MINUTE_US
YEARLY_DAYS = 28  # a yearly term is not recommended on less
MONTHLY_DAYS = 7  # nor any commitment without a word on how short the log is
_MOST_SIZES = 24  # replayed one by one; the curve between them is the fluid one


@dataclass(frozen=True, slots=True)
class Market:
    """Everything a decision looks at: requests, offer, settings, and demand by the minute.

    seen    : what one pass over the requests found
    minutes : what the requests of each minute come to
    units   : demand of each minute in units, empty minutes included; of two budgets, the one that needs more
    """

    traffic: Traffic
    offer: Offer
    prices: Prices
    seen: Survey
    minutes: Minutes
    units: np.ndarray

    @property
    def span_us(self) -> int:
        """Length of the log, whole minutes."""
        return self.seen.span_us

    @property
    def months(self) -> float:
        """Length of the log in months."""
        return self.span_us / MINUTE_US / self.offer.minutes_per_month

    @property
    def payg_usd_month(self) -> float:
        """Pay-as-you-go price of a month, USD."""
        return float(self.minutes.payg_usd.sum()) / self.months

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


def market(traffic: Traffic, offer: Offer, prices: Prices) -> Market:
    """Return the market of some traffic: its replayable requests as the offer counts them.

    Raises ConfigError or TraceError as `traffic.survey`.
    """
    seen = survey(traffic, offer, prices)
    return Market(traffic, offer, prices, seen, seen.minutes, _units(seen.minutes, offer))


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
    unit = market.offer.unit
    assert unit is not None
    before = None
    if prices.retry == "none":
        # The log is taken to repeat, so it begins with the bucket as its end leaves it.
        before = admission.shifted(market.seen.tail(market.offer, prices), market.span_us)
    demands = market.traffic.demands(market.offer, prices)
    return admission.sweep(unit, prices, sizes, demands, market.span_us, before)


def _units(minutes: Minutes, offer: Offer) -> np.ndarray:
    unit = offer.unit
    assert unit is not None
    first = minutes.actual / minutes.scale / float(unit.tokens_per_minute)
    if unit.output_tokens_per_minute is None:
        return first
    return np.maximum(first, minutes.second_actual / minutes.scale / float(unit.output_tokens_per_minute))


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
    first = market.seen.first_time
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
    payg, spill = (usd[:minutes].reshape(whole, 1440) for usd in (market.minutes.payg_usd, market.minutes.spill_usd))
    left = np.maximum(units - chosen.units, 0.0)
    spilled = (spill * left / np.maximum(units, np.finfo(float).tiny)).sum(axis=1)
    price = chosen.units * chosen.term.usd_per_unit_month * 24 / market.offer.hours_per_month
    return [
        (day, float(paid), float(paid - price - spilt))
        for day, (paid, spilt) in enumerate(zip(payg.sum(axis=1), spilled, strict=True))
    ]


def scaled(market: Market, growth: float = 1.0, output: float = 1.0, cached: float = 1.0) -> Market:
    """Return the market with more traffic, longer answers, or another share of cached input.

    growth multiplies what every minute asks and costs, which needs no look at the requests; output and cached as in
    `Traffic`.
    """
    traffic, minutes = market.traffic, market.minutes
    if (output, cached) != (1.0, 1.0):
        traffic = replace(traffic, output=output, cached=cached)
        minutes = survey(traffic, market.offer, market.prices).minutes
    minutes = minutes.times(growth=growth)
    return replace(market, traffic=traffic, minutes=minutes, units=_units(minutes, market.offer))


def repriced(market: Market, payg: float = 1.0, unit: float = 1.0) -> Market:
    """Return the market with pay-as-you-go prices, or prices of units, multiplied."""
    terms = tuple(replace(term, usd_per_unit_month=term.usd_per_unit_month * unit) for term in market.offer.terms)
    return replace(market, offer=replace(market.offer, terms=terms), minutes=market.minutes.times(payg=payg))


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
