"""The chart of what a fit leaves: median error by load and by length, before and after."""

from typing import Any

import altair as alt

from pipeline.report import drawing, theme
from pipeline.report.shapes import NAMES

WIDTH = 340
BY = {
    "in_flight": "requests in the system at arrival",
    "input_tokens": "prompt tokens",
    "output_tokens": "output tokens",
}


def png(residuals: list[dict[str, Any]]) -> bytes:
    """Return the drawing as a PNG on white: one panel for each latency and what it is set out by."""
    import vl_convert

    rows = []
    for metric in dict.fromkeys(r["metric"] for r in residuals):
        chosen = [r for r in residuals if r["metric"] == metric]
        rows.append(alt.hconcat(*(_panel(chosen, by) for by in dict.fromkeys(r["by"] for r in chosen))))
    title = "Error of the replay against the log, in the part that was not fitted"
    spec = alt.vconcat(*rows, title=title).to_dict() | {"config": theme.CONFIG}
    spec = theme.for_image(spec) | {"background": "white", "padding": 12}
    return vl_convert.vegalite_to_png(spec, scale=2)


def _panel(residuals: list[dict[str, Any]], by: str) -> Any:
    rows = [
        {"x": drawing.short(r["x"]), "y": drawing.short(r["error_share"]), "s": r["when"]}
        for r in residuals
        if r["by"] == by
    ]
    name = NAMES[residuals[0]["metric"]]
    line = (
        alt.Chart(alt.InlineData(rows), width=WIDTH, height=180)
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("x:Q", title=BY[by], axis=alt.Axis(labelExpr=drawing.LARGE_LABELS)),
            y=alt.Y("y:Q", title=f"{name}, median error", axis=alt.Axis(labelExpr=drawing.SHARE_LABELS)),
            **drawing.styles(["before", "after"]),
        )
    )
    zero = alt.Chart(alt.InlineData([{"y": 0}])).mark_rule(color=theme.LIMIT, strokeDash=[4, 3]).encode(y="y:Q")
    return alt.layer(line, zero)
