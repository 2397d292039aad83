"""A sweep in a terminal: progress over all runs while they are made, then the points as a table."""

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pipeline.report import words
from pipeline.sweep import run
from pipeline.sweep.grid import describe, short_names, value_text
from pipeline.sweep.results import Result

_FIGURES: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("requests\n/s", "completed_rps", words.number),
    ("good\n/s", "goodput_rps", words.number),
    ("TTFT\np95", "ttft_p95_ms", words.milliseconds),
    ("TPOT\np95", "tpot_p95_ms", words.milliseconds),
    ("KV\npeak", "kv_peak_share", lambda value: words.share(value, 0)),
    ("SLO\nkept", "slo_share", words.share),
)
MOST_REASON_LINES = 4


@contextmanager
def progress() -> Iterator[Callable[[run.Progress], None]]:
    """Show progress on stderr if that is a terminal, nothing elsewhere."""
    console = Console(file=sys.stderr)
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("sweep", total=1.0, figures="")

        def show(seen: run.Progress) -> None:
            failed = f", {seen.failed} failed" if seen.failed else ""
            figures = f"{seen.stage}: {seen.done} of {seen.runs} runs{failed}"
            bar.update(task, completed=seen.work / max(1, seen.runs), figures=figures)

        yield show


def show(sweep: run.Sweep, console: Console) -> None:
    """Print the points in the order of the grid, those that have no run with the reason, and the one to choose."""
    done = [r for r in sweep.results if r.figures is not None]
    wide = _table(done, sweep.grid.varied, sweep.choice.number)
    unbounded = console.options.update(max_width=10 * console.width)
    if Measurement.get(console, unbounded, wide).maximum <= console.width:
        console.print(wide)
    else:
        for result in done:
            console.print(Text(f"{_mark(result, sweep.choice.number)} {describe(result.settings)}"))
        console.print()
        console.print(_table(done, (), sweep.choice.number))
    for result in sweep.results:
        if result.figures is None:
            what = "cannot be used" if result.run_id is None else "failed"
            text = f"point {result.number} ({describe(result.settings)}) {what}: {_printable(result.reason or '')}"
            lines = textwrap.wrap(text, console.width, subsequent_indent="  ", max_lines=MOST_REASON_LINES)
            console.print(Text("\n".join(lines), style="yellow"))
    console.print()
    console.print(Text("\n".join(textwrap.wrap(sweep.choice.reason, console.width)), style="bold"))
    there = len({r.run_id for r in done}) - sweep.made
    console.print(Text(f"runs   {sweep.root} ({sweep.made} made now, {there} were there)"), soft_wrap=True)
    console.print(Text(f"sweep  {sweep.folder}"), soft_wrap=True)


def _table(results: Sequence[Result], varied: Sequence[str], chosen: int | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    table.add_column("point", no_wrap=True, justify="right")
    for key, name in zip(varied, short_names(varied), strict=True):
        longest = max((len(value_text(r.settings[key])) for r in results), default=0)
        table.add_column(_folded(name, longest), no_wrap=True, justify="right", vertical="bottom")
    for name, _, _ in _FIGURES:
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("run", no_wrap=True)
    for r in results:
        figures = r.figures or {}
        cells = [_mark(r, chosen), *(value_text(r.settings[key]) for key in varied)]
        cells += [write(figures.get(column)) for _, column, write in _FIGURES]
        table.add_row(*(Text(cell) for cell in (*cells, r.run_id or "")))
    return table


def _mark(result: Result, chosen: int | None) -> str:
    return f"{'*' if result.number == chosen else ''}{result.number}"


def _folded(name: str, width: int) -> str:
    """Return a name broken at its dots and underscores into lines about as wide as the values under it."""
    parts = name.replace(".", "._").split("_")
    width = max(width, *(len(part) + 1 for part in parts))
    lines = [parts[0]]
    for part in parts[1:]:
        joint = "" if lines[-1].endswith(".") else "_"
        if len(lines[-1]) + len(joint) + len(part) + 1 <= width:
            lines[-1] += joint + part
        else:
            lines[-1] += joint
            lines.append(part)
    return "\n".join(lines)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
