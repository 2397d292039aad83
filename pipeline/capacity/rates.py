"""Rates and prices: published ones from `data/`, each with source and date, and what the user states instead.

An `Offer` is everything the arithmetic needs to know of one model at one vendor. A value that nobody published is
None, with a reason in `withheld`; arithmetic that needs it is withheld as well.
"""

import csv
import datetime as dt
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources

from pipeline.config import Prices
from pipeline.errors import ConfigError

AGED_DAYS = 90
STATED = "stated in the configuration"
TABLES = {
    "units": "what a provisioned unit serves, and how many can be bought",
    "unit_prices": "what a unit costs, by term",
    "token_prices": "pay-as-you-go prices",
    "scale_tier": "OpenAI Scale Tier: two units, input and output",
    "model_units": "AWS Bedrock model units",
    "gpu_hours": "own GPUs by the hour",
    "tiers": "other reserved, priority and flexible tiers, and how they overflow",
}
_PRODUCTS = {
    "azure": "Azure provisioned throughput",
    "google": "Google Provisioned Throughput",
    "openai": "OpenAI Scale Tier",
    "anthropic": "Anthropic Priority Tier",
    "bedrock": "AWS Bedrock",
}


# Cached and written input tokens, and whether long prompts count more: Anthropic's service tiers and Bedrock's
# Reserved tier, as in data/tiers.csv.
_TWO_BUDGETS = {
    "anthropic": (Fraction(1, 10), Fraction(5, 4), True),
    "bedrock": (Fraction(0), Fraction(1), False),
}


@dataclass(frozen=True, slots=True)
class Weights:
    """What a token of each class counts, in plain input tokens."""

    input: Fraction
    cached: Fraction
    cache_write: Fraction
    output: Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """What one unit serves.

    tokens_per_minute : weighted tokens; for two budgets, input tokens, with `output_tokens_per_minute` beside
    long_context      : weights of a request whose prompt has more than `long_context_tokens`
    """

    name: str
    tokens_per_minute: Fraction
    weights: Weights
    minimum: int
    increment: int
    output_tokens_per_minute: Fraction | None = None
    long_context_tokens: int | None = None
    long_context: Weights | None = None
    refused_above_tokens: int | None = None
    tokens_per_s: float | None = None
    source: str = ""
    as_of: str | None = None
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """What a unit costs for how long. A term of 0 months is paid by the hour and can end at any time."""

    name: str
    months: float
    usd_per_unit_month: float
    cancellation: str
    source: str
    as_of: str | None


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Pay-as-you-go prices in USD per million tokens, above `from_tokens` of prompt."""

    input: float
    cached: float
    cache_write: float
    output: float
    source: str
    as_of: str | None


@dataclass(frozen=True, slots=True)
class Offer:
    """One model at one vendor: unit, terms, pay-as-you-go prices, and what is not known of them.

    withheld : why a part is missing: unit, terms or prices
    remarks  : what a reader must know of a value that is used, and which tokens it concerns: cached, cache_write, all
    """

    provider: str
    product: str
    model: str
    deployment_type: str
    region: str | None
    unit: Unit | None
    terms: tuple[Term, ...]
    prices: TokenPrices | None
    long_prices: TokenPrices | None
    hours_per_month: float
    withheld: Mapping[str, str]
    remarks: tuple[tuple[str, str], ...]

    @property
    def minutes_per_month(self) -> float:
        """Length of a month in minutes."""
        return 60 * self.hours_per_month


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a data file; empty cells are unknown."""
    text = resources.files("pipeline.capacity").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def offer(prices: Prices) -> Offer:
    """Put together what is published for the chosen model and what the configuration states instead.

    Raises ConfigError for a model that no table has where nothing is stated that could replace its rates.
    """
    if prices.model is None:
        raise ConfigError("prices.model is not set: name the model that serves the traffic (see `servecast prices`)")
    withheld: dict[str, str] = {}
    remarks: list[tuple[str, str]] = []
    name = _known(prices)
    unit = _unit(prices, name, withheld, remarks)
    terms = _terms(prices, name, withheld)
    tokens = _token_prices(prices, name, "standard", withheld, remarks)
    long = _token_prices(prices, name, "long-context", {}, [])
    return Offer(
        prices.provider, _PRODUCTS[prices.provider], name, prices.deployment_type, prices.region, unit, terms, tokens,
        long, prices.hours_per_month, withheld, tuple(remarks),
    )  # fmt: skip


def models(provider: str) -> list[str]:
    """Return the models of which anything is known at a vendor."""
    if provider == "bedrock":
        return sorted({row["model"] for row in table("model_units")})
    rows = [*table("units"), *table("token_prices")]
    return sorted({row["model"] for row in rows if row["provider"] == provider})


def _known(prices: Prices) -> str:
    """Return the model as the tables spell it; a model that is stated in full needs no table."""
    assert prices.model is not None
    known = {name.lower(): name for name in models(prices.provider)}
    found = known.get(prices.model.lower())
    if found is not None or _is_stated(prices):
        return found or prices.model
    near = difflib.get_close_matches(prices.model.lower(), known, 3)
    hint = f"; did you mean {' or '.join(known[n] for n in near)}?" if near else ""
    raise ConfigError(
        f"prices.model = {prices.model!r}: {prices.provider} publishes nothing of that name{hint}; `servecast prices` "
        "lists what is known, or state prices.tokens_per_minute_per_unit and the prices yourself"
    )


def _is_stated(prices: Prices) -> bool:
    return _stated_rate(prices) is not None or prices.usd_per_1m_input is not None


def _stated_rate(prices: Prices) -> Fraction | None:
    """Return weighted tokens per minute and unit, to a hundredth, as the configuration has them."""
    rate = prices.tokens_per_minute_per_unit
    if rate is None and prices.tokens_per_unit_month is not None:
        rate = prices.tokens_per_unit_month / (60 * prices.hours_per_month)
    return None if rate is None else Fraction(round(100 * rate), 100)


def _unit(prices: Prices, model: str, withheld: dict[str, str], remarks: list[tuple[str, str]]) -> Unit | None:
    if prices.provider == "openai":
        return _scale_tier(prices, model, withheld)
    if prices.provider in _TWO_BUDGETS and prices.output_tokens_per_minute_per_unit is not None:
        return _two_budgets(prices)
    rows = [r for r in table("units") if r["provider"] == prices.provider and r["model"] == model]
    row = next((r for r in rows if prices.deployment_type in r["deployment_types"].split(";")), None)
    stated = _stated_rate(prices)
    if row is None and stated is None:
        withheld["unit"] = _why_no_unit(prices, model, bool(rows))
        return None
    row = row or {}
    source, as_of = (STATED, None) if stated is not None else (row["source"], row["as_of"] or None)
    weights = _weights(prices, row, "w_", withheld, remarks)
    if weights is None:
        return None
    rate = stated if stated is not None else Fraction(row["tokens_per_minute"])
    if rate <= 0:
        raise ConfigError("prices.tokens_per_minute_per_unit: must be at least 0.01")
    return Unit(
        name=row.get("unit") or "unit",
        tokens_per_minute=rate,
        weights=weights,
        minimum=prices.minimum_units or _int(row.get("minimum_units")) or 1,
        increment=prices.increment_units or _int(row.get("increment_units")) or 1,
        long_context_tokens=_int(row.get("long_context_tokens")),
        long_context=_weights(prices, row, "long_w_", {}, []) if row.get("long_w_input") else None,
        refused_above_tokens=_int(row.get("refused_above_tokens")),
        tokens_per_s=_float(row.get("latency_tokens_per_s")),
        source=source,
        as_of=as_of,
        notes=row.get("notes") or "",
    )


def _two_budgets(prices: Prices) -> Unit | None:
    """Return the pair of budgets that was agreed with a vendor who publishes none."""
    rate = _stated_rate(prices)
    if rate is None:
        raise ConfigError(
            "prices.output_tokens_per_minute_per_unit is set; prices.tokens_per_minute_per_unit, for input, is missing"
        )
    cached, written, long = _TWO_BUDGETS[prices.provider]
    weights = Weights(
        Fraction(1),
        cached if prices.weight_cached is None else _fraction(prices.weight_cached),
        written if prices.weight_cache_write is None else _fraction(prices.weight_cache_write),
        Fraction(1) if prices.weight_output is None else _fraction(prices.weight_output),
    )
    return Unit(
        name="unit",
        tokens_per_minute=rate,
        output_tokens_per_minute=_fraction(prices.output_tokens_per_minute_per_unit or 0),
        weights=weights,
        minimum=prices.minimum_units or 1,
        increment=prices.increment_units or 1,
        long_context_tokens=200_000 if long else None,
        long_context=Weights(2 * weights.input, 2 * weights.cached, 2 * weights.cache_write, Fraction(3, 2))
        if long
        else None,
        source=STATED,
    )


def _scale_tier(prices: Prices, model: str, withheld: dict[str, str]) -> Unit | None:
    """Return Scale Tier's pair of units as one: so many input and output tokens a minute bought together."""
    row = next((r for r in table("scale_tier") if r["model"] == model), None)
    if row is None:
        withheld["unit"] = f"no Scale Tier unit is published for {model}"
        return None
    return Unit(
        name="input and output unit",
        tokens_per_minute=Fraction(row["input_tokens_per_minute"]),
        output_tokens_per_minute=Fraction(row["output_tokens_per_minute"]),
        weights=Weights(Fraction(1), Fraction(1), Fraction(1), Fraction(1)),
        minimum=prices.minimum_units or 1,
        increment=prices.increment_units or 1,
        source=row["source"],
        as_of=row["as_of"] or None,
        notes=f"latency target {row['latency_target']}",
    )


def _why_no_unit(prices: Prices, model: str, other_types: bool) -> str:
    if prices.provider in ("bedrock", "anthropic"):
        return (
            "tokens per minute of a unit are disclosed by the account team only; state what you were told or measured "
            "as prices.tokens_per_minute_per_unit"
        )
    if other_types:
        return f"{model} has no {prices.deployment_type} deployment in the published table"
    return f"no throughput of a unit is published for {model}; state prices.tokens_per_minute_per_unit"


def _weights(
    prices: Prices, row: Mapping[str, str], start: str, withheld: dict[str, str], remarks: list[tuple[str, str]]
) -> Weights | None:
    """Return the weights of a row, each replaced by a stated one; None where an output weight is not known."""
    plain = start == "w_"
    output = prices.weight_output if plain else None
    if output is None and not row.get(f"{start}output"):
        withheld["unit"] = "the weight of an output token is not published; state prices.weight_output"
        return None

    def one(stated: float | None, name: str, instead: Fraction) -> Fraction:
        if plain and stated is not None:
            return _fraction(stated)
        if row.get(f"{start}{name}"):
            return Fraction(row[f"{start}{name}"])
        text = f"the weight of {name.replace('_', ' ')} tokens is not published and they are counted as plain input"
        remarks.append((name, f"{text}; state prices.weight_{name}"))
        return instead

    whole = Fraction(row.get(f"{start}input") or "1")
    return Weights(
        input=whole,
        cached=one(prices.weight_cached, "cached", whole),
        cache_write=one(prices.weight_cache_write, "cache_write", whole),
        output=_fraction(output) if output is not None else Fraction(row[f"{start}output"]),
    )


def _terms(prices: Prices, model: str, withheld: dict[str, str]) -> tuple[Term, ...]:
    """Return the terms of a unit, dearest month first; a stated price replaces the term it names."""
    found = {term.name: term for term in _published_terms(prices, model)}
    hour = prices.usd_per_unit_hour
    stated = {
        "hourly": (0.0, None if hour is None else hour * prices.hours_per_month),
        "1-month": (1.0, prices.usd_per_unit_month),
        "1-year": (12.0, prices.usd_per_unit_month_1_year),
    }
    for name, (months, price) in stated.items():
        if price is not None:
            cancellation = found[name].cancellation if name in found else "as agreed"
            found[name] = Term(name, months, price, cancellation, STATED, None)
    if not found:
        withheld["terms"] = f"no price of a unit is published by {prices.provider}; state prices.usd_per_unit_month"
    return tuple(sorted(found.values(), key=lambda term: (-term.usd_per_unit_month, term.months)))


def _published_terms(prices: Prices, model: str) -> Iterable[Term]:
    hours = prices.hours_per_month
    if prices.provider == "openai":
        for row in table("scale_tier"):
            if row["model"] == model:
                day = float(row["usd_per_input_unit_day"]) + float(row["usd_per_output_unit_day"])
                months = float(row["minimum_days"]) * 24 / hours
                yield Term("30-day", months, day * hours / 24, "none", row["source"], row["as_of"] or None)
    elif prices.provider == "bedrock":
        for row in table("model_units"):
            if row["model"] == model and row["region"] in ("*", prices.region):
                name, months = row["term"], {"1-month": 1.0, "6-month": 6.0}.get(row["term"], 0.0)
                price = float(row["usd_per_model_unit_hour"]) * hours
                yield Term(name, months, price, "none", row["source"], row["as_of"] or None)
    for row in table("unit_prices"):
        if (row["provider"], row["deployment_type"]) == (prices.provider, prices.deployment_type):
            month = row["usd_per_unit_month"]
            price = float(month) if month else float(row["usd_per_unit_hour"]) * hours
            yield Term(
                row["term"], float(row["months"]), price, row["cancellation"], row["source"], row["as_of"] or None
            )


def _token_prices(
    prices: Prices, model: str, tier: str, withheld: dict[str, str], remarks: list[tuple[str, str]]
) -> TokenPrices | None:
    keys = (prices.provider, model, tier)
    rows = [r for r in table("token_prices") if (r["provider"], r["model"], r["tier"]) == keys]
    row = next((r for r in rows if r["deployment_type"] == prices.deployment_type), None)
    if row is None and rows and tier == "standard":
        row = rows[0]
        instead = f"that of {row['deployment_type']} is used"
        remarks.append(("all", f"no {prices.deployment_type} token price is published; {instead}"))
    row = row or {}
    stated = tier == "standard"
    price_in = prices.usd_per_1m_input if stated else None
    price_out = prices.usd_per_1m_output if stated else None
    whole = price_in if price_in is not None else _float(row.get("usd_per_1m_input"))
    output = price_out if price_out is not None else _float(row.get("usd_per_1m_output"))
    if whole is None or output is None:
        missing = "input" if whole is None else "output"
        withheld["prices"] = f"no pay-as-you-go price is published for {model}; state prices.usd_per_1m_{missing}"
        return None

    def one(mine: float | None, name: str) -> float:
        if stated and mine is not None:
            return mine
        published = _float(row.get(f"usd_per_1m_{name}"))
        if published is None:
            kind = name.replace("_input", "")
            text = f"no price of {kind.replace('_', ' ')} tokens is published; plain input is charged"
            remarks.append((kind, f"{text} (prices.usd_per_1m_{name})"))
        return whole if published is None else published

    all_stated = price_in is not None and price_out is not None
    return TokenPrices(
        input=whole,
        cached=one(prices.usd_per_1m_cached_input, "cached_input"),
        cache_write=one(prices.usd_per_1m_cache_write, "cache_write"),
        output=output,
        source=STATED if all_stated else row["source"],
        as_of=None if all_stated else row["as_of"] or None,
    )


def aged(as_of: str | None, today: dt.date, days: int = AGED_DAYS) -> bool:
    """Return whether a date, of whatever exactness, is more than `days` before today; an unknown one is."""
    if not as_of:
        return True
    year, month, day = (*map(int, as_of.split("-")), 12, 28)[:3] if as_of.count("-") == 0 else _parts(as_of)
    return (today - dt.date(year, month, day)).days > days


def _parts(as_of: str) -> tuple[int, int, int]:
    parts = [int(part) for part in as_of.split("-")]
    return (parts[0], parts[1], parts[2] if len(parts) > 2 else 28)


def _fraction(value: float) -> Fraction:
    """Return a number as people write it: 0.1 is a tenth."""
    return Fraction(str(value))


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _float(text: str | None) -> float | None:
    return float(text) if text else None
