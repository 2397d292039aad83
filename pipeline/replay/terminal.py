"""A replay in a terminal: first compilation announced, progress shown; silent where nobody looks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import hardware
from pipeline.config import Config
from pipeline.replay import manifest
from pipeline.replay.manifest import TraceFile

if TYPE_CHECKING:
    from pipeline.replay import driver


def replay(
    trace: TraceFile, config: Config, root: Path, *, where: str | None = None, decisions: bool = False
) -> tuple[Path, bool]:
    """Do what `driver.replay` does, with a progress bar on stderr if that is a terminal."""
    run = manifest.run_id(trace.digest, where, hardware.resolve(config).config, decisions)
    found = manifest.find(root, run)
    return (found, False) if found is not None else _make(trace, config, root, where, decisions)


def bands(run: Path, trace: TraceFile, config: Config, where: str | None, asked: bool | None) -> None:
    """Make the bands of a run if they are asked for, or unasked where that takes seconds at most."""
    if (run / "bands.json").is_file():
        return
    from pipeline.replay import bands as measured

    if measured.wanted(run, asked):
        measured.ensure(run, trace, config, where)


def _make(trace: TraceFile, config: Config, root: Path, where: str | None, decisions: bool) -> tuple[Path, bool]:
    # Loading the engine takes most of a second, so a run that is found does without.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from pipeline import kernel
    from pipeline.replay import driver

    console = Console(file=sys.stderr)
    compiled = any(kernel.CACHE_FOLDER.rglob("*.nbc"))
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("replay", total=1.0, figures="")

        def show(progress: "driver.Progress") -> None:
            if progress.steps == 0 and not compiled:
                bar.update(task, figures="compiling the engine, once (under a minute) ...")
                return
            done, clock = f"{progress.requests_done:,} requests", _clock(progress.simulated_s)
            elapsed = max(bar.tasks[0].elapsed or 0.0, 1e-3)
            rate = f"{progress.simulated_s / elapsed:,.0f}x real time"
            bar.update(task, completed=progress.share, figures=f"{done}, {clock} simulated, {rate}")

        return driver.replay(trace, config, root, where=where, decisions=decisions, report=show)


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
