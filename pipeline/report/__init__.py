"""Reports of runs: a page, a Markdown summary and charts in files, and a summary in the terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.report.run import Run


def write(runs: Sequence[Path], out: Path) -> list[Path]:
    """Write the report of each run folder and return the files, the page to open first.

    One run: `out/report.html`, `out/report.md`, `out/charts/*.png`. Several: the same in `out/<run_id>/`, and
    `out/index.html` and `out/index.md` with their headlines side by side. Files that are there already are replaced.
    Raises RunError for a folder that is no finished run, QueryError where an answer fails.
    """
    from pipeline.report import blocks, contents, drawing, markdown, page

    opened = _open(runs)
    definition = blocks.load()
    reports = []
    files: list[Path] = []
    for run in opened:
        report = contents.collect(run, definition)
        target = out if len(opened) == 1 else out / run.run_id
        files += [
            _put(target / "report.html", page.html(report).encode()),
            _put(target / "report.md", markdown.text(report).encode()),
        ]
        files += [_put(target / part.image, drawing.to_png(figure)) for part, figure in report.figures()]
        reports.append((report, run.run_id))
    if len(reports) > 1:
        files[:0] = [
            _put(out / "index.html", page.index([(r, f"{name}/report.html") for r, name in reports]).encode()),
            _put(out / "index.md", markdown.index([(r, f"{name}/report.md") for r, name in reports]).encode()),
        ]
    return files


def write_sweep(folder: Path) -> list[Path]:
    """Write `report.html`, `report.md` and charts of a sweep beside its sweep.json, and return them, the page first.

    Points lead to `<run_id>/report.html` in the same folder where that is, else to the run's folder two levels up.
    Raises RunError for a folder that is no sweep.
    """
    from pipeline.report import drawing, markdown, page, sweep

    report = sweep.collect(folder)
    return [
        _put(folder / "report.html", page.html(report).encode()),
        _put(folder / "report.md", markdown.text(report).encode()),
        *(_put(folder / part.image, drawing.to_png(figure)) for part, figure in report.figures()),
    ]


def write_purchase(folder: Path, out: Path) -> list[Path]:
    """Write `report.html`, `report.md` and charts of a purchase into `out`, and return them, the page first.

    Raises RunError for a folder that is no purchase.
    """
    from pipeline.report import drawing, markdown, page, purchase

    report = purchase.collect(folder)
    return [
        _put(out / "report.html", page.html(report).encode()),
        _put(out / "report.md", markdown.text(report).encode()),
        *(_put(out / part.image, drawing.to_png(figure)) for part, figure in report.figures()),
    ]


def show_purchase(folder: Path, console: Console) -> None:
    """Print the recommendation of a purchase, what each choice costs, and what to mind."""
    from pipeline.report import purchase

    purchase.show(folder, console)


def default_folder(runs: Sequence[Path], today: date) -> Path:
    """Return where reports go by default: `reports/out/YYYY-MM-DD/<run>`, the folder of the day for several runs."""
    day = Path("reports", "out", today.isoformat())
    return day / runs[0].resolve().name if len(runs) == 1 else day


def summary_lines(run: Path) -> str:
    """Return the terminal summary of a run folder as plain text: at most 25 lines of 80 columns."""
    from pipeline.report import summary

    (opened,) = _open([run])
    return summary.plain(opened)


def show_summary(run: Path, console: Console) -> None:
    """Print the terminal summary of a run folder."""
    from pipeline.report import summary

    (opened,) = _open([run])
    summary.show(opened, console)


def _open(folders: Sequence[Path]) -> list[Run]:
    from pipeline.report.run import open_runs

    return open_runs(folders)


def _put(path: Path, content: bytes) -> Path:
    """Write a file so that it is there whole or not at all; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
