"""Charts and tables of a purchase: duration curve, cost by units, choices, terms, what would change the answer."""

from collections.abc import Callable
from typing import Any

import altair as alt

from pipeline.report import drawing, theme, words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import Figure, Heading, Nothing, Table

PAYG = "pay-as-you-go"
RECOMMENDED, TOO_SHORT = " (recommended)", " (log too short)"


def duration(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the demand duration curve with each term's break-even as a line."""
    unit = run.manifest["offer"]["unit"]
    data = [{"x": drawing.short(r["share_of_time"]), "y": drawing.short(r["units"])} for r in rows]
    if not data:
        return Nothing("There is nothing to draw: no minute has requests.")
    lines: list[Row] = [
        {"x": drawing.short(r["break_even_share"]), "l": f"{r['term']} pays"}
        for r in run.answer("purchase_break_even")
        if r["break_even_share"] is not None and r["break_even_share"] <= 1
    ]
    drawn = drawing.Rows()
    x = alt.X("x:Q", title="share of minutes that need at least so much", scale=alt.Scale(domain=[0, 1]),
              axis=alt.Axis(labelExpr=drawing.SHARE_LABELS))  # fmt: skip
    y = alt.Y("y:Q", title=unit, axis=alt.Axis(labelExpr=drawing.NUMBER_LABELS), scale=alt.Scale(zero=True))
    curve = drawn.draw(data)
    tips = [alt.Tooltip("x:Q", title="share of minutes", format=".1%"), alt.Tooltip("y:Q", title=unit, format=",.4~g")]
    layers = [
        curve.mark_area(color=theme.SERIES[0], opacity=0.2, interpolate="step-before").encode(x=x, y=y),
        curve.mark_line(color=theme.SERIES[0], strokeWidth=2, interpolate="step-before").encode(x=x, y=y),
        drawing.hover(curve).encode(x=x, y=y, tooltip=tips),
        *_vertical(drawn, lines),
    ]
    best = run.manifest["figures"]["best_units"]
    if best:
        layers += _level(drawn, best, f"recommended: {words.count(best)}")
    high, mean = words.number(data[0]["y"]), words.number(run.manifest["figures"]["mean_units"])
    said = f"Demand by share of time: at most {high} {unit}, {mean} on average."
    said += "".join(f" A unit pays at {line['l'].removesuffix(' pays')} if it works {line['x']:.0%}." for line in lines)
    return drawing.layered(drawn, layers, said)


def cost(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw what a month costs by number of units, a line per term, pay-as-you-go as a named line."""
    bought = [r for r in rows if r["term"] != PAYG]
    if not bought:
        return Nothing("No term is sold, so there is nothing to draw.")
    unit, payg = run.manifest["offer"]["unit"], run.manifest["figures"]["payg_usd_month"]
    names = list(dict.fromkeys(r["term"] for r in bought))
    start = [{"x": 0, "y": drawing.short(payg), "s": name} for name in names]
    top = 1.5 * payg  # above it a size is of no interest
    data = start + [
        {"x": r["units"], "y": drawing.short(r["usd_per_month"]), "s": r["term"]}
        for r in bought
        if r["usd_per_month"] <= top
    ]
    drawn = drawing.Rows()
    x = alt.X("x:Q", title=f"{unit} bought", axis=alt.Axis(labelExpr=drawing.NUMBER_LABELS))
    y = alt.Y("y:Q", title="USD per month", axis=alt.Axis(labelExpr=drawing.LARGE_LABELS), scale=alt.Scale(zero=True))
    line = drawn.draw(data).mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=26, filled=True))
    tips = [
        alt.Tooltip("s:N", title="term"),
        alt.Tooltip("x:Q", title=unit, format=","),
        alt.Tooltip("y:Q", title="USD per month", format=",.0f"),
    ]
    layers = [
        line.encode(x=x, y=y, **drawing.styles(names)),
        drawing.hover(drawn.draw(data)).encode(x=x, y=y, tooltip=tips),
    ]
    layers += _level(drawn, payg, PAYG)
    least = min(bought, key=lambda r: r["usd_per_month"])
    said = (
        f"Cost of a month by units and term; pay-as-you-go {usd(payg)}; least {usd(least['usd_per_month'])} with "
        f"{words.count(least['units'])} {unit} at {least['term']}."
    )
    return drawing.layered(drawn, layers, said)


def _vertical(drawn: drawing.Rows, lines: list[Row]) -> list[alt.Chart]:
    if not lines:
        return []
    rules = drawn.draw(lines)
    line = rules.mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(x="x:Q")
    return [line, *(text.encode(x="x:Q", y=alt.datum(0)) for text in drawing.labels_of(rules, angle=270))]


def _level(drawn: drawing.Rows, value: float, name: str) -> list[alt.Chart]:
    rules = drawn.draw([{"y": drawing.short(value), "l": name}])
    line = rules.mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(y="y:Q")
    return [line, *(text.encode(x=alt.value(0), y="y:Q") for text in drawing.labels_of(rules))]


def choices(run: Run, rows: list[Row]) -> Table:
    """Return what each choice costs a month, the recommended one marked."""
    headings = (
        Heading("choice", False), Heading("units"), Heading("term", False), Heading("USD per month"),
        Heading("against pay-as-you-go"), Heading("USD per 1M tokens"), Heading("tokens spilled"),
    )  # fmt: skip
    cells = [
        [
            r["choice"] + (RECOMMENDED if r["is_recommended"] else TOO_SHORT if r["is_withheld"] else ""),
            words.count(r["units"]),
            r["term"] or words.UNKNOWN,
            words.count(r["usd_per_month"]),
            signed(r["against_payg"]),
            "–" if r["usd_per_1m_tokens"] is None else f"{r['usd_per_1m_tokens']:,.3f}",
            words.share(r["spilled_share"]),
        ]
        for r in rows
    ]
    return Table(headings, cells)


def terms(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return each term with its break-even and what leaving early costs."""
    if not rows:
        return Nothing("No term is sold.")
    headings = (
        Heading("term", False), Heading("USD per unit and month"), Heading("break-even use"),
        Heading("units that use so much"), Heading("layered: units at this or a longer term"),
        Heading("leaving early", False), Heading("price of", False),
    )  # fmt: skip
    cells = [
        [
            r["term"],
            f"{r['usd_per_unit_month']:,.2f}",
            never(r["break_even_share"]),
            words.count(r["marginal_units"]),
            words.count(r["base_units"]),
            r["cancellation"] or words.UNKNOWN,
            f"{r['as_of'] or 'date not recorded'}, {r['source']}",
        ]
        for r in rows
    ]
    return Table(headings, cells)


def changes(run: Run, rows: list[Row]) -> Table:
    """Return what would change the answer, and where it turns."""
    headings = (
        Heading("assumption", False), Heading("units"), Heading("term", False), Heading("USD per month"),
        Heading("saved"), Heading("tokens spilled"), Heading("turns at"),
    )  # fmt: skip
    cells = [
        [
            r["change"],
            words.count(r["units"]),
            r["term"] or words.UNKNOWN,
            words.count(r["usd_per_month"]),
            words.count(round(r["saving_usd_per_month"]) or 0),
            words.share(r["spilled_share"]),
            words.UNKNOWN if r["flips_at"] is None else f"x {r['flips_at']:.2f}",
        ]
        for r in rows
    ]
    return Table(headings, cells)


def days(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw what each day saves."""
    if run.manifest["figures"]["chosen_units"] is None:
        return Nothing("No purchase saves money, so there is no saving that could vary.")
    if len(rows) < 2:
        return Nothing("The log has fewer than two whole days, so it cannot be said how much a saving varies.")
    data = [{"x": r["day"] + 1, "y": drawing.short(r["saved_usd"])} for r in rows]
    drawn = drawing.Rows()
    bars = drawn.draw(data).mark_bar(color=theme.SERIES[0])
    encoded = bars.encode(
        x=alt.X("x:O", title="day of the log", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("y:Q", title="saved, USD", axis=alt.Axis(labelExpr=drawing.LARGE_LABELS)),
        tooltip=[alt.Tooltip("x:O", title="day"), alt.Tooltip("y:Q", title="saved, USD", format=",.2f")],
    )
    low, high = min(d["y"] for d in data), max(d["y"] for d in data)
    said = f"Saved per day over {len(data)} days: from {usd(low)} to {usd(high)}."
    return drawing.layered(drawn, [encoded], said)


def use(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how much of the chosen units each stretch of the log uses: its mean, and its highest minute."""
    if not rows:
        return Nothing("No purchase saves money, so there are no units to fill.")
    single = rows[0]["minutes"] == 1
    named = [("used_share", "of the minute" if single else "mean")] + [("used_max", "highest minute")] * (not single)
    data = [
        {"x": drawing.short(r["minute"] / 60), "y": drawing.short(r[key]), "s": name}
        for r in rows
        for key, name in named
    ]
    drawn = drawing.Rows()
    x = alt.X("x:Q", title="hours since the first request", axis=alt.Axis(labelExpr=drawing.NUMBER_LABELS))
    y = alt.Y("y:Q", title="share of the units in use", axis=alt.Axis(labelExpr=drawing.SHARE_LABELS),
              scale=alt.Scale(zero=True))  # fmt: skip
    line = drawn.draw(data).mark_line(strokeWidth=1.5)
    tips = [alt.Tooltip("x:Q", title="hour", format=".2f"), alt.Tooltip("y:Q", title="in use", format=".1%")]
    layers = [
        line.encode(x=x, y=y, **drawing.styles([name for _, name in named])),
        drawing.hover(drawn.draw(data)).encode(x=x, y=y, tooltip=tips),
    ]
    figures = run.manifest["figures"]
    minutes = sum(r["minutes"] for r in rows)
    mean = sum(r["used_share"] * r["minutes"] for r in rows) / minutes
    said = (
        f"{words.count(figures['chosen_units'])} {run.manifest['offer']['unit']} are {words.share(mean)} in use on "
        f"average, {words.share(max(r['used_max'] for r in rows))} in the highest minute."
    )
    return drawing.layered(drawn, layers, said)


def hours(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return the hours of the day in which units by the hour pay."""
    worth = [r for r in rows if r["units"] > 0]
    if not rows:
        return Nothing("Units are not sold by the hour.")
    if not worth:
        return Nothing("No: at the hourly price a unit pays for itself in no hour of the day.")
    headings = (Heading("hour of the day (UTC)"), Heading("units by the hour"), Heading("saved, USD per month"))
    return Table(
        headings, [[str(r["hour"]), words.count(r["units"]), words.count(r["saved_usd_month"])] for r in worth]
    )


def own(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return the numbers of own replicas that were replayed."""
    if not rows:
        return Nothing("Own GPUs were not compared; `servecast ptu --own` replays the traffic on them.")
    headings = (Heading("replicas"), Heading("accelerators"), Heading("within the SLO"), Heading("enough", False))
    cells = [
        [
            words.count(r["replicas"]),
            words.count(r["gpus"]),
            words.share(r["slo_share"], 2),
            "yes" if r["keeps_slo"] else "no",
        ]
        for r in rows
    ]
    return Table(headings, cells)


def usd(value: float | None) -> str:
    """Return dollars: `USD 1,234`, with cents where there are few."""
    if value is None:
        return words.UNKNOWN
    return f"USD {value:,.0f}" if abs(value) >= 100 else f"USD {value:,.2f}"


def signed(share: float | None) -> str:
    """Return a change in percent with its sign."""
    return words.UNKNOWN if share is None else f"{share:+.1%}".replace("%", " %")


def never(share: float | None) -> str:
    """Return a break-even share, in words where it cannot be reached."""
    if share is None:
        return words.UNKNOWN
    return words.share(share) if share <= 1 else f"never ({words.share(share)})"


CHARTS: dict[str, Callable[[Run, list[Row]], Figure | Nothing]] = {
    "purchase_duration": duration,
    "purchase_cost": cost,
    "purchase_days": days,
    "purchase_use": use,
}
TABLES: dict[str, Callable[[Run, list[Row]], Any]] = {
    "purchase_choices": choices,
    "purchase_terms": terms,
    "purchase_changes": changes,
    "purchase_hours": hours,
    "purchase_own": own,
}
