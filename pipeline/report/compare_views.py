"""Charts and the table of a comparison of schedulers: a bar per policy and load."""

from collections.abc import Callable
from typing import Any

import altair as alt

from pipeline.report import drawing, theme, words
from pipeline.report.drawing import Scale
from pipeline.report.run import Row, Run
from pipeline.report.shapes import Figure, Heading, Nothing, Table

POLICY, LOAD = "engine.policy", "load.rate_scale"
BAR_HEIGHT = 13
HELD, EMPTY = "holds tokens", "held in reserve, empty"


def _policies(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["settings"][POLICY] for row in rows))


def _loads(rows: list[Row]) -> list[str]:
    return [f"load {load:g}" for load in sorted({row["settings"][LOAD] for row in rows})]


def _load(row: Row) -> str:
    return f"load {row['settings'][LOAD]:g}"


def bars(column: str, scale: Scale, metric: str = "") -> Callable[[Run, list[Row]], Figure | Nothing]:
    """Return the chart of one figure: policies one under the other, a bar for each load, the SLO as a line."""

    def draw(run: Run, rows: list[Row]) -> Figure | Nothing:
        known = [row for row in rows if row[column] is not None]
        if not known:
            return Nothing("No point has this figure, so there is nothing to draw.")
        loads = _loads(known)
        data = [
            {"p": r["settings"][POLICY], "s": _load(r), "x": drawing.short(r[column]), "run": r["run_id"]}
            for r in known
            if not (scale.log and not r[column])
        ]
        limit = run.limit_ms(metric) if metric else None
        marks = [{"x": limit}] if limit else []
        axis = drawing.log_axis([*data, *marks], "x") if scale.log else alt.Axis(labelExpr=scale.labels)
        # A bar has no natural start on a logarithmic axis, so points stand there.
        kind = alt.Scale(type="log", nice=False) if scale.log else alt.Scale(zero=True)
        drawn = drawing.Rows()
        chart = drawn.draw(data)
        marked = chart.mark_point(filled=True, size=70) if scale.log else chart.mark_bar(height={"band": 0.9})
        layers = [
            marked.encode(
                x=alt.X("x:Q", title=scale.title, scale=kind, axis=axis),
                y=alt.Y("p:N", title=None, sort=_policies(known)),
                yOffset=alt.YOffset("s:N", sort=loads),
                color=alt.Color(
                    "s:N",
                    sort=loads,
                    legend=alt.Legend(symbolType="square", symbolSize=140),
                    scale=alt.Scale(domain=loads, range=list(theme.SERIES[: len(loads)])),
                ),
                tooltip=[
                    alt.Tooltip("p:N", title="policy"),
                    alt.Tooltip("s:N", title="load"),
                    alt.Tooltip("x:Q", title=scale.title, format=scale.tip),
                    alt.Tooltip("run:N", title="run"),
                ],
            )
        ]
        if limit:
            layers.append(drawn.draw([{"x": limit}]).mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(x="x:Q"))
        return _sized(drawing.layered(drawn, layers, _said(known, column, scale, limit)), known)

    return draw


def _sized(figure: Figure, rows: list[Row]) -> Figure:
    height = max(drawing.HEIGHT, BAR_HEIGHT * len(_policies(rows)) * len(_loads(rows)))
    return Figure(figure.spec | {"height": height}, figure.alt)


def _said(rows: list[Row], column: str, scale: Scale, limit: float | None) -> str:
    parts = []
    for policy in _policies(rows):
        own = sorted((r["settings"][LOAD], r[column]) for r in rows if r["settings"][POLICY] == policy)
        parts.append(f"{policy} {', '.join(f'{scale.say(value)} at load {load:g}' for load, value in own)}")
    line = f" Line: SLO {scale.say(limit)}." if limit else ""
    return f"{scale.title[0].upper()}{scale.title[1:]}: {'; '.join(parts)}.{line}"


def memory(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Return the chart of KV memory: what holds tokens, and what is held and empty, of all there is."""
    known = [row for row in rows if row["kv_used_share"] is not None]
    if not known:
        return Nothing("No step ran, so nobody held memory.")
    data: list[dict[str, Any]] = []
    for row in known:
        used = row["kv_used_share"]
        held = min(row["kv_held_share"], used)  # shared prefixes count once here
        place = {"p": row["settings"][POLICY], "l": _load(row), "run": row["run_id"]}
        data.append(place | {"s": HELD, "x": drawing.short(held)})
        data.append(place | {"s": EMPTY, "x": drawing.short(used - held)})
    drawn = drawing.Rows()
    names = [HELD, EMPTY]
    bar = drawn.draw(data).mark_bar(height={"band": 0.9}, stroke=theme.PAPER, strokeWidth=0.5)
    layer = bar.encode(
        x=alt.X(
            "x:Q",
            title="share of KV memory, mean while steps run",
            stack="zero",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(labelExpr=drawing.SHARE_LABELS),
        ),
        y=alt.Y("p:N", title=None, sort=_policies(known)),
        yOffset=alt.YOffset("l:N", sort=_loads(known)),
        order=alt.Order("s:N", sort="descending"),
        color=alt.Color(
            "s:N",
            sort=names,
            legend=alt.Legend(symbolType="square", symbolSize=140),
            scale=alt.Scale(domain=names, range=list(theme.SERIES[:2])),
        ),
        tooltip=[
            alt.Tooltip("p:N", title="policy"),
            alt.Tooltip("l:N", title="load"),
            alt.Tooltip("s:N", title="memory"),
            alt.Tooltip("x:Q", title="share", format=".1%"),
            alt.Tooltip("run:N", title="run"),
        ],
    )
    parts = [
        f"{row['settings'][POLICY]} at {_load(row)} {words.share(row['kv_used_share'])} in use, "
        f"{words.share(min(row['kv_held_share'], row['kv_used_share']))} holding tokens"
        for row in known
    ]
    return _sized(drawing.layered(drawn, [layer], f"KV memory: {'; '.join(parts)}."), known)


def points(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return every policy at every load with its figures; the last cell is the run."""
    columns: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("requests/s", "completed_rps", words.number),
        ("goodput", "goodput_rps", words.number),
        ("within SLO", "slo_share", words.share),
        ("TTFT p95", "ttft_p95_ms", words.milliseconds),
        ("TPOT p95", "tpot_p95_ms", words.milliseconds),
        ("token gap p99", "itl_p99_ms", words.milliseconds),
        ("KV in use", "kv_used_share", words.share),
        ("KV holding tokens", "kv_held_share", words.share),
        ("places used", "place_share", words.share),
        ("places empty while others wait", "place_idle_share", words.share),
        ("computed again", "recomputed_share", words.share),
    )
    headings = (
        Heading("policy", False),
        Heading("load"),
        *(Heading(name) for name, _, _ in columns),
        Heading("run", False),
    )
    cells = [
        [
            f"{r['settings'][POLICY]}{' (chosen)' if r['chosen'] else ''}",
            f"{r['settings'][LOAD]:g}",
            *(write(r[column]) for _, column, write in columns),
            r["run_id"],
        ]
        for r in rows
    ]
    note = "Shared prefixes count as held by every request that shares them."
    return Table(headings, cells, note=note, links=tuple(r["link"] for r in rows))


def _ms(title: str) -> Scale:
    return Scale(f"{title} (logarithmic scale)", words.milliseconds, log=True)


CHARTS: dict[str, Callable[[Run, list[Row]], Figure | Nothing]] = {
    "compare_goodput": bars("goodput_rps", Scale("requests per second within the SLO", words.number)),
    "compare_throughput": bars("output_tokens_per_s", Scale("tokens generated per second", words.number)),
    "compare_ttft": bars("ttft_p95_ms", _ms("95th percentile of TTFT"), "ttft"),
    "compare_tpot": bars("tpot_p95_ms", _ms("95th percentile of TPOT"), "tpot"),
    "compare_itl": bars("itl_p99_ms", _ms("99th percentile of all token gaps")),
    "compare_places": bars("place_idle_share", drawing.share_scale("places empty while requests wait")),
    "compare_recomputed": bars("recomputed_share", drawing.share_scale("share of computed tokens", top=1.0)),
    "compare_memory": memory,
}
TABLES: dict[str, Callable[[Run, list[Row]], Table | Nothing]] = {"compare_points": points}
