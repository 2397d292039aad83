"""The page of a purchase: `purchase.json` and the answers about it, as the report of a run is."""

import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pipeline.errors import RunError
from pipeline.query import purchases, session
from pipeline.report import blocks, contents, purchase_views, words
from pipeline.report.contents import Chapter, Contents, Tile
from pipeline.report.run import Run
from pipeline.resources import folder as resource_folder

LEFT_OUT = (
    "what a vendor does not publish is assumed: bucket depth, windows, the output counted at admission, the cache of "
    "the pay-as-you-go side (see the rules in the table of what would change the answer)",
    "latency and quality of answers; a spilled request only loses a constant delay",
    "taxes, support plans, network and storage, negotiated discounts that are not stated",
    "traffic is taken to repeat as logged; failed and throttled requests of the log are not counted",
)


_NARROW = ("choice", "units", "term", "USD/month", "against", "USD/1M", "spilled")


def open_purchase(folder: Path) -> Run:
    """Open a purchase folder as a report sees it; RunError if it is none."""
    if not purchases.is_one(folder):
        raise RunError(f"{folder}: has no {purchases.FILE}, so this is no purchase")
    facts = dict(purchases.read(folder).facts)
    connection = session.open([folder], keep=True)
    digest = facts["purchase_id"]
    manifest = facts | {"run_id": digest, "config_digest": digest, "engine_version": facts["program"]}
    return Run(folder, manifest, lambda name, params: session.answer_rows(connection, name, **params))


def collect(folder: Path) -> Contents:
    """Read the purchase in a folder and put its page in order; RunError if it is none."""
    run = open_purchase(folder)
    facts = run.manifest
    page = blocks.load(resource_folder("reports") / "purchase.toml")
    chapters = [
        Chapter(section.id, section.heading, [contents.part(section, one) for one in shown])
        for section, shown in blocks.show(page, run)
    ]
    return Contents(
        run=run,
        title=page.title,
        setting=_setting(facts),
        headline=facts["recommendation"],
        verdict="",
        binds="",
        certainty="",
        records=_records(facts),
        tiles=_tiles(facts),
        chapters=chapters,
        unmodelled=list(LEFT_OUT),
        warnings=list(facts["warnings"]),
        settings=[
            ("Rates and prices, with their dates", [*contents.flat(facts["offer"])]),
            ("Trace", [*contents.flat(facts["trace"])]),
            ("Settings, with every default", [*contents.flat(facts["prices"])]),
        ],
        noun="purchase",
    )


def show(folder: Path, console: Console) -> None:
    """Print the recommendation, the choices and the warnings."""
    run = open_purchase(folder)
    for line in textwrap.wrap(run.manifest["recommendation"], console.width):
        console.print(Text(line, style="bold"))
    console.print()
    choices = purchase_views.choices(run, run.answer("purchase_choices"))
    shown = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for name, heading in zip(_NARROW, choices.headings, strict=True):
        shown.add_column(name, justify="right" if heading.is_number else "left", no_wrap=True)
    for row in choices.rows:
        choice = row[0].replace(purchase_views.RECOMMENDED, " *").replace(purchase_views.TOO_SHORT, " -")
        shown.add_row(choice, *row[1:])
    console.print(shown)
    console.print(Text("* recommended, - the log is too short for this term"))
    console.print()
    for text in run.manifest["warnings"]:
        for line in textwrap.wrap(f"- {text}", console.width, subsequent_indent="  "):
            console.print(Text(line))


def _setting(facts: dict[str, Any]) -> str:
    offer = facts["offer"]
    region = f", {offer['region']}" if offer["region"] else ""
    return f"{offer['model']} on {offer['product']}, {offer['deployment_type']}{region}"


def _records(facts: dict[str, Any]) -> str:
    figures, trace = facts["figures"], facts["trace"]
    span = words.seconds(60 * figures["span_minutes"])
    where = f" Only requests with {trace['where']} were taken." if trace.get("where") else ""
    return (
        f"{words.plural(figures['requests'], 'request')} over {span}, taken to repeat for a month of "
        f"{words.count(figures['minutes_per_month'] / 60)} hours.{where}"
    )


def _tiles(facts: dict[str, Any]) -> list[Tile]:
    figures, unit = facts["figures"], facts["offer"]["unit"]
    sure = figures["confidence"]
    return [
        Tile("recommended", f"{words.count(figures['best_units'])} {unit}", figures["best_term"] or "nothing to buy"),
        Tile("cost of a month", purchase_views.usd(figures["best_usd_month"])),
        Tile("pay-as-you-go", purchase_views.usd(figures["payg_usd_month"]), "a month"),
        Tile("saves money", words.share(sure["probability"], 0) if sure else words.UNKNOWN, "of resampled days"),
        Tile("demand, mean", f"{words.number(figures['mean_units'])} {unit}"),
        Tile("demand, peak", f"{words.number(figures['peak_units'])} {unit}", "highest minute"),
        Tile("a busy unit saves", purchase_views.usd(figures["value_usd_per_unit_month"]), "a month, never idle"),
    ]
