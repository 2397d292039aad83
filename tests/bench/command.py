"""One replay as the command makes it, in a process of its own; prints one line of JSON for each run.

    python -m tests.bench.command TRACE RUNS TABLES [SETTING...]

TABLES is 1 if pyarrow is to write the same tables as well, 0 if not. The process replays a few requests first,
so that neither imports nor loading the compiled engine count.
"""

import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import config, report
from pipeline.replay import driver, sink
from pipeline.replay.prepare import prepare
from pipeline.replay.sink import RunFolder
from pipeline.replay.source import Source
from pipeline.replay.state import State
from tests.bench import workloads


class Phases:
    """CPU seconds spent in parts of a replay, each measured in the thread that does it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        for owner, names, phase in (
            (Source, ("next", "take_identity"), "read"),
            (State, ("load",), "read"),
            (State, ("run", "drain", "take_done", "settle"), "replay"),
            (RunFolder, ("_work",), "write"),
        ):
            for name in names:
                setattr(owner, name, self._timed(getattr(owner, name), phase))

    def _timed(self, function: Callable, phase: str) -> Callable:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[phase] += time.thread_time() - began

        return timed


def peak_mib() -> float:
    """Return the largest resident size of this process so far, MiB; nan where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def replay(trace: Path, settings: tuple[str, ...], root: Path, phases: Phases) -> dict[str, float]:
    """Replay once into an empty folder and return its figures."""
    shutil.rmtree(root, ignore_errors=True)
    phases.seconds.clear()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run, _ = driver.replay(prepare([trace], root), config.load(None, settings, None), root)
    figures = {"replay_wall_s": time.perf_counter() - wall_s, "replay_cpu_s": time.process_time() - cpu_s}
    figures |= {f"{phase}_s": seconds for phase, seconds in phases.seconds.items()} | {"memory_mib": peak_mib()}
    asked_s = time.process_time()
    report.summary_lines(run)
    figures |= {"queries_s": time.process_time() - asked_s, "all_s": time.perf_counter() - wall_s}
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    figures |= {"requests": facts["trace"]["rows"], "steps": facts["counts"]["steps"]}
    figures["bytes"] = sum(path.stat().st_size for path in run.rglob("*.parquet"))
    return figures


def write(root: Path) -> dict[str, float]:
    """Write the tables of the run again, from memory and by pyarrow alone, with the sink's own settings."""
    (run,) = (path.parent for path in root.glob("*/run.json"))
    tables = [pq.read_table(path, partitioning=None) for path in sorted(run.rglob("*.parquet"))]
    target = root / "again.parquet"
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for table in tables:
        _write_one(table, target)
    return {"pyarrow_wall_s": time.perf_counter() - wall_s, "pyarrow_cpu_s": time.process_time() - cpu_s}


def _write_one(table: pa.Table, target: Path) -> None:
    with pq.ParquetWriter(target, table.schema, **sink.options(table.schema)) as file:
        file.write_table(table, row_group_size=sink.GROUP_ROWS)


def main() -> None:
    """Replay as the arguments say."""
    trace, runs, tables, *settings = sys.argv[1:]
    phases = Phases()
    with tempfile.TemporaryDirectory(dir=workloads.OUT) as folder:
        root = Path(folder)
        replay(workloads.sample(quick=True), (), root / "warm", phases)
        for _ in range(int(runs)):
            figures = replay(Path(trace), tuple(settings), root / "runs", phases)
            if int(tables):
                figures |= write(root / "runs")
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
