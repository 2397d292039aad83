"""What would change the answer: growth, longer answers, caching, prices, and the rules that vendors do not publish."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scipy.optimize import bisect

from pipeline.capacity import purchase
from pipeline.capacity.purchase import Decision, Market
from pipeline.config import Prices

_LOW, _HIGH = 0.1, 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """One changed assumption and the purchase that is best under it.

    change : what is changed, in words; factor : by how much, None for a rule
    flips_at : factor nearest to 1 at which the answer changes between buying and not buying; None within 0.1 to 10
    """

    parameter: str
    change: str
    factor: float | None
    units: int
    term: str | None
    usd_per_month: float
    payg_usd_per_month: float
    spilled_share: float | None
    flips_at: float | None


_FACTORS: dict[str, tuple[str, Callable[[Market, float], Market], tuple[float, ...]]] = {
    "growth": ("traffic", lambda m, f: purchase.scaled(m, growth=f), (0.5, 0.8, 1.2, 1.5, 2.0)),
    "output": ("output tokens", lambda m, f: purchase.scaled(m, output=f), (0.5, 0.8, 1.25, 2.0)),
    "cached": ("cached input", lambda m, f: purchase.scaled(m, cached=f), (0.0, 0.5, 1.5)),
    "payg": ("pay-as-you-go prices", lambda m, f: purchase.repriced(m, payg=f), (0.5, 0.8, 0.9, 1.1)),
    "unit": ("prices of units", lambda m, f: purchase.repriced(m, unit=f), (0.7, 0.9, 1.1)),
}


def rows(decision: Decision) -> list[Row]:
    """Return the table of changed assumptions, in a fixed order."""
    market = decision.market
    terms = [term.name for term in market.offer.terms if term.name not in decision.withheld]
    found = [_row(market, terms, "as logged", "as logged", None, None)]
    cached = (market.seen.tokens.get("cached_tokens") or 0) > 0 and market.payg_usd_month > 0
    for name, (what, change, factors) in _FACTORS.items():
        if name == "cached" and not cached:
            continue
        at = _flip(market, terms, change)
        for factor in factors:
            found.append(_row(change(market, factor), terms, name, f"{what} x {factor:g}", factor, at))
    return found + list(_rules(decision))


def _row(
    market: Market, terms: list[str], parameter: str, change: str, factor: float | None, flips_at: float | None
) -> Row:
    best = purchase.fluid_best(market, terms)
    return Row(
        parameter, change, factor, best["units"], best["term"], best["usd_per_month"], best["payg_usd_per_month"],
        None, flips_at,
    )  # fmt: skip


def _flip(market: Market, terms: list[str], change: Callable[[Market, float], Market]) -> float | None:
    """Return the factor at which buying something begins or stops to be best, found by bisection, to 1 %."""

    def buys(factor: float) -> bool:
        return purchase.fluid_best(change(market, factor), terms)["units"] > 0

    now = buys(1.0)
    flips = []
    for end in (_LOW, _HIGH):
        if buys(end) != now:
            low, high = sorted((1.0, end))
            flips.append(float(bisect(lambda f: 1.0 if buys(f) == now else -1.0, low, high, rtol=0.01, xtol=0.005)))
    return min(flips, key=lambda f: max(f, 1 / f), default=None)


def _rules(decision: Decision) -> Iterator[Row]:
    """Replay the chosen size, or the smallest, under other admission rules."""
    market, chosen = decision.market, decision.chosen
    unit = market.offer.unit
    assert unit is not None
    term = chosen.term if chosen is not None else market.offer.terms[-1]
    units = chosen.units if chosen is not None else unit.minimum
    for change, prices in _settings(market.prices):
        (one,) = purchase.admit(market, prices, [units])
        usd = units * term.usd_per_unit_month + one.spilled_usd / market.months
        yield Row("rule", change, None, units, term.name, usd, market.payg_usd_month, one.spilled_share, None)


def _settings(prices: Prices) -> Iterator[tuple[str, Prices]]:
    def changed(**values: object) -> Prices:
        return prices.model_copy(update=values)

    if prices.provider == "azure":
        for depth_s in (10.0, 60.0, 120.0):
            yield f"bucket of {depth_s:g} s", changed(bucket_s=depth_s)
    elif prices.provider == "google":
        for window_s in (1.0, 5.0, 30.0, 60.0, 120.0):
            yield f"window of {window_s:g} s", changed(window_s=window_s)
    yield "output counted at admission: mean of the last 1,000", changed(max_tokens_policy="rolling_mean")
    for limit in (512, 4096):
        yield f"output counted at admission: {limit:,}", changed(max_tokens_policy="fixed", fixed_max_tokens=limit)
    yield "spill side knows the cache", changed(spill_cached_share=1.0)
    for retry in ("retry_after", "exponential"):
        yield f"no spill, clients retry ({retry.replace('_', '-')})", changed(overflow="refuse", retry=retry)
