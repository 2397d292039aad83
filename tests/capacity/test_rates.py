"""Rates and prices: what is published, what is stated instead, what is withheld, what has aged."""

import datetime as dt
import re
from fractions import Fraction

import pytest

from pipeline.capacity import rates
from pipeline.config import Prices
from pipeline.errors import ConfigError
from tests.capacity import build


def test_every_table_names_a_known_source():
    known = {row["source"] for row in rates.table("sources")}
    for name in rates.TABLES:
        for row in rates.table(name):
            assert set(re.split(" *[,;/] +", row["source"])) <= known, (name, row)


@pytest.mark.parametrize("provider", ["azure", "google", "openai", "anthropic", "bedrock"])
def test_every_model_gives_an_offer_or_a_reason(provider):
    for model in rates.models(provider):
        found = rates.offer(Prices(provider=provider, model=model))
        assert (found.unit is None) == ("unit" in found.withheld), model
        assert (not found.terms) == ("terms" in found.withheld), model
        assert (found.prices is None) == ("prices" in found.withheld), model


def test_azure_publishes_64_models():
    assert len({row["model"] for row in rates.table("units") if row["provider"] == "azure"}) == 64


def test_what_is_stated_replaces_what_is_published():
    stated = build.prices(
        tokens_per_minute_per_unit=2500, weight_cached=0.1, weight_output=5, minimum_units=10, increment_units=1,
        usd_per_1m_input=1.5, usd_per_1m_output=6, usd_per_unit_month=200, usd_per_unit_month_1_year=150,
        usd_per_unit_hour=0.5,
    )  # fmt: skip
    found = rates.offer(stated)
    unit = found.unit
    assert unit is not None
    assert (unit.tokens_per_minute, unit.weights.cached, unit.weights.output) == (2500, Fraction(1, 10), 5)
    assert (unit.minimum, unit.increment, unit.source) == (10, 1, rates.STATED)
    assert {t.name: t.usd_per_unit_month for t in found.terms} == {"hourly": 365.0, "1-month": 200, "1-year": 150}
    assert {t.source for t in found.terms} == {rates.STATED}
    assert found.prices is not None
    assert (found.prices.input, found.prices.cached, found.prices.output) == (1.5, 0.5, 6)
    assert found.prices.source == rates.STATED


def test_a_measured_rate_may_be_stated_per_month():
    found = rates.offer(build.prices(tokens_per_unit_month=3000 * 60 * 730)).unit
    assert found is not None
    assert found.tokens_per_minute == 3000


def test_a_model_of_ones_own_needs_no_table():
    found = rates.offer(
        Prices(model="our-own", tokens_per_minute_per_unit=1000, weight_output=4, usd_per_1m_input=1,
               usd_per_1m_output=4, usd_per_unit_month=100)
    )  # fmt: skip
    assert found.model == "our-own"
    # Azure's prices of units do not depend on the model, so hourly and yearly terms are there as well.
    assert {t.name: t.usd_per_unit_month for t in found.terms}["1-month"] == 100
    assert not found.withheld


def test_nothing_is_guessed_where_the_vendor_is_silent():
    found = rates.offer(Prices(provider="bedrock", model=rates.models("bedrock")[0]))
    assert found.unit is None
    assert "account team" in found.withheld["unit"]
    assert "prices.tokens_per_minute_per_unit" in found.withheld["unit"]


def test_two_budgets_have_the_vendors_weights():
    found = rates.offer(
        Prices(provider="anthropic", model="claude-sonnet-4-5", tokens_per_minute_per_unit=1000,
               output_tokens_per_minute_per_unit=200, usd_per_unit_month=10)
    ).unit  # fmt: skip
    assert found is not None
    assert (found.weights.cached, found.weights.cache_write, found.weights.output) == (
        Fraction(1, 10), Fraction(5, 4), 1,
    )  # fmt: skip
    assert found.long_context_tokens == 200_000
    assert found.long_context is not None
    assert (found.long_context.input, found.long_context.output) == (2, Fraction(3, 2))


def test_half_a_pair_of_budgets_is_no_rate():
    with pytest.raises(ConfigError, match=r"prices\.tokens_per_minute_per_unit, for input, is missing"):
        rates.offer(Prices(provider="anthropic", model="claude-sonnet-4-5", usd_per_1m_input=3,
                           output_tokens_per_minute_per_unit=200))  # fmt: skip


def test_a_slip_of_the_pen_gets_near_names():
    with pytest.raises(ConfigError, match=r"'gpt-4\.2'.*did you mean .*gpt-4\.1"):
        rates.offer(build.prices(model="gpt-4.2"))


def test_case_does_not_matter():
    assert rates.offer(build.prices(model="GPT-4.1")).model == "gpt-4.1"


def test_no_model_is_an_error_that_says_where_to_look():
    with pytest.raises(ConfigError, match="servecast prices"):
        rates.offer(Prices())


@pytest.mark.parametrize(("as_of", "days", "old"), [
    ("2026-09-23", 69, False), ("2026-09-23", 90, False), ("2026-09-23", 91, True),
    ("2026", -200, False), ("2026-03", 91, True), (None, 0, True), ("", 0, True),
])  # fmt: skip
def test_a_price_ages(as_of, days, old):
    dated = {"2026-09-23": dt.date(2026, 9, 23), "2026": dt.date(2026, 12, 28), "2026-03": dt.date(2026, 3, 28)}
    assert rates.aged(as_of, dated.get(as_of, dt.date(2026, 12, 1)) + dt.timedelta(days)) is old
