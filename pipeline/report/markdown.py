"""The Markdown summary: the sentences and tables of the page, its charts as links to the PNGs beside it."""

import re
from collections.abc import Iterable, Sequence

from pipeline.report import page
from pipeline.report.contents import Contents, Part
from pipeline.report.run import Run
from pipeline.report.shapes import Figure, Heading, Nothing, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def text(contents: Contents) -> str:
    """Return the summary of one run."""
    run = contents.run
    lines = [
        f"# {escape(contents.title)}: {escape(run.manifest['trace']['path'])}",
        escape(contents.setting),
        f"**{escape(contents.headline)}**",
        escape(f"{contents.verdict} {contents.binds}"),
        *([escape(contents.certainty)] if contents.certainty else []),
        escape(contents.records),
    ]
    for chapter in contents.chapters:
        lines.append(f"## {escape(chapter.heading)}")
        for part in chapter.parts:
            lines += _part(part, run, contents.noun)
    lines.append("## Settings and sources")
    for heading, rows in contents.settings:
        lines.append(f"### {escape(heading)}")
        lines.append(_table((Heading("setting", False), Heading("value", False)), [list(row) for row in rows]))
    lines.append("## What the model leaves out")
    lines.append(_bullets(contents.unmodelled) or "The run names nothing.")
    lines.append("## Warnings")
    lines.append(_bullets(contents.warnings) or "None.")
    lines.append(
        escape(run.manifest["engine_version"])
        + f", {contents.noun} `{run.run_id}`, config `{run.digest}`, trace `{run.manifest['trace']['digest']}`"
    )
    return "\n\n".join(lines) + "\n"


def index(reports: list[tuple[Contents, str]]) -> str:
    """Return the summary of several runs; each comes with the link to its own."""
    rows = []
    for contents, link in reports:
        first, *rest = page.cells(contents)
        rows.append([f"[{escape(first)}]({link})", *(escape(cell) for cell in rest)])
    lines = [f"# {len(reports)} replayed runs", _table(page.HEADINGS, rows, escaped=True)]
    for contents, link in reports:
        lines.append(f"## [Run {escape(contents.run.run_id)}]({link})")
        lines.append(escape(contents.setting))
        lines.append(escape(f"{contents.headline} {contents.verdict} {contents.binds}"))
        lines.append(escape(contents.records))
    return "\n\n".join(lines) + "\n"


def escape(value: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(value.split()))


def _part(part: Part, run: Run, noun: str) -> list[str]:
    lines = [f"### {escape(part.block.question)}"]
    match part.content:
        case Nothing(reason):
            lines.append(escape(reason))
        case Figure(_, alt):
            lines.append(f"![{escape(alt)}]({part.image})")
            lines.append(escape(part.block.read))
        case Table(headings, rows, note, links):
            lines.append(_table(headings, _linked(rows, links), escaped=True))
            lines.append(escape(f"{part.block.read} {note}".strip()))
    lines.append(f"Query `{part.query}`, {noun} `{run.run_id}`, config `{run.short_digest}`")
    return lines


def _linked(rows: list[list[str]], links: Sequence[str]) -> list[list[str]]:
    """Return the cells as Markdown, the last one of each row with its link if there is one."""
    cells = [[escape(cell) for cell in row] for row in rows]
    for row, link in zip(cells, links, strict=False):
        row[-1] = f"[{row[-1]}]({link})"
    return cells


def _table(headings: Sequence[Heading], rows: Iterable[list[str]], escaped: bool = False) -> str:
    def line(values: Iterable[str]) -> str:
        return f"| {' | '.join(values)} |"

    body = [line(row if escaped else (escape(cell) for cell in row)) for row in rows]
    rule = line("---:" if heading.is_number else "---" for heading in headings)
    return "\n".join([line(escape(heading.text) for heading in headings), rule, *body])


def _bullets(texts: list[str]) -> str:
    return "\n".join(f"- {escape(value)}" for value in texts)
