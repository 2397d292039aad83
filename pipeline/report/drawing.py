"""How charts are drawn: lines over time, histograms, named limits, axes and hover texts, as Vega-Lite.

Series differ in colour and in dash, so that no meaning hangs on colour alone. Labels are expressions where Vega's own
formats write 40 as 4e+1 and 0 as 0k.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import altair as alt

from pipeline.report import theme, words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import Figure, Nothing

HEIGHT = 260
IMAGE_WIDTH = 760

NUMBER_LABELS = "format(datum.value, ',')"
LARGE_LABELS = "datum.value == 0 ? '0' : format(datum.value, '~s')"
SHARE_LABELS = "format(datum.value * 100, ',') + ' %'"
MS_LABELS = (
    "datum.value == 0 ? '0' : datum.value >= 1000 ? format(datum.value / 1000, ',') + ' s' : datum.value >= 1 ? "
    "format(datum.value, ',') + ' ms' : format(datum.value * 1000, ',') + ' µs'"
)
_TIME_LABELS = (
    "utchours(datum.value) + utcminutes(datum.value) + utcseconds(datum.value) == 0 ? "
    "utcFormat(datum.value, '%b %d') : utcFormat(datum.value, utcseconds(datum.value) == 0 ? '%H:%M' : '%H:%M:%S')"
)
_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a time series: column of the answer, its name, and the columns of the band around it."""

    column: str
    name: str
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """How a value is shown: title with unit, words for the text alternative, axis labels, tooltip, ends of the axis."""

    title: str
    say: Callable[[float | None], str]
    labels: str = NUMBER_LABELS
    tip: str = ",.4~g"
    bottom: float = 0.0
    top: float | None = None
    log: bool = False


def share_scale(title: str, top: float = 1.0, bottom: float = 0.0) -> Scale:
    """Return the scale of a share of 1, labelled in percent."""
    return Scale(title, words.share, SHARE_LABELS, ".1%", bottom, top)


@dataclass(frozen=True, slots=True)
class Rows:
    """The tables behind one drawing, by name: Altair checks rows given inline one by one, for seconds a chart."""

    tables: list[tuple[str, list[Row]]] = field(default_factory=list)

    def draw(self, table: list[Row]) -> alt.Chart:
        """Return a chart to be made of the table; the same table twice is kept once."""
        for name, known in self.tables:
            if known is table:
                return alt.Chart(alt.NamedData(name))
        name = f"rows{len(self.tables)}"
        self.tables.append((name, table))
        return alt.Chart(alt.NamedData(name))


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG on white, two pixels per point."""
    import vl_convert

    spec = theme.for_image(figure.spec) | {"width": IMAGE_WIDTH, "background": "white", "padding": 12}
    return vl_convert.vegalite_to_png(spec, scale=2)


def over_time(
    run: Run,
    rows: list[Row],
    series: Sequence[Series],
    scale: Scale,
    marks: Sequence[tuple[float, str]] = (),
    points: bool = False,
    moments: Sequence[tuple[float, str]] = (),
) -> Figure | Nothing:
    """Draw lines over time, a band around the first where it has one, and named horizontal lines at `marks`.

    moments : named upright lines, at seconds from the start of the trace
    """
    rows = [r for r in rows if any(r[s.column] is not None for s in series)]
    if not rows:
        return Nothing("There is nothing to draw: no request ran.")
    clock = _Clock.of(run, rows)
    replicas = sorted({r.get("replica") or 0 for r in rows})
    data = [
        {"x": clock.place(r), "y": short(r[s.column]), "s": s.name, "r": r.get("replica") or 0}
        for s in series
        for r in rows
        if not (scale.log and not r[s.column])
    ]
    x = alt.X("x:Q" if not clock.wall else "x:T", title=clock.title, scale=clock.scale, axis=clock.axis)
    y = alt.Y("y:Q", title=scale.title, axis=_axis(scale, data, marks), scale=_domain(scale, data, marks))
    drawn = Rows()
    layers: list[alt.Chart] = []
    band = series[0]
    if band.low and len(replicas) == 1:
        edges = [{"x": clock.place(r), "lo": short(r[band.low]), "hi": short(r[band.high])} for r in rows]
        layers.append(
            drawn.draw(edges)
            .mark_area(color=theme.SERIES[0], opacity=0.22)
            .encode(x=x, y=alt.Y("lo:Q", title=scale.title), y2="hi:Q")
        )
    names = [s.name for s in series]
    few = len(rows) <= 60
    line = drawn.draw(data).mark_line(strokeWidth=2, point=_dots(few) if points or len(rows) < 3 else False)
    layers.append(line.encode(x=x, y=y, detail="r:N", **styles(names)))
    tooltip = [
        alt.Tooltip("x:Q" if not clock.wall else "x:T", title=clock.title, format=clock.tip),
        alt.Tooltip("s:N", title="series"),
        alt.Tooltip("y:Q", title=scale.title, format=scale.tip),
    ]
    if len(replicas) > 1:
        tooltip.append(alt.Tooltip("r:N", title="replica"))
    layers.append(hover(drawn.draw(data)).encode(x=x, y=y, tooltip=tooltip))
    layers += _horizontal(drawn, marks)
    layers += _upright(drawn, x, [(clock.at(rows[0], at_s), label) for at_s, label in moments])
    named = [*marks, *moments]
    return layered(drawn, layers, _say_over_time(rows, series, scale, named, clock))


def _say_over_time(
    rows: list[Row], series: Sequence[Series], scale: Scale, marks: Sequence[tuple[float, str]], clock: "_Clock"
) -> str:
    """Return the text alternative of a time series: its range, and the lines drawn beside it."""
    parts = []
    for s in series:
        known = [r[s.column] for r in rows if r[s.column] is not None]
        if known:
            peak = max((r[s.high] for r in rows if s.high and r[s.high] is not None), default=None)
            low, high = scale.say(min(known)), scale.say(max(known))
            text = f"{s.name} {high}" if low == high else f"{s.name} between {low} and {high}"
            parts.append(text + (f", highest value {scale.say(peak)}" if peak is not None else ""))
    title = scale.title[0].upper() + scale.title[1:]
    lines = f" Lines: {', '.join(label for _, label in marks)}." if marks else ""
    return f"{title} over {clock.span}: {'; '.join(parts)}.{lines}"


@dataclass(frozen=True, slots=True)
class _Clock:
    """The time axis: wall clock where arrivals have one, else time since the start in a fitting unit."""

    wall: bool
    title: str
    scale: alt.Scale
    axis: alt.Axis
    tip: str
    unit_s: float
    span: str

    @classmethod
    def of(cls, run: Run, rows: list[Row]) -> "_Clock":
        last = max(r["start_s"] + (r.get("width_s") or 0) for r in rows)
        first = min(r["start_s"] for r in rows)
        span = words.seconds(last - first) if last > first else "a single interval"
        if all(r.get("start_time") is not None for r in rows):
            axis = alt.Axis(tickCount=6, labelExpr=_TIME_LABELS)
            return cls(
                True, f"time of day ({run.time_zone})", alt.Scale(type="utc"), axis, "%Y-%m-%d %H:%M:%S", 1, span
            )
        unit_s, unit = next(
            (size, name)
            for size, name in ((1, "seconds"), (60, "minutes"), (3600, "hours"), (86400, "days"))
            if last <= 180 * size or size == 86400
        )
        axis = alt.Axis(tickCount=6, labelExpr=NUMBER_LABELS)
        return cls(False, f"{unit} since the start", alt.Scale(nice=False), axis, ",.4~g", unit_s, span)

    def at(self, row: Row, at_s: float) -> float:
        """Return where a moment stands on the axis, counted from a row of known place."""
        if not self.wall:
            return float(f"{at_s / self.unit_s:.6g}")
        return self.place(row) + round((at_s - row["start_s"]) * 1000)

    def place(self, row: Row) -> float:
        """Return where the row stands on the axis: epoch milliseconds of the wall clock, or units since the start."""
        if not self.wall:
            return float(f"{row['start_s'] / self.unit_s:.6g}")
        return (row["start_time"] - _EPOCH) // _MILLISECOND


def histogram(rows: list[Row], title: str, scale: alt.Scale, axis: alt.Axis, said: str) -> Figure | Nothing:
    """Draw the share of step time as bars and the share of steps as dashes, bin by bin."""
    if not rows:
        return Nothing("The engine never ran a step.")
    names = ["bars: share of step time", "dashes: share of steps"]
    data = [
        {"from": r["from"], "to": r["to"], "time": short(r["time_share"]), "steps": short(r["step_share"])}
        for r in rows
    ]
    x = alt.X("from:Q", title=title, scale=scale, axis=axis)
    color = alt.Color(
        "s:N",
        scale=alt.Scale(domain=names, range=list(theme.SERIES[:2])),
        legend=alt.Legend(symbolType="square", symbolSize=140),
    )
    tooltip = [
        alt.Tooltip("from:Q", title="from", format=",.4~g"),
        alt.Tooltip("to:Q", title="to below", format=",.4~g"),
        alt.Tooltip("time:Q", title="share of step time", format=".2%"),
        alt.Tooltip("steps:Q", title="share of steps", format=".2%"),
    ]
    drawn = Rows()
    bars = (
        drawn.draw([{**d, "s": names[0]} for d in data])
        .mark_bar(opacity=0.75, stroke=theme.PAPER, strokeWidth=0.5)
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("time:Q", title="share", axis=alt.Axis(labelExpr=SHARE_LABELS)),
            y2=alt.datum(0),
            color=color,
            tooltip=tooltip,
        )
    )
    caps = drawn.draw([{**d, "s": names[1]} for d in data]).mark_rule(strokeWidth=2.5)
    caps = caps.encode(x=x, x2="to:Q", y="steps:Q", color=color, tooltip=tooltip)
    return layered(drawn, [bars, caps], said)


def _horizontal(drawn: Rows, marks: Sequence[tuple[float, str]]) -> list[alt.Chart]:
    """Return the layers of named horizontal lines."""
    if not marks:
        return []
    data = [{"y": value, "l": label} for value, label in marks]
    rules = drawn.draw(data)
    layers = [rules.mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(y="y:Q")]
    return layers + [text.encode(x=alt.value(0), y="y:Q") for text in labels_of(rules)]


def _upright(drawn: Rows, x: alt.X, moments: Sequence[tuple[float, str]]) -> list[alt.Chart]:
    """Return the layers of named vertical lines; the name of the last stands before its line, the others' behind."""
    layers = []
    for number, (place, label) in enumerate(moments):
        side = {} if number == len(moments) - 1 else {"baseline": "top", "dy": 3}
        rule = drawn.draw([{"x": place, "l": label}])
        names = labels_of(rule, angle=270, align="right", dx=-4, **side)
        layers.append(rule.mark_rule(color=theme.LIMIT, strokeDash=[2, 3]).encode(x=x))
        layers += [text.encode(x=x, y=alt.value(0)) for text in names]
    return layers


def labels_of(chart: alt.Chart, **options: Any) -> list[alt.Chart]:
    """Return the names of lines, readable over other lines: the text on a rim of the paper's colour."""
    place: dict[str, Any] = {"align": "left", "baseline": "bottom", "dx": 4, "dy": -3, **options}
    rim = chart.mark_text(color=theme.PAPER, stroke=theme.PAPER, strokeWidth=4, strokeJoin="round", aria=False, **place)
    return [layer.encode(text="l:N") for layer in (rim, chart.mark_text(color=theme.LIMIT, **place))]


def styles(names: list[str]) -> dict[str, Any]:
    """Return the colour and dash of each series; one legend for both, none for a single series."""
    legend = alt.Legend() if len(names) > 1 else None
    n = len(names)
    return {
        "color": alt.Color(
            "s:N", legend=legend, sort=names, scale=alt.Scale(domain=names, range=list(theme.SERIES[:n]))
        ),
        "strokeDash": alt.StrokeDash(
            "s:N", legend=legend, sort=names, scale=alt.Scale(domain=names, range=list(theme.DASHES[:n]))
        ),
    }


def _axis(scale: Scale, data: list[Row], marks: Sequence[tuple[float, str]]) -> alt.Axis:
    if scale.log:
        return log_axis([*data, *({"y": value} for value, _ in marks)], "y")
    return alt.Axis(labelExpr=scale.labels)


def log_axis(data: list[Row], key: str) -> alt.Axis:
    """Return a logarithmic axis of milliseconds with a label at each power of ten, or at 1, 2, 5 if there are few."""
    values = [d[key] for d in data if d[key]]
    low, high = min(values), max(values)
    steps = (1,) if high / low > 2000 else (1, 2, 5)
    ticks = [m * 10.0**e for e in range(-6, 12) for m in steps]
    inside = [float(f"{t:.6g}") for t in ticks if low / 10 <= t <= high * 10]
    # Vega drops every second tick until there are at most tickCount; labels that would overlap it drops by itself.
    return alt.Axis(values=inside, tickCount=len(inside), labelExpr=MS_LABELS)


def _domain(scale: Scale, data: list[Row], marks: Sequence[tuple[float, str]]) -> alt.Scale:
    """Return the vertical scale; where a named line is the highest thing, with room above it for its name."""
    if scale.top is not None:
        return alt.Scale(domain=[scale.bottom, scale.top])
    peak = max((d["y"] for d in data if d["y"] is not None), default=0.0)
    room = max((value for value, _ in marks), default=0.0)
    top: Any = room * (1.5 if scale.log else 1.12) if room and room >= 0.9 * peak else alt.Undefined
    if scale.log:
        return alt.Scale(type="log", nice=False, domainMax=top)
    return alt.Scale(zero=True, domainMax=top)


def _dots(few: bool) -> alt.OverlayMarkDef:
    return alt.OverlayMarkDef(size=26 if few else 8, filled=True)


def hover(chart: alt.Chart) -> alt.Chart:
    """Return invisible points over a line: they carry the tooltip, and screen readers skip them."""
    return chart.mark_point(opacity=0, size=90, filled=True, aria=False)


def layered(rows: Rows, layers: list[alt.Chart], said: str) -> Figure:
    """Put layers together; the description becomes the aria-label of the drawing."""
    chart = alt.layer(*layers).properties(
        width="container",
        height=HEIGHT,
        description=said,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    spec = chart.to_dict() | {"datasets": dict(rows.tables), "config": theme.CONFIG}
    return Figure(spec, said)


def short(value: float | None) -> float | None:
    """Return six digits of a value: more than a chart shows, and half the page size."""
    return None if value is None else float(f"{value:.6g}")
