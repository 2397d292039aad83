"""The recommendation in sentences: what to buy, what it saves, how sure that is, and what was left out."""

from pipeline.capacity.economics import abandoned, needed_price, survival_break_even
from pipeline.capacity.purchase import DAY_US, MONTHLY_DAYS, Candidate, Decision, span_text


def recommendation(decision: Decision) -> str:
    """Return one sentence: the purchase and its saving, or that there is none that saves."""
    offer, best = decision.market.offer, decision.best
    payg = decision.market.payg_usd_month
    where = f"{offer.model} ({_place(decision)})"
    if best is None:
        cheapest = min(
            (c for c in decision.candidates if c.units and c.term.name not in decision.withheld),
            key=lambda c: c.replayed_usd_month,
            default=None,
        )
        other = ""
        if cheapest is not None:
            other = f"; the cheapest purchase, {_named(decision, cheapest)}, costs {_usd(cheapest.replayed_usd_month)}"
        return f"Buy no capacity for {where}: pay-as-you-go costs {_usd(payg)} a month{other}."
    less = (1 - best.replayed_usd_month / payg) * 100
    return (
        f"Buy {_named(decision, best)} for {where}: {_usd(best.replayed_usd_month)} a month instead of {_usd(payg)} "
        f"pay-as-you-go ({less:.1f} % less), with {_share(decision, best) * 100:.0f} % of the tokens spilled to "
        f"pay-as-you-go; {confidence(decision)}."
    )


def confidence(decision: Decision) -> str:
    """Return how sure the saving is, or why that cannot be said."""
    sure = decision.confidence
    if sure is None:
        return f"the log covers {span_text(decision.market.span_us)}, too little to say how sure that is"
    how = "all resamples counted" if sure.exact else "10,000 resamples"
    return f"it saves money in {sure.probability * 100:.0f} % of resampled sets of {sure.days} days ({how})"


def cautions(decision: Decision) -> list[str]:
    """Return what a buyer must know besides."""
    market, offer = decision.market, decision.market.offer
    unit = offer.unit
    assert unit is not None
    days = market.span_us / DAY_US
    found = []
    if days < MONTHLY_DAYS:
        found.append(
            f"The log covers {span_text(market.span_us)} and is taken to repeat for a month; commit to nothing before "
            "a week or more was looked at."
        )
    if decision.withheld:
        names = " and ".join(decision.withheld)
        found.append(f"{names}: not recommended; {next(iter(decision.withheld.values()))}.")
        cheapest = decision.cheapest
        if cheapest is not None and cheapest.term.name in decision.withheld:
            found.append(
                f"If the traffic lasts, {_named(decision, cheapest)} would cost {_usd(cheapest.replayed_usd_month)} a "
                "month."
            )
    found += _lock_in(decision)
    found.append(
        f"Capacity is regional and finite: a price is no promise of units. Check first that "
        f"{offer.region or 'your region'} has {offer.deployment_type} units of {offer.model}."
    )
    found.append(
        "A provisioned deployment is not moved to a newer model, and a retired model answers no more (Azure: 18 months "
        "after release for most models); a term should end before that."
    )
    too_long = market.seen.too_long
    if too_long:
        found.append(
            f"{too_long:,} requests have prompts above {unit.refused_above_tokens:,} tokens, which bought units never "
            "serve; they are charged as pay-as-you-go."
        )
    classes = {"cached": "cached_tokens", "cache_write": "cache_write_tokens"}
    for concern, text in offer.remarks:
        column = classes.get(concern)
        present = column is None or (market.seen.tokens.get(column) or 0) > 0
        if present:
            found.append(text[0].upper() + text[1:] + ".")
    unknown = market.seen.tokens.get("cached_tokens", 0) is None
    if unknown and unit.weights.cached < unit.weights.input:
        found.append("The log does not say what was cached, so every input token counts as uncached.")
    return found


def _lock_in(decision: Decision) -> list[str]:
    """Return what a year means against single months, where both are sold."""
    terms = {term.name: term for term in decision.market.offer.terms}
    long, short = terms.get("1-year"), terms.get("1-month")
    if long is None or short is None:
        return []
    survival = survival_break_even(long, short)
    chosen = decision.chosen
    units = chosen.units if chosen is not None else 0
    found = []
    stated = decision.market.prices.monthly_survival
    if stated < 1:
        found.append(
            f"With a chance of {stated * 100:g} % to last each further month, a unit costs "
            f"{_usd(needed_price(long, stated))} per month of need on a year and {_usd(needed_price(short, stated))} "
            "by the month; terms are compared at these prices."
        )
    if survival is not None:
        months = long.usd_per_unit_month * long.months / short.usd_per_unit_month
        found.append(
            f"A year costs as much as {months:.1f} single months: it pays if the need lasts longer, that is with a "
            f"chance of at least {survival * 100:.1f} % to last each further month."
        )
    if units and decision.market.offer.provider == "azure":
        refund = abandoned(long, units, 6)
        found.append(
            f"{units:,} units on a year, given up after 6 months: "
            + (
                f"{_usd(refund)} in all with a fee of 12 %."
                if refund is not None
                else "the refund is above USD 50,000 and would be refused."
            )
        )
    return found


def _share(decision: Decision, chosen: Candidate) -> float:
    return next(a.spilled_share for a in decision.admitted if a.units == chosen.units)


def _named(decision: Decision, chosen: Candidate) -> str:
    unit = decision.market.offer.unit
    assert unit is not None
    return f"{chosen.units:,} {unit.name} {_TERMS.get(chosen.term.name, f'for a term of {chosen.term.name}')}"


_TERMS = {"hourly": "by the hour", "1-month": "by the month", "1-year": "for a year", "1-week": "by the week"}


def _place(decision: Decision) -> str:
    offer = decision.market.offer
    region = f", {offer.region}" if offer.region else ""
    return f"{offer.product}, {offer.deployment_type}{region}"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"USD {value:,.0f}" if abs(value) >= 100 else f"USD {value:,.2f}"
