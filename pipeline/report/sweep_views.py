"""Charts and the table of a sweep: rows of `sweep_points`, each with its number, settings and link."""

from collections.abc import Callable
from typing import Any

import altair as alt

from pipeline.report import drawing, theme, words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import NAMES, Figure, Heading, Nothing, Table

MOST_NUMBERS = 60  # of points that are numbered in a chart; more would cover each other

THROUGHPUT, GOODPUT = "answered in full", "goodput: within the SLO"
_SERIES = ((THROUGHPUT, "completed_rps"), (GOODPUT, "goodput_rps"))


def against(metric: str) -> Callable[[Run, list[Row]], Figure | Nothing]:
    """Return the chart of throughput and goodput against the 95th percentile of a metric, with its SLO as a line."""

    def draw(run: Run, rows: list[Row]) -> Figure | Nothing:
        column = f"{metric}_p95_ms"
        known = [r for r in rows if r[column] is not None and r["completed_rps"] is not None]
        if not known:
            return Nothing(f"No point has a {NAMES[metric]}, so there is nothing to draw.")
        limit = run.limit_ms(metric)
        log = _is_wide([r[column] for r in known], limit)
        data = [
            _mark(r, name, r[figure], r[column]) for r in known for name, figure in _SERIES if r[figure] is not None
        ]
        x = alt.X(
            "x:Q",
            title=f"95th percentile of {NAMES[metric]}{' (logarithmic scale)' if log else ''}",
            scale=alt.Scale(type="log", nice=False, padding=24) if log else alt.Scale(zero=True, nice=True),
            axis=drawing.log_axis([*data, *([{"x": limit}] if limit else [])], "x")
            if log
            else alt.Axis(labelExpr=drawing.MS_LABELS),
        )
        y = alt.Y("y:Q", title="requests per second", axis=alt.Axis(labelExpr=drawing.NUMBER_LABELS))
        drawn = drawing.Rows()
        layers = _limit(drawn, metric, limit) + _points(drawn, data, x, y)
        return drawing.layered(drawn, layers, _said(known, metric, limit))

    return draw


def _is_wide(values: list[float], limit: float | None) -> bool:
    spread = [*values, limit] if limit else values
    return min(spread) > 0 and max(spread) / min(spread) > 10


def _mark(row: Row, series: str, value: float, x: float) -> dict[str, Any]:
    return {
        "x": drawing.short(x),
        "y": drawing.short(value),
        "s": series,
        "p": row["point"],
        "t": row["settings_text"],
        "c": bool(row["chosen"]),
        "run": row["run_id"],
        "href": row["link"],
        "slo": words.share(row["slo_share"]),
    }


def _points(drawn: drawing.Rows, data: list[dict[str, Any]], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return a mark per point and series, a ring around the chosen one, and the numbers of the points."""
    names = [name for name, _ in _SERIES]
    legend = alt.Legend(symbolType="circle", symbolSize=90)
    chart = drawn.draw(data)
    marks = chart.mark_point(filled=True, size=90, opacity=0.9, cursor="pointer").encode(
        x=x,
        y=y,
        color=alt.Color(
            "s:N", sort=names, legend=legend, scale=alt.Scale(domain=names, range=list(theme.SERIES[: len(names)]))
        ),
        shape=alt.Shape("s:N", sort=names, legend=legend, scale=alt.Scale(domain=names, range=["circle", "diamond"])),
        href="href:N",
        tooltip=[
            alt.Tooltip("p:Q", title="point"),
            alt.Tooltip("t:N", title="settings"),
            alt.Tooltip("s:N", title="series"),
            alt.Tooltip("y:Q", title="requests/s", format=",.4~g"),
            alt.Tooltip("x:Q", title="p95, ms", format=",.4~g"),
            alt.Tooltip("slo:N", title="SLO kept by"),
            alt.Tooltip("run:N", title="run"),
        ],
    )
    layers = [marks]
    chosen = [row for row in data if row["c"] and row["s"] == GOODPUT]
    if chosen:
        ring = drawn.draw(chosen).mark_point(filled=False, size=320, strokeWidth=2, color=theme.LIMIT, aria=False)
        layers.append(ring.encode(x="x:Q", y="y:Q"))
    numbered = [row for row in data if row["s"] == GOODPUT]
    if len(numbered) <= MOST_NUMBERS:
        text = drawn.draw(numbered).mark_text(dx=8, dy=-9, align="left", color=theme.TEXT, aria=False)
        layers.append(text.encode(x="x:Q", y="y:Q", text="p:N"))
    return layers


def _limit(drawn: drawing.Rows, metric: str, limit: float | None) -> list[alt.Chart]:
    if not limit:
        return []
    rules = drawn.draw([{"x": limit, "l": f"{NAMES[metric]} SLO {words.milliseconds(limit)}"}])
    line = rules.mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(x="x:Q")
    return [line, *(text.encode(x="x:Q", y=alt.datum(0)) for text in drawing.labels_of(rules, angle=270))]


def _said(rows: list[Row], metric: str, limit: float | None) -> str:
    """Return the text alternative: the ranges, and the chosen point."""
    column = f"{metric}_p95_ms"
    low, high = (words.milliseconds(f(r[column] for r in rows)) for f in (min, max))
    most = words.number(max(r["completed_rps"] for r in rows))
    good = words.number(max(r["goodput_rps"] or 0.0 for r in rows))
    line = f" Line: SLO {words.milliseconds(limit)}." if limit else ""
    chosen = "".join(
        f" Chosen: point {r['point']} with {words.number(r['goodput_rps'])} requests/s within the SLO at "
        f"{words.milliseconds(r[column])}."
        for r in rows
        if r["chosen"]
    )
    return (
        f"Throughput and goodput of {words.plural(len(rows), 'point')} against the 95th percentile of {NAMES[metric]}, "
        f"{low} to {high}: at most {most} requests/s answered, {good} within the SLO.{line}{chosen}"
    )


def points(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return every point with its settings and figures, in the order of the grid; the last cell is the run."""
    columns: tuple[tuple[str, Callable[[Any], str]], ...] = (
        ("completed_rps", words.number),
        ("goodput_rps", words.number),
        ("goodput_per_gpu_rps", words.number),
        ("ttft_p95_ms", words.milliseconds),
        ("tpot_p95_ms", words.milliseconds),
        ("kv_peak_share", lambda value: words.share(value, 0)),
        ("slo_share", words.share),
        ("gpus", words.count),
    )
    headings = (
        Heading("point", False), Heading("settings", False), Heading("requests/s"), Heading("goodput"),
        Heading("goodput per accelerator"), Heading("TTFT p95"), Heading("TPOT p95"), Heading("KV peak"),
        Heading("within SLO"), Heading("accelerators"), Heading("run", False),
    )  # fmt: skip
    cells = [
        [
            f"{r['point']}{' (chosen)' if r['chosen'] else ''}",
            r["settings_text"],
            *(write(r[name]) for name, write in columns),
            r["run_id"],
        ]
        for r in rows
    ]
    return Table(headings, cells, links=tuple(r["link"] for r in rows))


CHARTS: dict[str, Callable[[Run, list[Row]], Figure | Nothing]] = {
    "sweep_ttft": against("ttft"),
    "sweep_tpot": against("tpot"),
}
TABLES: dict[str, Callable[[Run, list[Row]], Table | Nothing]] = {"sweep_points": points}
