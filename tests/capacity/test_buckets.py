"""Admission equals its plain twin, request by request, whole or in pieces."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.capacity import admission, rates
from pipeline.capacity.accounting import Demand
from pipeline.capacity.admission import Replay
from pipeline.errors import ConfigError
from tests.capacity import build, twin

# Times from a coarse grid, so that events often fall on one moment.
MOMENTS = st.integers(0, 40).map(lambda n: 250_000 * n)
TOKENS = st.integers(0, 60_000)
CALLS = st.lists(st.tuples(MOMENTS, MOMENTS, TOKENS, TOKENS, st.booleans(), TOKENS, TOKENS), min_size=1, max_size=30)
CLIENTS = st.one_of(
    st.just({}),
    st.just({"overflow": "refuse"}),
    st.builds(
        lambda retry, most: {"overflow": "refuse", "retry": retry, "max_retries": most},
        st.sampled_from(["retry_after", "exponential"]),
        st.integers(0, 4),
    ),
)


def as_demand(calls, scale, two):
    calls = sorted(calls, key=lambda call: call[0])
    columns = [np.array(column, np.int64) for column in zip(*calls, strict=True)]
    arrival, duration, estimate, actual, long, second_estimate, second_actual = columns
    none = np.zeros(0, np.int64)
    return Demand(
        arrival_us=arrival, duration_us=duration, estimate=estimate * scale, actual=actual * scale,
        second_estimate=second_estimate * scale if two else none, second_actual=second_actual * scale if two else none,
        raw_tokens=estimate, payg_usd=actual / 1e6, spill_usd=actual / 1e6, served=long == 0, scale=scale,
    )  # fmt: skip


def rules_of(chosen, rates_per_s, **rest):
    return twin.Rules(
        rates_per_s, spill=chosen.overflow == "spill", retry=chosen.retry, max_retries=chosen.max_retries, **rest
    )


def as_calls(demand):
    def budget(estimate, actual, row):
        return Fraction(int(estimate[row]), demand.scale), Fraction(int(actual[row]), demand.scale)

    return [
        twin.Call(
            int(demand.arrival_us[row]),
            int(demand.duration_us[row]),
            [budget(demand.estimate, demand.actual, row)]
            + ([budget(demand.second_estimate, demand.second_actual, row)] if len(demand.second_estimate) else []),
            bool(demand.served[row]),
        )
        for row in range(len(demand))
    ]


def agree(demand, unit, chosen, units, rules):
    replay = Replay(unit, chosen, units, demand.scale, 100 * build.MINUTE_US)
    trail = replay.feed(demand, trail=True)
    wanted = twin.admit(as_calls(demand), rules)
    assert trail is not None
    assert trail.decision == wanted.decision
    assert trail.wait_ms == wanted.wait_ms
    np.testing.assert_allclose(trail.level, [float(level) for level in wanted.level], rtol=1e-12, atol=1e-9)
    result = replay.result()
    assert result.throttled == wanted.throttled
    spilled = wanted.decision.count("spilled")
    assert result.delay_s == pytest.approx(wanted.delay_us / 1e6 + spilled * chosen.spill_delay_ms / 1e3, rel=1e-12)
    counts = [result.accepted, result.spilled, result.refused]
    assert counts == [wanted.decision.count(name) for name in ("accepted", "spilled", "refused")]
    left = [d != "accepted" for d in wanted.decision]
    assert result.spilled_weighted_tokens == pytest.approx(float(demand.actual[left].sum()) / demand.scale, rel=1e-12)
    assert result.spilled_raw_tokens == demand.raw_tokens[left].sum()
    served = np.zeros(100)
    for row, at in enumerate(wanted.admitted_us):
        if at is not None:
            served[min(at // build.MINUTE_US, 99)] += demand.actual[row] / demand.scale
    np.testing.assert_allclose(result.minutes, served, rtol=1e-12)


@settings(max_examples=150, deadline=None)
@given(CALLS, st.integers(1, 40), st.sampled_from([1, 4, 7]), CLIENTS, st.sampled_from([10, 60, 120]))
def test_the_leaky_bucket_is_the_twins(calls, units, scale, client, depth_s):
    chosen = build.prices(bucket_s=depth_s, **client)
    unit = rates.offer(chosen).unit
    rules = rules_of(chosen, [Fraction(units * 3000, 60)], depth_s=Fraction(depth_s))
    agree(as_demand(calls, scale, False), unit, chosen, units, rules)


@settings(max_examples=150, deadline=None)
@given(CALLS, st.integers(1, 40), st.sampled_from([1, 4]), CLIENTS, st.sampled_from([1, 5, 60]), st.integers(0, 7))
def test_windows_are_the_twins(calls, units, scale, client, window_s, phase):
    chosen = build.prices(provider="google", model="gemini-3.5-flash", window_s=window_s, window_phase_s=phase / 4,
                          **client)  # fmt: skip
    unit = rates.offer(chosen).unit
    assert unit is not None
    per_s = units * unit.tokens_per_minute / 60
    rules = rules_of(chosen, [per_s], window_us=window_s * 1_000_000, phase_us=250_000 * phase)
    agree(as_demand(calls, scale, False), unit, chosen, units, rules)


@settings(max_examples=100, deadline=None)
@given(CALLS, st.integers(1, 3), CLIENTS)
def test_two_budgets_are_the_twins(calls, units, client):
    chosen = build.prices(provider="anthropic", model="claude-opus-4-5", tokens_per_minute_per_unit=30_000,
                          output_tokens_per_minute_per_unit=20_000, usd_per_1m_input=5, usd_per_1m_output=25,
                          **client)  # fmt: skip
    unit = rates.offer(chosen).unit
    rules = rules_of(chosen, [Fraction(units * 500), Fraction(units * 20_000, 60)], window_us=60_000_000)
    agree(as_demand(calls, 1, True), unit, chosen, units, rules)


@settings(max_examples=100, deadline=None)
@given(CALLS, st.integers(1, 9), st.sampled_from(["azure", "google"]), CLIENTS)
def test_pieces_are_the_whole(calls, rows, provider, client):
    model = {"azure": "gpt-4.1", "google": "gemini-3.5-flash"}[provider]
    chosen = build.prices(provider=provider, model=model, **client)
    unit = rates.offer(chosen).unit
    asked = as_demand(calls, 4, False)
    (whole,) = admission.sweep(unit, chosen, [15], [asked], build.MINUTE_US)
    (cut,) = admission.sweep(unit, chosen, [15], admission.pieces(asked, rows), build.MINUTE_US)
    for name in ("requests", "accepted", "spilled", "refused", "throttled", "delay_s", "weighted_tokens",
                 "spilled_weighted_tokens", "spilled_raw_tokens"):  # fmt: skip
        assert getattr(cut, name) == getattr(whole, name), name
    assert cut.minutes.tolist() == whole.minutes.tolist()
    assert cut.spilled_usd == pytest.approx(whole.spilled_usd, rel=1e-12)


def test_a_log_begins_with_the_bucket_as_its_end_leaves_it():
    chosen = build.prices()
    # One call of 60,000 tokens: 15 units drain 750 a second, so after 60 s 15,000 are left.
    asked = build.demand(build.trace([(59, 60_000, 1)], obs_e2e_us=[1]), chosen)
    replay = Replay(rates.offer(chosen).unit, chosen, 15, asked.scale, build.MINUTE_US)
    replay.warm(admission.shifted(asked, build.MINUTE_US))
    assert replay.result().requests == 0
    again = build.demand(build.trace([(0, 100, 1)], obs_e2e_us=[1]), chosen)
    trail = replay.feed(again, trail=True)
    assert trail is not None
    assert trail.level == [60_000 + 4 - 750]


def test_without_units_everything_is_pay_as_you_go_and_loses_no_time():
    chosen = build.prices()
    asked = build.demand(build.trace([(0, 1000, 100), (1, 1000, 100)]), chosen)
    (none,) = admission.sweep(rates.offer(chosen).unit, chosen, [0], [asked], build.MINUTE_US)
    assert (none.spilled, none.throttled, none.delay_s) == (2, 0, 0)
    assert none.spilled_usd == pytest.approx(2 * (1000 * 2 + 100 * 8) / 1e6, rel=1e-12)
    # What the log says was cached is cached there, since nothing was elsewhere.
    asked = build.demand(build.trace([(0, 1000, 100)], cached_tokens=[800]), chosen)
    (none,) = admission.sweep(rates.offer(chosen).unit, chosen, [0], [asked], build.MINUTE_US)
    assert none.spilled_usd == pytest.approx((200 * 2 + 800 * 0.5 + 100 * 8) / 1e6, rel=1e-12)


def test_a_prompt_above_the_limit_is_never_served():
    chosen = build.prices()
    unit = rates.offer(chosen).unit
    assert unit is not None
    assert unit.refused_above_tokens == 128_000
    asked = build.demand(build.trace([(0, 128_000, 1), (100, 128_001, 1)]), chosen)
    replay = Replay(unit, chosen, 100, asked.scale, 2 * build.MINUTE_US)
    trail = replay.feed(asked, trail=True)
    assert trail is not None
    assert trail.decision == ["accepted", "spilled"]
    assert replay.result().throttled == 0


def test_a_purchase_too_large_to_count_is_refused():
    chosen = build.prices(bucket_s=1e6)
    with pytest.raises(ConfigError, match="too many to be counted exactly"):
        Replay(rates.offer(chosen).unit, chosen, 10**13, 1, build.MINUTE_US)
