"""Colours and fonts of charts: Okabe-Ito hues, named by CSS variables so that one drawing serves light, dark and print.

A chart on the page is an SVG whose colours are `var(--...)`; the page's stylesheet gives them values. A PNG
has no stylesheet, so `for_image` writes the light values in.
"""

from typing import Any

SERIES = ("var(--series-1)", "var(--series-2)", "var(--series-3)", "var(--series-4)")
DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3])
TEXT = "var(--chart-text)"
GRID = "var(--chart-grid)"
LIMIT = "var(--limit)"
PAPER = "var(--paper)"

LIGHT = {
    "--paper": "#ffffff",
    "--chart-text": "#3c4148",
    "--chart-grid": "#dfe2e6",
    "--limit": "#1a1a1a",
    "--series-1": "#0072b2",
    "--series-2": "#d55e00",
    "--series-3": "#009e73",
    "--series-4": "#b0578d",
}
DARK = {
    "--paper": "#15181c",
    "--chart-text": "#c9ced6",
    "--chart-grid": "#343a42",
    "--limit": "#f2f2f2",
    "--series-1": "#56b4e9",
    "--series-2": "#e69f00",
    "--series-3": "#1fc798",
    "--series-4": "#cc79a7",
}

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": TEXT,
        "titleColor": TEXT,
        "tickColor": GRID,
        "domainColor": TEXT,
        "gridColor": GRID,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelFontWeight": "normal",
    },
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6, "tickCount": 5},
    "axisX": {"grid": False, "labelOverlap": "greedy", "labelSeparation": 8, "labelFlush": True},
    "legend": {
        "labelColor": TEXT,
        "titleColor": TEXT,
        "labelFontSize": 12,
        "title": None,
        "orient": "top",
        "direction": "horizontal",
        "columns": 2,
        "symbolType": "stroke",
        "symbolSize": 300,
        "symbolStrokeWidth": 2.5,
        "labelLimit": 280,
    },
    "text": {"color": TEXT, "fontSize": 12},
}


def for_image(value: Any) -> Any:
    """Return a copy of a chart specification with the light values in place of the CSS variables."""
    if isinstance(value, dict):
        return {key: for_image(item) for key, item in value.items()}
    if isinstance(value, list):
        return [for_image(item) for item in value]
    if isinstance(value, str) and value.startswith("var(--"):
        return LIGHT[value[4:-1]]
    return value


def css(colours: dict[str, str]) -> str:
    """Return the colours as CSS declarations."""
    return " ".join(f"{name}: {colour};" for name, colour in colours.items())
