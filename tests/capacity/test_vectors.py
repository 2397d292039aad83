"""Worked examples of provisioned capacity, each checkable by hand; prices as of 2026-09-23 and 2026-10-09.

Counts are exact, ratios to 1e-6, dollars to a cent. A month is 730 hours.
"""

from fractions import Fraction

import numpy as np
import pytest

from pipeline.capacity import accounting, admission, economics, purchase, rates
from pipeline.capacity.admission import Replay
from pipeline.capacity.traffic import Traffic
from pipeline.config import Prices
from tests.capacity import build

MONTH_MINUTES = 43_800


def unit_of(settings: Prices) -> rates.Unit:
    unit = rates.offer(settings).unit
    assert unit is not None
    return unit


def terms_of(settings: Prices) -> dict[str, rates.Term]:
    return {term.name: term for term in rates.offer(settings).terms}


# Sizing and rounding: gpt-5.2, 1,000 calls a minute of 200 in and 20 out.


@pytest.mark.parametrize(("cached", "weighted", "raw", "near", "far"), [
    (0, 360, 105.8824, 110, 150),
    (100, 260, 76.4706, 80, 100),
])  # fmt: skip
def test_sizing_by_the_vendors_formula(cached, weighted, raw, near, far):
    settings = build.prices(model="gpt-5.2")
    unit = unit_of(settings)
    assert (unit.tokens_per_minute, unit.weights.output) == (3400, 8)
    assert accounting.weighted_tokens(unit.weights, 200 - cached, cached, 0, 20) == weighted
    needed = economics.raw_units(1000 * weighted, unit.tokens_per_minute)
    assert needed == pytest.approx(raw, abs=5e-5)
    for kind, size in (("global", near), ("datazone", near), ("regional", far)):
        unit = unit_of(build.prices(model="gpt-5.2", deployment_type=kind))
        assert economics.rounded(needed, unit.minimum, unit.increment) == size


@pytest.mark.parametrize(("kind", "units", "usd"), [
    ("global", 110, 28_600), ("datazone", 110, 31_460), ("regional", 150, 42_900),
])  # fmt: skip
def test_a_month_of_the_sized_units(kind, units, usd):
    term = terms_of(build.prices(model="gpt-5.2", deployment_type=kind))["1-month"]
    assert units * term.usd_per_unit_month == pytest.approx(usd, abs=0.01)


@pytest.mark.parametrize(("needed", "near", "far"), [(3, 15, 50), (110, 110, 150), (0, 0, 0), (110.0000001, 115, 150)])
def test_rounding(needed, near, far):
    assert economics.rounded(needed, 15, 5) == near
    assert economics.rounded(needed, 50, 50) == far


# Accounting by class: gpt-6-sol, 120 calls a minute; 6,000 read, 500 written, 1,500 plain, 400 out.


def test_every_class_of_token_has_its_weight():
    settings = build.prices(model="gpt-6-sol")
    offer = rates.offer(settings)
    unit = unit_of(settings)
    assert accounting.weighted_tokens(unit.weights, 1500, 6000, 500, 400) == 4725
    assert unit.long_context is not None
    assert accounting.weighted_tokens(unit.long_context, 1500, 6000, 500, 400) == 8450
    calls = build.trace([(0.5 * i, 8000, 400) for i in range(120)], cached_tokens=[6000] * 120,
                        cache_write_tokens=[500] * 120)  # fmt: skip
    found = build.demand(calls, settings)
    assert {build.exact(one, found.scale) for one in found.actual} == {Fraction(4725)}
    np.testing.assert_allclose(found.payg_usd, 0.00945, rtol=1e-12)
    market = purchase.market(Traffic.of(calls), offer, settings)
    assert market.units.tolist() == [pytest.approx(189.0, abs=1e-9)]
    assert economics.rounded(market.units[0], unit.minimum, unit.increment) == 190


def test_free_cache_reads_would_fall_short():
    settings = build.prices(model="gpt-6-sol", weight_cached=0, weight_cache_write=1)
    weights = unit_of(settings).weights
    assert accounting.weighted_tokens(weights, 1500, 6000, 500, 400) == 4000
    needed = economics.raw_units(120 * 4000, unit_of(settings).tokens_per_minute)
    assert economics.rounded(needed, 15, 5) == 160


# Break-even depends on the mix: gpt-4.1, 2 / 0.5 / 8.


@pytest.mark.parametrize(("cached", "weighted", "usd", "value", "shares"), [
    (0, 12_000, 0.024, 262.80, (2.77778, 0.98935, 0.84094)),
    (8_000, 4_000, 0.012, 394.20, (1.85185, 0.65956, 0.56063)),
])  # fmt: skip
def test_break_even_by_term(cached, weighted, usd, value, shares):
    settings = build.prices()
    output = 250 if cached == 0 else 500
    calls = build.trace([(0, 10_000, output)], cached_tokens=[cached])
    if cached == 0:
        calls = build.trace([(0, 10_000, 500)])
    market = purchase.market(Traffic.of(calls), rates.offer(settings), settings)
    assert build.exact(market.minutes.actual[0], market.minutes.scale) == weighted
    assert market.minutes.payg_usd[0] == pytest.approx(usd if cached else 0.024, abs=1e-12)
    assert market.value == pytest.approx(value, rel=1e-9)
    by_name = terms_of(settings)
    for name, share in zip(("hourly", "1-month", "1-year"), shares, strict=True):
        assert economics.break_even(by_name[name].usd_per_unit_month, market.value) == pytest.approx(share, abs=5e-6)


# Floor plus spill: ten equally likely minutes.

TEN = np.array([10, 10, 20, 20, 30, 30, 40, 40, 50, 100], float)


def test_used_share_of_each_unit():
    shares = economics.used_share(TEN, np.arange(1.0, 101.0))
    wanted = np.repeat([1.0, 0.8, 0.6, 0.4, 0.2, 0.1], [10, 10, 10, 10, 10, 50])
    np.testing.assert_allclose(shares, wanted, atol=1e-12)


@pytest.mark.parametrize(("term", "value", "alone", "alone_usd", "units", "usd", "mean_usd", "peak_usd"), [
    ("1-month", 262.80, 10, 9170.00, 0, 9198.00, 11_465.20, 26_000.00),
    ("1-year", 262.80, 10, 8780.00, 15, 8833.80, 10_100.20, 22_100.00),
    ("1-month", 394.20, 20, 11_901.40, 20, 11_901.40, 12_647.80, 26_000.00),
])  # fmt: skip
def test_the_marginal_unit_and_the_minimum(term, value, alone, alone_usd, units, usd, mean_usd, peak_usd):
    sold = terms_of(build.prices())[term]
    price = sold.usd_per_unit_month
    assert economics.marginal_units(TEN, price, value) == alone
    assert economics.cost(TEN, alone, price, value) == pytest.approx(alone_usd, abs=0.01)
    best = economics.optimum(TEN, sold, value, 15, 5)
    assert (best.units, best.usd_per_month) == (units, pytest.approx(usd, abs=0.01))
    assert economics.cost(TEN, 0, price, value) == pytest.approx(value * 35, abs=0.01)
    assert economics.cost(TEN, 35, price, value) == pytest.approx(mean_usd, abs=0.01)
    assert economics.cost(TEN, 100, price, value) == pytest.approx(peak_usd, abs=0.01)


def test_the_minimum_makes_nothing_the_best_purchase():
    by_name = terms_of(build.prices())
    assert economics.cost(TEN, 20, by_name["1-year"].usd_per_unit_month, 262.80) == pytest.approx(8887.60, abs=0.01)
    assert economics.cost(TEN, 15, by_name["1-month"].usd_per_unit_month, 262.80) == pytest.approx(9418.80, abs=0.01)


def test_price_per_million_tokens():
    sold = terms_of(build.prices())["1-year"]
    millions = 35 * 3000 * MONTH_MINUTES * 0.625 / 1e6
    assert millions == pytest.approx(2874.375, rel=1e-12)
    wanted = {0: (9198.00, 3.2, 1.0), 15: (8833.80, 3.073294, 0.6), 35: (10_100.20, 3.513877, 9 / 35),
              100: (22_100.00, 7.688628, 0.0)}  # fmt: skip
    for units, (usd, per_million, spilled) in wanted.items():
        plan = economics.plan(TEN, units, sold, 262.80)
        assert plan.usd_per_month == pytest.approx(usd, abs=0.01)
        assert plan.usd_per_month / millions == pytest.approx(per_million, rel=1e-6)
        assert plan.spilled_share == pytest.approx(spilled, rel=1e-6)


# Azure's leaky bucket: gpt-4.1, 15 units, 20,000 in, max_tokens 2,000, 500 out.


def leaky(seconds, durations, max_tokens=2000, **stated):
    """Return what happened to identical calls at these seconds, and the replay."""
    settings = build.prices(**stated)
    n = len(seconds)
    calls = build.trace([(s, 20_000, 500) for s in seconds], max_tokens=[max_tokens] * n,
                        obs_e2e_us=[round(1e6 * d) for d in durations])  # fmt: skip
    asked = build.demand(calls, settings)
    replay = Replay(unit_of(settings), settings, 15, asked.scale, build.MINUTE_US)
    trail = replay.feed(asked, trail=True)
    assert trail is not None
    return trail, replay.result()


def test_the_bucket_overshoots_refuses_and_corrects():
    # A ends at 10 s, B at 12 s.
    trail, result = leaky([0, 0, 1, 10.5, 13], [10, 12, 5, 60, 60])
    assert trail.decision == ["accepted", "accepted", "spilled", "accepted", "spilled"]
    assert trail.level == [0, 28_000, 55_250, 42_125, 62_250]
    assert trail.wait_ms == [0, 0, 13_667, 0, 23_000]
    assert (result.accepted, result.spilled, result.throttled) == (3, 2, 2)
    assert result.spilled_usd == pytest.approx(2 * 0.044, abs=1e-12)


def test_a_bucket_twice_as_deep_refuses_nothing():
    trail, _ = leaky([0, 0, 1, 10.5, 13], [10, 12, 5, 60, 60], bucket_s=120)
    assert trail.decision == ["accepted"] * 5


def test_a_smaller_max_tokens_is_enough():
    trail, _ = leaky([0, 0, 1], [10, 12, 5], max_tokens=500)
    assert trail.decision == ["accepted"] * 3
    assert trail.level == [0, 22_000, 43_250]


# Google's window: 3 units of gemini-3.5-flash, a window of 60 s.


def test_a_window_takes_whole_requests_and_gives_back():
    settings = Prices(provider="google", model="gemini-3.5-flash", window_s=60, max_tokens_policy="fixed",
                      fixed_max_tokens=2000)  # fmt: skip
    calls = build.trace([(0, 100_000, 500)] * 3 + [(30, 100_000, 500)], cached_tokens=[60_000] * 4,
                        obs_e2e_us=[5_000_000] * 4)  # fmt: skip
    asked = build.demand(calls, settings)
    assert build.exact(asked.estimate[0], asked.scale) == 58_000
    assert build.exact(asked.actual[0], asked.scale) == 49_000
    replay = Replay(unit_of(settings), settings, 3, asked.scale, build.MINUTE_US)
    trail = replay.feed(asked, trail=True)
    assert trail is not None
    assert trail.decision == ["accepted", "accepted", "spilled", "spilled"]
    assert trail.level == [121_500, 63_500, 5_500, 23_500]
    assert replay.result().spilled_weighted_tokens == 2 * 49_000
    # A fluid minute of the first three would have spilled 25,500 only.
    assert 3 * 49_000 - 121_500 == 25_500


# Terms and giving up.


def test_terms_against_each_other():
    near, zone, far = (terms_of(build.prices(deployment_type=kind)) for kind in ("global", "datazone", "regional"))
    for terms, hours, share in ((near, 260, 0.35616), (zone, 260, 0.35616), (far, 143, 0.19589)):
        even = terms["1-month"].usd_per_unit_month / (terms["hourly"].usd_per_unit_month / 730)
        assert even == pytest.approx(hours, rel=1e-9)
        assert even / 730 == pytest.approx(share, abs=5e-6)
    months = near["1-year"].usd_per_unit_month * 12 / near["1-month"].usd_per_unit_month
    assert months == pytest.approx(10.2, rel=1e-9)
    months = zone["1-year"].usd_per_unit_month * 12 / zone["1-month"].usd_per_unit_month
    assert months == pytest.approx(10.1958, rel=1e-5)


@pytest.mark.parametrize(("units", "hourly", "monthly", "kept", "cancelled"), [
    (20, 102_200, 36_400, 53_040, 33_592), (100, 511_000, 182_000, 265_200, None),
])  # fmt: skip
def test_a_need_of_seven_months(units, hourly, monthly, kept, cancelled):
    terms = terms_of(build.prices())
    assert 7 * units * terms["hourly"].usd_per_unit_month == pytest.approx(hourly, abs=0.01)
    assert 7 * units * terms["1-month"].usd_per_unit_month == pytest.approx(monthly, abs=0.01)
    assert 12 * units * terms["1-year"].usd_per_unit_month == pytest.approx(kept, abs=0.01)
    cost = economics.abandoned(terms["1-year"], units, 7)
    assert cost == (None if cancelled is None else pytest.approx(cancelled, abs=0.01))


def test_the_chance_to_last_at_which_a_year_pays():
    terms = terms_of(build.prices())
    survival = economics.survival_break_even(terms["1-year"], terms["1-month"])
    assert survival == pytest.approx(0.969903, abs=5e-7)
    # At that chance a month of need costs the same on both.
    year, month = (economics.needed_price(terms[name], survival) for name in ("1-year", "1-month"))
    assert year == pytest.approx(month, rel=1e-9)
    assert economics.needed_price(terms["1-year"], 1.0) == pytest.approx(221.0, rel=1e-12)


# Two products that are often confused.


@pytest.mark.parametrize(("model", "usd_in", "over_in", "usd_out", "over_out"), [
    ("gpt-5", 2.083333, 2 / 3, 16.666667, 2 / 3), ("gpt-4.1", 2.546296, 0.2731, 10.00, 0.25),
])  # fmt: skip
def test_scale_tier_at_full_use(model, usd_in, over_in, usd_out, over_out):
    row = next(r for r in rates.table("scale_tier") if r["model"] == model)
    payg = rates.offer(build.prices(model=model)).prices
    assert payg is not None
    for kind, usd, over, price in (("input", usd_in, over_in, payg.input), ("output", usd_out, over_out, payg.output)):
        millions = int(row[f"{kind}_tokens_per_minute"]) * 1440 / 1e6
        per_million = float(row[f"usd_per_{kind}_unit_day"]) / millions
        assert per_million == pytest.approx(usd, rel=1e-6)
        assert per_million / price - 1 == pytest.approx(over, abs=5e-5)


@pytest.mark.parametrize(("model", "usd", "over"), [("gpt-5", 1.249700, -0.0002), ("gpt-4.1", 1.978691, -0.0107)])
def test_an_azure_month_at_full_use(model, usd, over):
    settings = build.prices(model=model)
    unit, price = unit_of(settings), rates.offer(settings).prices
    assert price is not None
    millions = float(unit.tokens_per_minute) * MONTH_MINUTES / 1e6
    per_million = terms_of(settings)["1-month"].usd_per_unit_month / millions
    assert per_million == pytest.approx(usd, rel=1e-6)
    assert per_million / price.input - 1 == pytest.approx(over, abs=5e-5)


# Confidence by resampling days.


def test_three_days_resampled():
    sure = economics.confidence([-100, 50, 200], seed=0)
    assert sure.exact
    assert sure.days == 3
    assert sure.probability == pytest.approx(17 / 27, abs=1e-12)
    # Of the 27 totals in order the 5th percentile lies between -150 and -150, the 95th between 450 and 450.
    assert (sure.low_usd, sure.high_usd) == (-150, 450)


def test_a_sweep_is_each_size_alone():
    settings = build.prices()
    calls = build.trace([(i, 20_000 + 700 * i, 300) for i in range(50)])
    asked = build.demand(calls, settings)
    unit = unit_of(settings)
    together = admission.sweep(unit, settings, [0, 15, 40], [asked], build.MINUTE_US)
    for one in together:
        (alone,) = admission.sweep(unit, settings, [one.units], [asked], build.MINUTE_US)
        assert (alone.accepted, alone.spilled_usd, alone.minutes.tolist()) == (
            one.accepted, one.spilled_usd, one.minutes.tolist(),
        )  # fmt: skip
