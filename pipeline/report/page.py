"""The HTML page: one file that needs no network, with the chart library inside it once."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.report import theme, words
from pipeline.report.contents import Contents
from pipeline.report.shapes import Heading
from pipeline.resources import folder


def html(contents: Contents) -> str:
    """Return the page of one run."""
    run = contents.run
    charts = {part.id: figure.spec for part, figure in contents.figures()}
    return _render(
        "page.html.j2",
        contents=contents,
        manifest=run.manifest,
        run_id=run.run_id,
        digest=run.digest,
        charts=charts,
        bundle=_bundle() if charts else "",
    )


def index(reports: list[tuple[Contents, str]]) -> str:
    """Return the page that sets several runs side by side; each comes with the link to its own page."""
    rows = [{"contents": contents, "link": link, "cells": cells(contents)} for contents, link in reports]
    return _render("index.html.j2", rows=rows, headings=HEADINGS)


HEADINGS = (
    Heading("run", False), Heading("trace", False), Heading("hardware", False), Heading("requests/s"),
    Heading("users, mean"), Heading("TTFT p95"), Heading("TPOT p95"), Heading("E2E p95"), Heading("KV peak"),
    Heading("within SLO"), Heading("goodput, requests/s"), Heading("not replayed"),
)  # fmt: skip


def cells(contents: Contents) -> list[str]:
    """Return the headline figures of a run as the row of an index, in the order of HEADINGS."""
    run, row = contents.run, contents.run.one("headline")
    hardware = run.manifest["hardware"]
    size = hardware.get("tensor_parallel_size") or 1
    return [
        run.run_id, run.manifest["trace"]["path"], f"{hardware['model']}, {size} x {hardware['gpu']}",
        words.number(row["offered_rps"]), words.number(row["users_mean"]), words.milliseconds(row["ttft_p95_ms"]),
        words.milliseconds(row["tpot_p95_ms"]), words.milliseconds(row["e2e_p95_ms"]),
        words.share(row["kv_peak_share"], 0), words.share(row["slo_share"]), words.number(row["goodput_rps"]),
        words.count(row["not_replayed"]),
    ]  # fmt: skip


def _render(template: str, **values: Any) -> str:
    root = folder("reports")
    css = (root / "page.css").read_text(encoding="utf-8")
    return (
        _environment(root)
        .get_template(template)
        .render(css=css, light=theme.css(theme.LIGHT), dark=theme.css(theme.DARK), plural=words.plural, **values)
    )


@cache
def _environment(root: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(root, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["together"] = words.together
    return environment


@cache
def _bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    script = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub misses the default
    if "</script" in script.lower() or "<!--" in script:
        raise AssertionError("the chart library cannot be put into a script element as it is")
    return script
