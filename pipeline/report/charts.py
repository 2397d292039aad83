"""Charts of the report: rows of one answer in, one Vega-Lite drawing with its text alternative out.

Every function takes the run and the rows and returns a `Figure`, or `Nothing` with the reason when there is
nothing to draw. Rows are aggregates (at most a few hundred), whatever the number of requests.
Series differ in colour and in dash, so that no meaning hangs on colour alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import altair as alt

from pipeline.report import theme, words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import NAMES, Figure, Nothing

HEIGHT = 260
IMAGE_WIDTH = 760

_MS_LABELS = (
    "datum.value >= 1000 ? format(datum.value / 1000, ',~g') + ' s' : datum.value >= 1 ? "
    "format(datum.value, '~g') + ' ms' : format(datum.value * 1000, '~g') + ' µs'"
)

_TIME_LABELS = (
    "utchours(datum.value) + utcminutes(datum.value) + utcseconds(datum.value) == 0 ? utcFormat(datum.value, '%b %d') : "
    "utcFormat(datum.value, utcseconds(datum.value) == 0 ? '%H:%M' : '%H:%M:%S')"
)
_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Series:
    """A line of a time series: column of the answer, its name, and the columns of the band around it."""

    column: str
    name: str
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True, slots=True)
class _Scale:
    """How a value is shown: title with unit, axis format, words for the text alternative, domain."""

    title: str
    say: Callable[[float | None], str]
    format: str = "~s"
    labels: str | None = None
    factor: float = 1.0
    top: float | None = None
    log: bool = False


class _Rows:
    """The tables behind one drawing, by name: Altair checks rows given inline one by one, for seconds a chart."""

    def __init__(self) -> None:
        self.tables: list[tuple[str, list[Row]]] = []

    def draw(self, table: list[Row]) -> alt.Chart:
        """Return a chart to be made of the table; the same table twice is kept once."""
        for name, known in self.tables:
            if known is table:
                return alt.Chart(alt.NamedData(name))
        name = f"rows{len(self.tables)}"
        self.tables.append((name, table))
        return alt.Chart(alt.NamedData(name))


def latency_curves(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw what share of requests (or token gaps) waits at most so long, with the SLO as vertical lines."""
    metrics = ("ttft", "tpot", "itl", "e2e")
    rows = [r for r in rows if r["metric"] in metrics and r["value_ms"] is not None and r["value_ms"] > 0]
    if not rows:
        return Nothing("No request got an answer, so there is no latency to draw.")
    present = [m for m in metrics if any(r["metric"] == m for r in rows)]
    data = [{"x": _short(r["value_ms"]), "y": _short(r["share"]), "s": NAMES[r["metric"]]} for r in rows]
    x = alt.X(
        "x:Q", title="latency (logarithmic scale)", scale=alt.Scale(type="log", nice=False), axis=_log_axis(data, "x")
    )
    y = alt.Y("y:Q", title="share at or below", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1]))
    names = [NAMES[m] for m in present]
    drawn = _Rows()
    line = drawn.draw(data).mark_line(strokeWidth=2, interpolate="monotone").encode(x=x, y=y, **_styles(names))
    hover = _hover(drawn.draw(data)).encode(
        x="x:Q",
        y="y:Q",
        tooltip=[
            alt.Tooltip("s:N", title="metric"),
            alt.Tooltip("x:Q", title="ms", format=",.4~g"),
            alt.Tooltip("y:Q", title="share at or below", format=".1%"),
        ],
    )
    limits = [(m, run.limit_ms(m)) for m in present]
    marks = [{"x": v, "l": f"{NAMES[m]} SLO {words.milliseconds(v)}"} for m, v in limits if v]
    layers = [line, hover]
    if marks:
        layers += [
            drawn.draw(marks).mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(x="x:Q"),
            drawn.draw(marks)
            .mark_text(angle=270, align="left", baseline="bottom", dx=4, dy=-3, color=theme.LIMIT)
            .encode(x="x:Q", y=alt.datum(0), text="l:N"),
        ]
    p95 = {r["metric"]: r["p95_ms"] for r in run.answer("latency")}
    said = ", ".join(f"{NAMES[m]} {words.milliseconds(p95.get(m))}" for m in present)
    return _figure(drawn, layers, f"Cumulative distribution of {', '.join(names)}. 95th percentiles: {said}.")


def minute_latency(metric: str) -> Callable[[Run, list[Row]], Figure | Nothing]:
    """Return the chart of median and 95th percentile of one metric over time, with its SLO."""

    def draw(run: Run, rows: list[Row]) -> Figure | Nothing:
        rows = [r for r in rows if r["metric"] == metric and r["p95_ms"] is not None]
        if not rows:
            return Nothing(f"No request has a {NAMES[metric]}, so there is nothing to draw.")
        values = [r[c] for r in rows for c in ("p50_ms", "p95_ms") if r[c] > 0]
        limit = run.limit_ms(metric)
        spread = [*values, limit] if limit else values
        log = bool(values) and max(spread) / min(spread) > 30
        scale = _Scale(
            f"{NAMES[metric]}{' (logarithmic scale)' if log else ''}", words.milliseconds, labels=_MS_LABELS, log=log
        )
        series = (_Series("p95_ms", "95th percentile"), _Series("p50_ms", "median"))
        marks = [(limit, f"SLO {words.milliseconds(limit)}")] if limit else []
        return _over_time(run, rows, series, scale, marks, points=True)

    return draw


def arrivals(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw requests per second, arriving and answered in full."""
    series = [_Series("arrivals_per_s", "arriving"), _Series("completed_per_s", "answered in full")]
    if any(r["unanswered_per_s"] for r in rows):
        series.append(_Series("unanswered_per_s", "refused, given up or never finished"))
    return _over_time(run, rows, series, _Scale("requests per second", _per_second("requests"), "~g"))


def users(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how many requests are in the system at once, with the range inside each bucket."""
    series = (_Series("users_mean", "mean", "users_min", "users_max"),)
    return _over_time(run, rows, series, _Scale("requests in the system", words.number, "~g"))


def prompt_tokens(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the prompt tokens that arrive per second."""
    series = (_Series("input_tokens_per_s", "prompt tokens arriving"),)
    return _over_time(run, rows, series, _Scale("prompt tokens per second", _per_second("tokens")))


def output_tokens(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the tokens generated per second."""
    series = (_Series("output_tokens_per_s", "tokens generated"),)
    return _over_time(run, rows, series, _Scale("generated tokens per second", _per_second("tokens")))


def prefill_tokens(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw prompt tokens computed and prompt tokens found in the cache, per second."""
    series = [_Series("prefill_tokens_per_s", "computed")]
    if any(r["hit_tokens_per_s"] for r in rows):
        series.append(_Series("hit_tokens_per_s", "found in the cache"))
    return _over_time(run, rows, series, _Scale("prompt tokens per second", _per_second("tokens")))


def batch(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the requests running, with the range inside each bucket, and the batch limit where it is near."""
    series = (_Series("running_mean", "mean", "running_min", "running_max"),)
    limit = run.config["engine"].get("max_num_seqs")
    peak = max((r["running_max"] for r in rows if r["running_max"] is not None), default=0)
    marks = [(limit, f"max_num_seqs {limit}")] if limit and peak > limit / 3 else []
    return _over_time(run, rows, series, _Scale("requests running", words.number, "~g"), marks)


def queue(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the requests waiting, with the range inside each bucket."""
    if rows and not any(r["waiting_max"] for r in rows):
        return Nothing("No request ever waited for a later step: each one started at the first decision it met.")
    series = (_Series("waiting_mean", "mean", "waiting_min", "waiting_max"),)
    return _over_time(run, rows, series, _Scale("requests waiting", words.number, "~g"))


def kv_memory(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the share of KV blocks in use and of blocks holding cached prefixes, with the line of 100 %."""
    series = [_Series("kv_mean_share", "in use by requests", "kv_min_share", "kv_max_share")]
    if any(r["cached_mean_share"] for r in rows):
        series.append(_Series("cached_mean_share", "holding cached prefixes"))
    scale = _Scale("share of KV blocks", words.share, format=".0%", top=1.05)
    return _over_time(run, rows, series, scale, [(1.0, "all blocks, 100 %")])


def hit_share(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the share of prompt tokens found in the prefix cache."""
    if not run.config["engine"].get("enable_prefix_caching", True):
        return Nothing("Prefix caching is off in this run.")
    if run.manifest["trace"].get("with_prefix") == 0:
        return Nothing(
            "The trace does not tell which prompts share a prefix, so the cache had nothing to find. "
            "Real traffic may do better."
        )
    series = (_Series("hit_share", "found in the cache"),)
    scale = _Scale("share of prompt tokens", words.share, format=".0%", top=1.0)
    return _over_time(run, rows, series, scale, points=True)


def slo_share(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the share of requests within the SLO, by arrival."""
    scale = _Scale("share of requests", words.share, format=".0%", top=1.0)
    return _over_time(run, rows, (_Series("slo_share", "within the SLO"),), scale, points=True)


def batch_size(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how step time and steps spread over batch sizes."""
    rows = [{**r, "from": r["from_requests"], "to": r["to_requests"]} for r in rows]
    summary = _first(run.answer("step_summary"))
    said = (
        f"Share of step time by requests in the batch. On average over step time {words.number(summary['batch_time_mean'])}"
        f" requests, at most {words.count(summary['batch_max'])}."
    )
    return _histogram(rows, "requests in the step", alt.Scale(nice=False), alt.Axis(format="~g", tickMinStep=1), said)


def step_time(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how step time and steps spread over durations, on a logarithmic scale."""
    rows = [{**r, "from": _short(r["from_ms"]), "to": _short(r["to_ms"])} for r in rows]
    summary = _first(run.answer("step_summary"))
    said = (
        f"Share of steps by duration. Median {words.milliseconds(summary['step_p50_ms'])}, 95th percentile "
        f"{words.milliseconds(summary['step_p95_ms'])}, longest {words.milliseconds(summary['step_max_ms'])}."
    )
    edges = [{"x": r[side]} for r in rows for side in ("from", "to")]
    axis = _log_axis(edges, "x") if edges else alt.Axis()
    return _histogram(rows, "duration of the step (logarithmic scale)", alt.Scale(type="log", nice=False), axis, said)


CHARTS: dict[str, Callable[[Run, list[Row]], Figure | Nothing]] = {
    "latency_curves": latency_curves,
    "ttft_by_minute": minute_latency("ttft"),
    "tpot_by_minute": minute_latency("tpot"),
    "e2e_by_minute": minute_latency("e2e"),
    "arrivals": arrivals,
    "users": users,
    "prompt_tokens": prompt_tokens,
    "output_tokens": output_tokens,
    "prefill_tokens": prefill_tokens,
    "batch": batch,
    "queue": queue,
    "kv_memory": kv_memory,
    "hit_share": hit_share,
    "slo_share": slo_share,
    "batch_size": batch_size,
    "step_time": step_time,
}


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG on white, two pixels per point."""
    import vl_convert

    spec = theme.for_image(figure.spec) | {"width": IMAGE_WIDTH, "background": "white", "padding": 12}
    return vl_convert.vegalite_to_png(spec, scale=2)


def _over_time(
    run: Run,
    rows: list[Row],
    series: Sequence[_Series],
    scale: _Scale,
    marks: Sequence[tuple[float, str]] = (),
    points: bool = False,
) -> Figure | Nothing:
    """Draw lines over time, a band around the first where it has one, and named horizontal lines at `marks`."""
    rows = [r for r in rows if any(r[s.column] is not None for s in series)]
    if not rows:
        return Nothing("There is nothing to draw: no request was replayed here.")
    clock = _Clock.of(run, rows)
    replicas = sorted({r.get("replica") or 0 for r in rows})
    floor = min((r[s.column] for r in rows for s in series if r[s.column]), default=1.0) if scale.log else None
    data = [
        {"x": clock.place(r), "y": _short(r[s.column]), "s": s.name, "r": r.get("replica") or 0}
        for s in series
        for r in rows
        if not (scale.log and not r[s.column])
    ]
    x = alt.X("x:Q" if not clock.wall else "x:T", title=clock.title, scale=clock.scale, axis=clock.axis)
    y = alt.Y("y:Q", title=scale.title, axis=_axis(scale, data, marks), scale=_domain(scale, floor))
    drawn = _Rows()
    layers: list[alt.Chart] = []
    band = series[0]
    if band.low is not None and len(replicas) == 1:
        edges = [{"x": clock.place(r), "lo": _short(r[band.low]), "hi": _short(r[band.high])} for r in rows]
        layers.append(
            drawn.draw(edges)
            .mark_area(color=theme.SERIES[0], opacity=0.22, interpolate="step-after" if len(rows) < 2 else "linear")
            .encode(x=x, y=alt.Y("lo:Q", title=scale.title), y2="hi:Q")
        )
    names = [s.name for s in series]
    few = len(rows) <= 60
    line = drawn.draw(data).mark_line(strokeWidth=2, point=_dots(few) if points or len(rows) < 3 else False)
    layers.append(line.encode(x=x, y=y, detail="r:N", **_styles(names)))
    tooltip = [
        alt.Tooltip("x:Q" if not clock.wall else "x:T", title=clock.title, format=clock.tip),
        alt.Tooltip("s:N", title="series"),
        alt.Tooltip("y:Q", title=scale.title, format=".1%" if "%" in scale.format else ",.4~g"),
    ]
    if len(replicas) > 1:
        tooltip.append(alt.Tooltip("r:N", title="replica"))
    layers.append(_hover(drawn.draw(data)).encode(x=x, y=y, tooltip=tooltip))
    layers += _horizontal(drawn, marks)
    return _figure(drawn, layers, _say_over_time(rows, series, scale, marks, clock))


def _say_over_time(
    rows: list[Row], series: Sequence[_Series], scale: _Scale, marks: Sequence[tuple[float, str]], clock: "_Clock"
) -> str:
    """Return the text alternative of a time series: its range, and the lines drawn beside it."""
    parts = []
    for s in series:
        known = [r[s.column] for r in rows if r[s.column] is not None]
        if known:
            peak = max((r[s.high] for r in rows if s.high and r[s.high] is not None), default=None)
            text = f"{s.name} between {scale.say(min(known))} and {scale.say(max(known))}"
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
        span = words.seconds(last - first) if last > first else "one moment"
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
        axis = alt.Axis(tickCount=6, format="~g")
        return cls(False, f"{unit} since the start", alt.Scale(nice=False), axis, ",.4~g", unit_s, span)

    def place(self, row: Row) -> float:
        """Return where the row stands on the axis: epoch milliseconds of the wall clock, or units since the start."""
        if not self.wall:
            return _short(row["start_s"] / self.unit_s)
        return (row["start_time"] - _EPOCH) // _MILLISECOND


def _histogram(rows: list[Row], title: str, scale: alt.Scale, axis: alt.Axis, said: str) -> Figure | Nothing:
    """Draw the share of step time as bars and the share of steps as outlines, bin by bin."""
    if not rows:
        return Nothing("The engine never ran a step.")
    names = ["share of step time", "share of steps"]
    data = [
        {"from": r["from"], "to": r["to"], "time": _short(r["time_share"]), "steps": _short(r["step_share"])}
        for r in rows
    ]
    x = alt.X("from:Q", title=title, scale=scale, axis=axis)
    color = alt.Color("s:N", scale=alt.Scale(domain=names, range=list(theme.SERIES[:2])), legend=alt.Legend())
    tooltip = [
        alt.Tooltip("from:Q", title="from", format=",.4~g"),
        alt.Tooltip("to:Q", title="to below", format=",.4~g"),
        alt.Tooltip("time:Q", title=names[0], format=".2%"),
        alt.Tooltip("steps:Q", title=names[1], format=".2%"),
    ]
    drawn = _Rows()
    bars = (
        drawn.draw([{**d, "s": names[0]} for d in data])
        .mark_bar(opacity=0.75, stroke=theme.PAPER, strokeWidth=0.5)
        .encode(
            x=x, x2="to:Q", y=alt.Y("time:Q", title="share", axis=alt.Axis(format="~%")), color=color, tooltip=tooltip
        )
    )
    caps = drawn.draw([{**d, "s": names[1]} for d in data]).mark_rule(strokeWidth=2.5)
    caps = caps.encode(x=x, x2="to:Q", y="steps:Q", color=color, tooltip=tooltip)
    return _figure(drawn, [bars, caps], said)


def _horizontal(drawn: _Rows, marks: Sequence[tuple[float, str]]) -> list[alt.Chart]:
    """Return the layers of named horizontal lines."""
    if not marks:
        return []
    data = [{"y": value, "l": label} for value, label in marks]
    rule = drawn.draw(data).mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(y="y:Q")
    text = drawn.draw(data).mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=theme.LIMIT)
    return [rule, text.encode(x=alt.value(0), y="y:Q", text="l:N")]


def _styles(names: list[str]) -> dict[str, Any]:
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


def _axis(scale: _Scale, data: list[Row], marks: Sequence[tuple[float, str]]) -> alt.Axis:
    if scale.log:
        return _log_axis([*data, *({"y": value} for value, _ in marks)], "y")
    return alt.Axis(labelExpr=scale.labels) if scale.labels else alt.Axis(format=scale.format)


def _log_axis(data: list[Row], key: str) -> alt.Axis:
    """Return a logarithmic axis of milliseconds with a label at each power of ten, or at 1, 2, 5 if there are few."""
    values = [d[key] for d in data if d[key]]
    low, high = min(values), max(values)
    steps = (1,) if high / low > 2000 else (1, 2, 5)
    ticks = [m * 10.0**e for e in range(-6, 12) for m in steps]
    return alt.Axis(values=[_short(t) for t in ticks if low / 10 <= t <= high * 10], labelExpr=_MS_LABELS)


def _domain(scale: _Scale, floor: float | None) -> alt.Scale:
    if scale.log:
        return alt.Scale(type="log", nice=False)
    return alt.Scale(zero=True, domain=[0, scale.top]) if scale.top else alt.Scale(zero=True)


def _dots(few: bool) -> alt.OverlayMarkDef:
    return alt.OverlayMarkDef(size=26 if few else 8, filled=True)


def _hover(chart: alt.Chart) -> alt.Chart:
    """Return invisible points over a line: they carry the tooltip, and screen readers skip them."""
    return chart.mark_point(opacity=0, size=90, filled=True, aria=False)


def _figure(rows: "_Rows", layers: list[alt.Chart], said: str) -> Figure:
    """Put layers together; the description becomes the aria-label of the drawing."""
    chart = alt.layer(*layers).properties(
        width="container",
        height=HEIGHT,
        description=said,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    spec = chart.to_dict() | {"datasets": {name: table for name, table in rows.tables}, "config": theme.CONFIG}
    return Figure(spec, said)


def _per_second(noun: str) -> Callable[[float | None], str]:
    return lambda value: f"{words.number(value)} {noun}/s"


def _first(rows: list[Row]) -> Row:
    return rows[0] if rows else _Unknown()


class _Unknown(dict):
    """A row of which nothing is known."""

    def __missing__(self, key: str) -> None:
        return None


def _short(value: float | None) -> float | None:
    """Return six digits of a value: more than a chart shows, and half the page size."""
    return None if value is None else float(f"{value:.6g}")
