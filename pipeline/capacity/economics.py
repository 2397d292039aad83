"""Economics: when a bought unit pays, how many to buy, for how long, and how sure that is.

Demand is a number per minute, in units: weighted tokens of the minute over what a unit serves in one, empty minutes
included. `value` is what a unit would save in a month if it never stood idle: its weighted tokens at their
pay-as-you-go price. A fluid minute: what is above the units spills, whatever its order within the minute;
`admission` tells how far bursts make that worse.

Rule of the marginal unit: buy the k-th while the share of its time that it works, times `value`, is at least its
price; then compare with buying nothing, which a minimum purchase can make the better choice. (The newsvendor rule:
Arrow, Harris and Marschak 1951.)
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq

from pipeline.capacity.rates import Term

_EXACT_RESAMPLES = 1_000_000
_RESAMPLES = 10_000
_WEEK_MINUTES = 7 * 1440


@dataclass(frozen=True, slots=True)
class Plan:
    """A purchase of so many units at one term, and what a month costs with it."""

    units: int
    term: str | None
    usd_per_month: float
    spilled_share: float


def raw_units(weighted_tokens_per_minute: float | Fraction, tokens_per_minute_per_unit: float | Fraction) -> float:
    """Return the units that a steady load fills, not rounded."""
    return float(weighted_tokens_per_minute / tokens_per_minute_per_unit)


def rounded(units: float, minimum: int, increment: int) -> int:
    """Return the smallest number that can be bought and is enough; 0 for no need."""
    if units <= 0:
        return 0
    # A need that is whole but for the last bits of a float must not cost a step.
    steps = math.ceil(round((units - minimum) / increment, 9))
    return minimum + increment * max(0, steps)


def value_per_unit_month(usd_per_million_weighted: float, tokens_per_minute: float, minutes_per_month: float) -> float:
    """Return what a unit that never idles saves in a month, USD."""
    return usd_per_million_weighted * tokens_per_minute * minutes_per_month / 1e6


def break_even(usd_per_unit_month: float, value: float) -> float | None:
    """Return the share of time a unit must work to pay for itself, above 1 if it never does; None if worth nothing."""
    return usd_per_unit_month / value if value > 0 else None


def used_share(demand: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the share of time that the k-th unit works, for each k; demand in units per minute."""
    ordered = np.sort(demand)
    total = np.concatenate([[0.0], np.cumsum(ordered)])

    def served(k: np.ndarray) -> np.ndarray:
        """Return the mean of min(demand, k)."""
        below = np.searchsorted(ordered, k)
        return (total[below] + k * (len(ordered) - below)) / len(ordered)

    return served(units) - served(units - 1.0)


def unserved(demand: np.ndarray, units: float) -> float:
    """Return the mean of what a minute asks beyond the units, in units."""
    return float(np.maximum(demand - units, 0.0).mean())


def cost(demand: np.ndarray, units: int, usd_per_unit_month: float, value: float) -> float:
    """Return what a month costs with so many units, USD: their price, and the rest at pay-as-you-go."""
    return units * usd_per_unit_month + value * unserved(demand, units)


def plan(demand: np.ndarray, units: int, term: Term, value: float) -> Plan:
    """Return a purchase with its cost and the share of weighted tokens it leaves to pay-as-you-go."""
    mean = float(demand.mean())
    share = unserved(demand, units) / mean if mean > 0 else 0.0
    usd = cost(demand, units, term.usd_per_unit_month, value)
    return Plan(units, term.name if units else None, usd, share)


def marginal_units(demand: np.ndarray, usd_per_unit_month: float, value: float) -> int:
    """Return how many units pay for themselves one by one, whatever can be bought."""
    most = math.ceil(float(demand.max(initial=0.0)))
    if most == 0 or value <= 0:
        return 0
    shares = used_share(demand, np.arange(1.0, most + 1.0))
    # Shares never rise with k, but for the last bits.
    return int(np.count_nonzero(shares * value >= usd_per_unit_month * (1 - 1e-12)))


def sizes(demand: np.ndarray, minimum: int, increment: int) -> list[int]:
    """Return every number of units that can be bought and is not more than the highest minute needs; 0 among them."""
    top = rounded(float(demand.max(initial=0.0)), minimum, increment)
    return [0, *range(minimum, top + 1, increment)] if top else [0]


def optimum(demand: np.ndarray, term: Term, value: float, minimum: int, increment: int) -> Plan:
    """Return the cheapest purchase at a term, none included; the smaller one of equal ones."""
    unconstrained = marginal_units(demand, term.usd_per_unit_month, value)
    below = minimum + increment * max(0, (unconstrained - minimum) // increment)
    # Cost is convex in units, so the best number that can be bought is beside the unconstrained one, or none.
    near = {0, minimum, below, below + increment}
    plans = [plan(demand, units, term, value) for units in sorted(near)]
    return min(plans, key=lambda one: (round(one.usd_per_month, 6), one.units))


def layers(demand: np.ndarray, terms: Sequence[Term], value: float, minimum: int, increment: int) -> list[Plan]:
    """Return what to buy at each committed term, longest first; units of an entry include those before it.

    A unit that is there all month is cheapest at the longest term, so use alone never puts two terms together: what
    does is that a need may end. Hence longer terms get what pays for itself in every week of the log, the weakest
    included, and the shortest what pays over the whole log.
    """
    committed = sorted((t for t in terms if t.months > 0), key=lambda t: -t.months)
    found: list[Plan] = []
    for term in committed:
        parts = [demand] if term is committed[-1] else _weeks(demand)
        units = min(optimum(part, term, value, minimum, increment).units for part in parts)
        if units > (found[-1].units if found else 0):
            found.append(plan(demand, units, term, value))
    return found


def _weeks(demand: np.ndarray) -> list[np.ndarray]:
    """Return the whole weeks of a demand, or all of it where it has fewer than two."""
    weeks = len(demand) // _WEEK_MINUTES
    return [demand] if weeks < 2 else np.split(demand[: weeks * _WEEK_MINUTES], weeks)


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of the day: units worth having by the hour above the base, and what they save in a month, USD."""

    hour: int
    units: int
    saved_usd_month: float


def hourly_top(
    demand: np.ndarray, first_minute: int, base: int, hourly: Term, value: float, minimum: int, increment: int
) -> list[Hour]:
    """Return what to deploy by the hour above a base that is always there, for each hour of the day in the log.

    first_minute : minute of the day at which the log begins
    The best that a schedule by hour of the day can do, known from the log itself: an upper bound.
    """
    hours = (first_minute + np.arange(len(demand))) // 60 % 24
    above = np.maximum(demand - base, 0.0)
    found = []
    for hour in np.unique(hours).tolist():
        part = above[hours == hour]
        best = optimum(part, hourly, value, increment if base else minimum, increment)
        saved = (value * float(part.mean()) - best.usd_per_month) * len(part) / len(demand)
        found.append(Hour(hour, best.units, saved))
    return found


def needed_price(term: Term, monthly_survival: float) -> float:
    """Return the price of a unit per month in which it is needed, USD, where the need may end after any month."""
    months = max(1, round(term.months))
    return term.usd_per_unit_month * months / expected_months(monthly_survival, months)


def abandoned(
    term: Term, units: int, months_needed: int, fee_share: float = 0.12, cap_usd: float = 50_000
) -> float | None:
    """Return the cost of a committed term that is cancelled early, USD; None where the refund is above the cap.

    Azure: what is left is refunded less a possible fee, while cancelled commitments stay within the cap in any twelve
    months.
    """
    left = units * term.usd_per_unit_month * (term.months - months_needed)
    if left > cap_usd:
        return None
    return units * term.usd_per_unit_month * months_needed + fee_share * left


def expected_months(monthly_survival: float, months: int) -> float:
    """Return how many of the next months a need that may end after each is there, the first included."""
    if monthly_survival >= 1:
        return float(months)
    return (1 - monthly_survival**months) / (1 - monthly_survival)


def survival_break_even(long: Term, short: Term) -> float | None:
    """Return the monthly survival at which both terms cost the same on average; None where one always wins."""
    months = round(long.months)
    wanted = long.usd_per_unit_month * long.months / short.usd_per_unit_month
    if not 1 < wanted < months:
        return None
    return float(brentq(lambda s: expected_months(s, months) - wanted, 1e-9, 1 - 1e-12, xtol=1e-12))


@dataclass(frozen=True, slots=True)
class Confidence:
    """How often resampled days save money.

    low_usd, high_usd : 5th and 95th percentile of the savings of all days together
    exact : every resample was counted; else so many were drawn
    """

    probability: float
    low_usd: float
    high_usd: float
    days: int
    exact: bool


def confidence(daily_savings_usd: Sequence[float], seed: int) -> Confidence:
    """Resample days with replacement and return how sure it is that their savings are above 0.

    All resamples are counted where they are at most a million, else 10,000 are drawn with the seed (Efron 1979).
    """
    days = np.asarray(daily_savings_usd, float)
    n = len(days)
    if n**n <= _EXACT_RESAMPLES:
        counted = Counter(math.fsum(draw) for draw in itertools.product(days.tolist(), repeat=n))
        totals = np.repeat(list(counted), list(counted.values()))
    else:
        drawn = np.random.default_rng(seed).integers(0, n, (_RESAMPLES, n))
        totals = days[drawn].sum(axis=1)
    low, high = np.quantile(totals, [0.05, 0.95])
    return Confidence(float((totals > 1e-9).mean()), float(low), float(high), n, n**n <= _EXACT_RESAMPLES)
