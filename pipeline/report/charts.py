"""Charts of the report: rows of one answer in, one Vega-Lite drawing with its text alternative out.

Every function takes the run and the rows and returns a `Figure`, or `Nothing` with the reason when there is
nothing to draw. Rows are aggregates (at most a few hundred), whatever the number of requests.
"""

from collections.abc import Callable
from typing import Any

import altair as alt

from pipeline.report import drawing, theme, words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import NAMES, NOT_OBSERVED, Figure, Nothing

SIDES = {"observed": "log", "predicted": "replay"}


def latency_curves(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw what share of requests (or token gaps) waits at most so long, with the SLO as vertical lines."""
    metrics = ("ttft", "tpot", "itl", "e2e")
    rows = [r for r in rows if r["metric"] in metrics and r["value_ms"] is not None and r["value_ms"] > 0]
    if not rows:
        return Nothing("No request got an answer, so there is no latency to draw.")
    present = [m for m in metrics if any(r["metric"] == m for r in rows)]
    data = [{"x": drawing.short(r["value_ms"]), "y": drawing.short(r["share"]), "s": NAMES[r["metric"]]} for r in rows]
    names = [NAMES[m] for m in present]
    drawn = drawing.Rows()
    limits = [(m, run.limit_ms(m)) for m in present]
    marks = [{"x": v, "l": f"{NAMES[m]} SLO {words.milliseconds(v)}"} for m, v in limits if v]
    layers = _curves(drawn, data, drawing.styles(names))
    if marks:
        rules = drawn.draw(marks)
        layers.append(rules.mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(x="x:Q"))
        layers += [text.encode(x="x:Q", y=alt.datum(0)) for text in drawing.labels_of(rules, angle=270)]
    p95 = {r["metric"]: r["p95_ms"] for r in run.answer("latency")}
    said = ", ".join(f"{NAMES[m]} {words.milliseconds(p95.get(m))}" for m in present)
    return drawing.layered(drawn, layers, f"Cumulative distribution of {', '.join(names)}. 95th percentiles: {said}.")


def observed_curves(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the distributions of TTFT and E2E in the log and in the replay; TPOT where the log gives it."""
    rows = [r for r in rows if r["value_ms"] is not None and r["value_ms"] > 0]
    if not rows:
        return Nothing(NOT_OBSERVED)
    names = list(dict.fromkeys(_side(r) for r in rows))
    data = [{"x": drawing.short(r["value_ms"]), "y": drawing.short(r["share"]), "s": _side(r)} for r in rows]
    drawn = drawing.Rows()
    said = ", ".join(
        f"{NAMES[r['metric']]} {' and '.join(words.milliseconds(r[f'{side}_p50_ms']) for side in SIDES)}"
        for r in run.answer("observed_error")
    )
    layers = _curves(drawn, data, _pairs(names))
    return drawing.layered(drawn, layers, f"Distributions of latency in log and replay. Medians: {said}.")


def _curves(drawn: drawing.Rows, data: list[Row], styles: dict[str, Any]) -> list[Any]:
    """Return the layers of cumulative distributions: rows of x (milliseconds), y (share) and s (name)."""
    x = alt.X(
        "x:Q",
        title="latency (logarithmic scale)",
        scale=alt.Scale(type="log", nice=False),
        axis=drawing.log_axis(data, "x"),
    )
    y = alt.Y(
        "y:Q", title="share at or below", axis=alt.Axis(labelExpr=drawing.SHARE_LABELS), scale=alt.Scale(domain=[0, 1])
    )
    line = drawn.draw(data).mark_line(strokeWidth=2, interpolate="monotone").encode(x=x, y=y, **styles)
    hover = drawing.hover(drawn.draw(data)).encode(
        x="x:Q",
        y="y:Q",
        tooltip=[
            alt.Tooltip("s:N", title="metric"),
            alt.Tooltip("x:Q", title="ms", format=",.4~g"),
            alt.Tooltip("y:Q", title="share at or below", format=".1%"),
        ],
    )
    return [line, hover]


def _side(row: Row) -> str:
    return f"{NAMES[row['metric']]}, {SIDES[row['side']]}"


def _pairs(names: list[str]) -> dict[str, Any]:
    """Return one colour for each metric; the log is a plain line, the replay a dashed one."""
    metrics = list(dict.fromkeys(name.split(",")[0] for name in names))
    colors = [theme.SERIES[metrics.index(name.split(",")[0])] for name in names]
    dashes = [[1, 0] if name.endswith("log") else [5, 3] for name in names]
    return {
        "color": alt.Color("s:N", legend=alt.Legend(), sort=names, scale=alt.Scale(domain=names, range=colors)),
        "strokeDash": alt.StrokeDash(
            "s:N", legend=alt.Legend(), sort=names, scale=alt.Scale(domain=names, range=dashes)
        ),
    }


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
        scale = drawing.Scale(
            f"{NAMES[metric]}{' (logarithmic scale)' if log else ''}",
            words.milliseconds,
            labels=drawing.MS_LABELS,
            log=log,
        )
        series = (drawing.Series("p95_ms", "95th percentile"), drawing.Series("p50_ms", "median"))
        marks = [(limit, f"SLO {words.milliseconds(limit)}")] if limit else []
        return drawing.over_time(run, rows, series, scale, marks, points=True)

    return draw


def arrivals(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw requests per second, arriving and answered in full."""
    series = [drawing.Series("arrivals_per_s", "arriving"), drawing.Series("completed_per_s", "answered in full")]
    if any(r["unanswered_per_s"] for r in rows):
        series.append(drawing.Series("unanswered_per_s", "refused, given up or never finished"))
    return drawing.over_time(run, rows, series, drawing.Scale("requests per second", _per_second("requests")))


def users(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how many requests are in the system at once, with the range inside each bucket."""
    series = (drawing.Series("users_mean", "mean", "users_min", "users_max"),)
    return drawing.over_time(run, rows, series, drawing.Scale("requests in the system", words.number))


def output_tokens(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the tokens generated per second."""
    series = (drawing.Series("output_tokens_per_s", "tokens generated"),)
    return drawing.over_time(
        run, rows, series, drawing.Scale("generated tokens per second", _per_second("tokens"), drawing.LARGE_LABELS)
    )


def prefill_tokens(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw prompt tokens computed and prompt tokens found in the cache, per second."""
    series = [drawing.Series("prefill_tokens_per_s", "computed")]
    if any(r["hit_tokens_per_s"] for r in rows):
        series.append(drawing.Series("hit_tokens_per_s", "found in the cache"))
    return drawing.over_time(
        run, rows, series, drawing.Scale("prompt tokens per second", _per_second("tokens"), drawing.LARGE_LABELS)
    )


def batch(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the requests running, with the range inside each bucket, and the batch limit where it is near."""
    series = (drawing.Series("running_mean", "mean", "running_min", "running_max"),)
    limit = run.config["engine"].get("max_num_seqs")
    peak = max((r["running_max"] for r in rows if r["running_max"] is not None), default=0)
    marks = [(limit, f"max_num_seqs {limit}")] if limit and peak > limit / 3 else []
    steady = run.one("steady_state")
    ends = ((steady["from_s"], "filled"), (steady["to_s"], "last arrival"))
    moments = [(at_s, label) for at_s, label in ends if at_s is not None]
    return drawing.over_time(run, rows, series, drawing.Scale("requests running", words.number), marks, moments=moments)


def queue(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the requests waiting, with the range inside each bucket."""
    if rows and not any(r["waiting_max"] for r in rows):
        return Nothing("No request ever waited for a later step: each one started at the first decision it met.")
    series = (drawing.Series("waiting_mean", "mean", "waiting_min", "waiting_max"),)
    return drawing.over_time(run, rows, series, drawing.Scale("requests waiting", words.number))


def kv_memory(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the share of KV blocks in use and of blocks holding cached prefixes, with the line of 100 %."""
    series = [drawing.Series("kv_mean_share", "in use by requests", "kv_min_share", "kv_max_share")]
    if any(r["cached_mean_share"] for r in rows):
        series.append(drawing.Series("cached_mean_share", "holding cached prefixes"))
    scale = drawing.share_scale("share of KV blocks", top=1.05)
    return drawing.over_time(run, rows, series, scale, [(1.0, "all blocks, 100 %")])


def hit_share(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the share of prompt tokens found in the prefix cache."""
    if not run.config["engine"].get("enable_prefix_caching", True):
        return Nothing("Prefix caching is off in this run.")
    if run.manifest["trace"].get("with_prefix") == 0 and not any(r["hit_share"] for r in rows):
        return Nothing(
            "The trace does not tell which prompts share a prefix, so the cache had nothing to find. "
            "Real traffic may do better."
        )
    series = (drawing.Series("hit_share", "found in the cache"),)
    scale = drawing.share_scale("share of prompt tokens")
    return drawing.over_time(run, rows, series, scale, points=True)


def slo_share(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw the share of requests within the SLO, by arrival."""
    lowest = min((r["slo_share"] for r in rows if r["slo_share"] is not None), default=0.0)
    bottom = int(lowest * 10) / 10 if lowest < 1 else 0.9
    scale = drawing.share_scale("share of requests", bottom=0.0 if bottom < 0.5 else bottom)
    return drawing.over_time(run, rows, (drawing.Series("slo_share", "within the SLO"),), scale, points=True)


def batch_size(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how step time and steps spread over batch sizes."""
    rows = [{**r, "from": r["from_requests"], "to": r["to_requests"]} for r in rows]
    summary = run.one("step_summary")
    said = (
        f"Share of step time by requests in the batch. On average over step time "
        f"{words.number(summary['batch_time_mean'])} requests, at most {words.count(summary['batch_max'])}."
    )
    return drawing.histogram(
        rows,
        "requests in the step",
        alt.Scale(nice=False),
        alt.Axis(labelExpr=drawing.NUMBER_LABELS, tickMinStep=1, tickCount=8),
        said,
    )


def step_time(run: Run, rows: list[Row]) -> Figure | Nothing:
    """Draw how step time and steps spread over durations, on a logarithmic scale."""
    rows = [{**r, "from": drawing.short(r["from_ms"]), "to": drawing.short(r["to_ms"])} for r in rows]
    summary = run.one("step_summary")
    said = (
        f"Share of steps by duration. Median {words.milliseconds(summary['step_p50_ms'])}, 95th percentile "
        f"{words.milliseconds(summary['step_p95_ms'])}, longest {words.milliseconds(summary['step_max_ms'])}."
    )
    edges = [{"x": r[side]} for r in rows for side in ("from", "to")]
    axis = drawing.log_axis(edges, "x") if edges else alt.Axis()
    return drawing.histogram(
        rows, "duration of the step (logarithmic scale)", alt.Scale(type="log", nice=False), axis, said
    )


CHARTS: dict[str, Callable[[Run, list[Row]], Figure | Nothing]] = {
    "latency_curves": latency_curves,
    "observed_curves": observed_curves,
    "ttft_by_minute": minute_latency("ttft"),
    "tpot_by_minute": minute_latency("tpot"),
    "arrivals": arrivals,
    "users": users,
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


def _per_second(noun: str) -> Callable[[float | None], str]:
    return lambda value: f"{words.number(value)} {noun}/s"
