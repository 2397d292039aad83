"""A decision from a trace: candidates, terms that a log is too short for, layers, hours, days, what would change it."""

import datetime as dt

import numpy as np
import polars as pl
import pytest

from pipeline.capacity import accounting, economics, own, purchase, rates, sensitivity, words
from pipeline.capacity.rates import Term
from pipeline.capacity.traffic import Traffic
from pipeline.errors import ConfigError, TraceError
from tests.capacity import build
from tests.replay import servecast

DAY = 1440
NOBODY = np.zeros(0, np.int64)
# gpt-4.1 with calls of input alone: 2 USD per million, 3,000 tokens a minute, so a busy unit saves 262.80 a month.
VALUE = 262.80


def market(units, **stated):
    settings = build.prices(**stated)
    return purchase.market(Traffic.of(build.minutes_of(units)), rates.offer(settings), settings)


def test_demand_has_every_minute_empty_ones_included():
    settings = build.prices()
    calls = build.trace([(0, 3000, 0), (59.9, 3000, 0), (300, 6000, 0)])
    found = purchase.market(Traffic.of(calls), rates.offer(settings), settings)
    assert found.units.tolist() == [2, 0, 0, 0, 0, 2]
    assert found.value == pytest.approx(VALUE, rel=1e-12)
    assert found.payg_usd_month == pytest.approx(12_000 * 2 / 1e6 / 6 * 43_800, rel=1e-12)


def test_the_recommended_purchase_is_the_cheapest_of_all_replayed():
    found = purchase.decide(market([20] * (30 * DAY), bucket_s=60))
    # Steady 20 units: a year at 221 is cheapest, and nothing spills.
    assert found.best is not None
    assert (found.best.units, found.best.term.name) == (20, "1-year")
    assert found.best.replayed_usd_month == pytest.approx(20 * 221, abs=0.01)
    assert found.withheld == {}
    assert found.confidence is not None
    assert (found.confidence.days, found.confidence.probability) == (30, 1.0)
    saved = found.market.payg_usd_month - 20 * 221
    assert sum(day[2] for day in found.daily_savings_usd) == pytest.approx(saved * 30 * 24 / 730, abs=0.01)


@pytest.mark.parametrize(("days", "withheld"), [(27, True), (28, False)])
def test_no_year_on_less_than_four_weeks(days, withheld):
    found = purchase.decide(market([20] * (days * DAY)))
    assert ("1-year" in found.withheld) is withheld
    assert found.best is not None
    assert found.best.term.name == ("1-month" if withheld else "1-year")
    if withheld:
        assert any("27.0 days; a yearly term is not recommended" in text for text in words.cautions(found))
        assert any("20 PTU for a year would cost USD 4,420 a month" in text for text in words.cautions(found))


def test_nothing_is_bought_where_nothing_saves():
    found = purchase.decide(market([10, 0, 0, 0] * 60))
    assert found.best is None
    assert found.confidence is None
    assert words.recommendation(found).startswith("Buy no capacity for gpt-4.1")


def test_a_need_that_may_end_weighs_on_the_year():
    steady = [20] * (30 * DAY)
    # At 0.969903 both cost the same; below it the month wins, at 260 a unit against 262.80.
    assert purchase.decide(market(steady, monthly_survival=0.98)).best.term.name == "1-year"
    found = purchase.decide(market(steady, monthly_survival=0.96))
    assert found.best is not None
    assert found.best.term.name == "1-month"
    year = next(c for c in found.candidates if c.term.name == "1-year" and c.units == 20)
    assert year.expected_usd_month == pytest.approx(20 * 2652 / ((1 - 0.96**12) / 0.04), rel=1e-9)
    assert any("chance of 96 % to last" in text for text in words.cautions(found))


def test_habits_are_priced_beside_the_optimum():
    found = purchase.decide(market([10, 10, 20, 20, 30, 30, 40, 40, 50, 100] * DAY))
    assert found.habits == {"mean": 35, "peak": 100}
    assert {35, 100} <= {one.units for one in found.admitted}


def test_fluid_costs_are_the_marginal_rule():
    found = purchase.decide(market([10, 10, 20, 20, 30, 30, 40, 40, 50, 100] * DAY))
    by_size = {c.units: c for c in found.candidates if c.term.name == "1-year"}
    assert by_size[15].fluid_usd_month == pytest.approx(8833.80, abs=0.01)
    assert by_size[35].fluid_usd_month == pytest.approx(10_100.20, abs=0.01)


def test_the_long_term_gets_what_every_week_needs():
    term = Term("1-year", 12, 221, "", "", None), Term("1-month", 1, 230, "", "", None)
    weeks = np.repeat([20.0, 60.0, 60.0, 60.0], 7 * DAY)
    found = economics.layers(weeks, term, VALUE, 15, 5)
    # The first week needs 20 only; 60 work three weeks of four, which is too little at 230 (87.5 %).
    assert [(plan.term, plan.units) for plan in found] == [("1-year", 20)]
    cheap = Term("1-year", 12, 150, "", "", None), Term("1-month", 1, 190, "", "", None)
    found = economics.layers(weeks, cheap, VALUE, 15, 5)
    # 190 of 262.80 is 72.3 %, so 40 more pay by the month.
    assert [(plan.term, plan.units) for plan in found] == [("1-year", 20), ("1-month", 60)]


def test_units_by_the_hour_where_an_hour_is_busy():
    hourly = Term("hourly", 0, 730 * 0.30, "", "", None)
    day = np.repeat([20.0] * 12 + [50.0] * 2 + [20.0] * 10, 60)
    found = economics.hourly_top(np.tile(day, 3), 90, 20, hourly, VALUE, 15, 5)
    assert len(found) == 24
    # The log begins at 01:30, so its hours 12 and 13 are half past 13 to half past 15.
    busy = {one.hour: one for one in found if one.units}
    assert {hour: one.units for hour, one in busy.items()} == {14: 30}
    # 30 units, an hour a day: worth 0.36 an hour each, for 0.30.
    assert busy[14].saved_usd_month == pytest.approx(30 * (0.36 - 0.30) * 730 / 24, rel=1e-9)
    assert all(one.saved_usd_month == pytest.approx(0, abs=1e-9) for one in found if not one.units)


def test_growth_scales_demand_and_price():
    plain = market([10, 20, 30])
    more = purchase.scaled(plain, growth=2.0)
    assert more.units.tolist() == [20, 40, 60]
    assert more.payg_usd_month == pytest.approx(2 * plain.payg_usd_month, rel=1e-12)


def test_longer_answers_and_less_cache():
    settings = build.prices()
    calls = build.trace([(0, 10_000, 500)], cached_tokens=[8000])
    plain = purchase.market(Traffic.of(calls), rates.offer(settings), settings)
    assert plain.units.tolist() == [4000 / 3000]
    assert purchase.scaled(plain, output=2.0).units.tolist() == [6000 / 3000]
    assert purchase.scaled(plain, cached=0.5).units.tolist() == [8000 / 3000]
    # No more can be cached than the prompt has.
    assert purchase.scaled(plain, cached=2.0).units.tolist() == [2000 / 3000]


def test_where_the_decision_flips():
    found = sensitivity.rows(purchase.decide(market([20] * (30 * DAY))))
    by_name = {row.parameter: row for row in found if row.parameter != "rule"}
    # A year at 221 pays while a busy unit saves as much: at 221 / 262.80 of the pay-as-you-go price, and at its inverse
    # for the price of a unit. Traffic may shrink to the minimum of 15 units at 221 against 262.80 each.
    assert by_name["payg"].flips_at == pytest.approx(221 / VALUE, rel=0.02)
    assert by_name["unit"].flips_at == pytest.approx(VALUE / 221, rel=0.02)
    assert by_name["growth"].flips_at == pytest.approx(15 * 221 / VALUE / 20, rel=0.02)
    assert found[0].change == "as logged"
    assert (found[0].units, found[0].term) == (20, "1-year")


def test_rules_that_nobody_publishes_are_tried():
    found = [row for row in sensitivity.rows(purchase.decide(market([20, 40] * (15 * DAY)))) if row.parameter == "rule"]
    said = [row.change for row in found]
    assert [text for text in said if "bucket of" in text] == ["bucket of 10 s", "bucket of 60 s", "bucket of 120 s"]
    depths = {row.change: row.spilled_share for row in found if "bucket" in row.change}
    assert depths["bucket of 10 s"] >= depths["bucket of 60 s"] >= depths["bucket of 120 s"]
    assert {"no spill, clients retry (retry-after)", "no spill, clients retry (exponential)"} <= set(said)


def test_a_spill_side_that_knows_the_cache_is_cheaper():
    settings = build.prices()
    calls = build.trace([(0, 100_000, 10)] * 4, cached_tokens=[80_000] * 4)
    market = purchase.market(Traffic.of(calls), rates.offer(settings), settings)
    # A bucket of almost no depth refuses what comes while another call is counted.
    strange, known = (
        purchase.admit(market, settings.model_copy(update={"spill_cached_share": share, "bucket_s": 0.001}), [15])[0]
        for share in (0.0, 1.0)
    )
    each = strange.spilled
    assert each == known.spilled > 0
    assert strange.spilled_usd == pytest.approx(each * (100_000 * 2 + 10 * 8) / 1e6, rel=1e-12)
    assert known.spilled_usd == pytest.approx(each * (20_000 * 2 + 80_000 * 0.5 + 10 * 8) / 1e6, rel=1e-12)


def test_output_counted_at_admission():
    calls = build.trace([(0, 10, 100), (1, 10, 301), (2, 10, 7)], max_tokens=[None, 50, None])
    assert accounting.admitted_output(calls, build.prices(), NOBODY).tolist() == [100, 50, 201]
    rolling = build.prices(max_tokens_policy="rolling_mean")
    assert accounting.admitted_output(calls, rolling, NOBODY).tolist() == [100, 100, 201]
    fixed = build.prices(max_tokens_policy="fixed", fixed_max_tokens=512)
    assert accounting.admitted_output(calls, fixed, NOBODY).tolist() == [512] * 3


def test_a_long_prompt_is_charged_at_its_class():
    settings = build.prices(model="gpt-6-sol")
    offer = rates.offer(settings)
    assert offer.unit is not None
    limit = offer.unit.long_context_tokens
    assert limit is not None
    found = build.demand(build.trace([(0, limit, 100), (1, limit + 1, 100)]), settings)
    assert build.exact(found.actual[0], found.scale) == limit + 500
    assert build.exact(found.actual[1], found.scale) == 2 * (limit + 1) + 750
    assert found.payg_usd[0] == pytest.approx((2 * limit + 1000) / 1e6, rel=1e-12)
    assert found.payg_usd[1] > 1.9 * found.payg_usd[0]


def test_the_spill_side_does_not_know_the_cache():
    calls = build.trace([(0, 10_000, 500)], cached_tokens=[8000])
    assert build.demand(calls, build.prices()).spill_usd[0] == pytest.approx(0.024, rel=1e-12)
    assert build.demand(calls, build.prices(spill_cached_share=1.0)).spill_usd[0] == pytest.approx(0.012, rel=1e-12)


def test_more_cached_than_sent_is_named_with_its_row():
    calls = build.trace([(0, 10, 1), (1, 10, 1)], cached_tokens=[0, 11])
    with pytest.raises(TraceError, match=r"row 1 of the trace: .* = 11 is more than input_tokens = 10"):
        build.demand(calls, build.prices())


def test_an_empty_trace_cannot_be_priced():
    with pytest.raises(TraceError, match="no request of the trace can be counted"):
        purchase.market(Traffic.of(build.trace([])), rates.offer(build.prices()), build.prices())


def test_requests_without_load_do_not_count():
    calls = build.trace([(0, 3000, 0), (1, 3000, 0)]).with_columns(replayable=pl.Series([True, False]))
    settings = build.prices()
    assert purchase.market(Traffic.of(calls), rates.offer(settings), settings).seen.requests == 1


def test_the_hour_of_the_day_is_that_of_the_log():
    first = dt.datetime(2026, 3, 10, 23, 30, tzinfo=dt.UTC)
    calls = build.minutes_of([20] * 60).with_columns(
        arrival_time=pl.Series([first + dt.timedelta(minutes=i) for i in range(60)])
    )
    settings = build.prices()
    found = purchase.decide(purchase.market(Traffic.of(calls), rates.offer(settings), settings))
    assert [one.hour for one in found.hours] == [0, 23]


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 8, 13, 100, 255, 256])
def test_the_fewest_replicas(needed):
    asked = []

    def keeps(n):
        asked.append(n)
        return n >= needed

    assert own.fewest(keeps) == needed
    assert len(asked) == len(set(asked)) <= 17


def test_too_many_replicas_is_none():
    assert own.fewest(lambda n: n > 256) is None


def test_prices_of_own_gpus():
    stated = build.prices(usd_per_gpu_hour=2.5, usd_per_gpu_hour_reserved=1.5)
    assert [(t["term"], t["usd_per_gpu_hour"]) for t in own.gpu_terms("h100-80gb-sxm", stated)] == [
        ("on-demand", 2.5), ("reserved", 1.5),
    ]  # fmt: skip
    listed = own.gpu_terms("h100-80gb-sxm", build.prices())
    assert listed
    assert all("Azure" in t["source"] for t in listed)
    assert own.gpu_terms("tpu-v9", build.prices()) == []
    with pytest.raises(ConfigError, match=r"prices\.gpu_provider = 'Acme'"):
        own.gpu_terms("h100-80gb-sxm", build.prices(gpu_provider="Acme"))


@pytest.mark.parametrize("stated", [{}, {"overflow": "refuse", "retry": "exponential"}])
def test_a_log_in_pieces_gives_the_same_purchase(stated):
    settings = build.prices(bucket_s=5, **stated)
    calls = build.trace(
        [(7.3 * i, 3000 + 977 * (i * i % 61), 1 + 37 * (i % 11)) for i in range(1500)],
        cached_tokens=[i % 1000 for i in range(1500)],
        max_tokens=[None if i % 3 else 500 for i in range(1500)],
    )
    whole, cut = (
        purchase.decide(purchase.market(Traffic.of(calls, rows), rates.offer(settings), settings)) for rows in (9999, 7)
    )
    assert (cut.market.units == whole.market.units).all()
    assert [c.units for c in cut.candidates] == [c.units for c in whole.candidates]
    assert cut.best == whole.best or cut.best.units == whole.best.units
    for one, other in zip(cut.admitted, whole.admitted, strict=True):
        assert (one.accepted, one.throttled, one.delay_s) == (other.accepted, other.throttled, other.delay_s)
        assert one.spilled_usd == pytest.approx(other.spilled_usd, rel=1e-12)
    assert sensitivity.rows(cut)[3].units == sensitivity.rows(whole)[3].units


def test_only_the_rows_that_are_asked_for_are_read_from_a_file(tmp_path):
    trace = servecast.trace(tmp_path / "t.parquet", "0us 100>20 times=4, 60s 100>20 times=5, 120s 3000>20 times=1")
    settings = build.prices()
    asked = {None: 10, "input_tokens < 1000": 9, "input_tokens > 1000": 1}
    for where, count in asked.items():
        found = purchase.market(Traffic.stored(trace, where), rates.offer(settings), settings)
        assert found.seen.requests == count
