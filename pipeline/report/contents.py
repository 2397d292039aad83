"""All that a report says about one run, in order, before it becomes HTML or Markdown."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.report import blocks, headline, words
from pipeline.report.blocks import Block
from pipeline.report.run import Run
from pipeline.report.shapes import Figure, Nothing, Table


@dataclass(frozen=True, slots=True)
class Part:
    """One block of the page, answered."""

    id: str
    block: Block
    query: str
    content: Figure | Table | Nothing

    @property
    def kind(self) -> str:
        """One of chart, table, nothing."""
        return {Figure: "chart", Table: "table", Nothing: "nothing"}[type(self.content)]

    @property
    def image(self) -> str:
        """Place of the PNG beside the page."""
        return f"charts/{self.id}.png"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Blocks under one heading."""

    id: str
    heading: str
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure at the top of the page."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """The whole report of one run."""

    run: Run
    title: str
    setting: str
    headline: str
    verdict: str
    binds: str
    certainty: str
    records: str
    tiles: list[Tile]
    chapters: list[Chapter]
    unmodelled: list[str]
    warnings: list[str]
    settings: list[tuple[str, list[tuple[str, str]]]]
    noun: str = "run"  # what the id under a figure is the id of

    def figures(self) -> Iterator[tuple[Part, Figure]]:
        """Yield every chart that there is."""
        for chapter in self.chapters:
            for part in chapter.parts:
                if isinstance(part.content, Figure):
                    yield part, part.content


def collect(run: Run, page: blocks.Page) -> Contents:
    """Ask every question of the page and put the answers in order."""
    chapters = []
    for section, shown in blocks.show(page, run):
        chapters.append(Chapter(section.id, section.heading, [part(section, one) for one in shown]))
    return Contents(
        run=run,
        title=page.title,
        setting=headline.setting(run),
        headline=headline.sentence(run),
        verdict=headline.verdict(run),
        binds=headline.what_binds(run),
        certainty=" ".join(text for text in (headline.certainty(run), headline.evidence(run)) if text),
        records=headline.records(run),
        tiles=_tiles(run),
        chapters=chapters,
        unmodelled=list(run.manifest.get("unmodelled") or []),
        warnings=list(run.manifest.get("warnings") or []),
        settings=_settings(run),
    )


def part(section: blocks.Section, shown: blocks.Shown) -> Part:
    """Return a block of a page with what it came to."""
    return Part(blocks.block_id(section, shown.block), shown.block, _call(shown), shown.content)


def _call(shown: blocks.Shown) -> str:
    """Return the answer with its parameters as `servecast sql` takes it."""
    if not shown.params:
        return shown.block.answer
    given = ", ".join(f"{name} := {json.dumps(value)}" for name, value in shown.params.items())
    return f"{shown.block.answer}({given})"


def _tiles(run: Run) -> list[Tile]:
    row = run.one("headline")
    return [
        Tile("TTFT p95", words.milliseconds(row["ttft_p95_ms"]), _median(row["ttft_p50_ms"])),
        Tile("TPOT p95", words.milliseconds(row["tpot_p95_ms"]), _median(row["tpot_p50_ms"])),
        Tile("E2E p95", words.milliseconds(row["e2e_p95_ms"]), _median(row["e2e_p50_ms"])),
        Tile("within the SLO", words.share(row["slo_share"]), headline.promise(run)),
        Tile("goodput", words.number(row["goodput_rps"]), "requests/s within the SLO"),
        Tile("KV memory peak", words.share(row["kv_peak_share"], 0), f"mean {words.share(row['kv_mean_share'], 0)}"),
        Tile("cache hits", words.share(row["hit_share"]), "of prompt tokens"),
        Tile("tokens generated", words.number(row["output_tokens_per_s"]), "per second"),
    ]


def _median(value: float | None) -> str:
    return f"median {words.milliseconds(value)}"


def _settings(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return trace, hardware and every setting with its resolved value, as keys and texts."""
    manifest = run.manifest
    return [
        ("Trace", [*flat(manifest["trace"])]),
        ("Hardware", [*flat(manifest["hardware"])]),
        ("Configuration, with every default", [*flat(run.config)]),
    ]


def flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of nested tables as dotted key and text."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, setting_text(item)


def setting_text(value: Any) -> str:
    """Return a setting's value in words."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)
