"""The benchmark command; see the package's docstring for what is counted."""

import argparse
import datetime as dt
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import figures, table, workloads

EXTRAS = ("write", "decode", "fleet", "purchase", "start")


def main(arguments: Sequence[str] | None = None, out: Path = workloads.OUT) -> int:
    """Measure, print the tables, write the JSON; return the exit code."""
    options = _options(arguments)
    chosen = [one for one in workloads.all_of_them(options.quick, options.large) if _wanted(one.name, options.only)]
    extras = [name for name in EXTRAS if _wanted(name, options.only)]
    if not (chosen or extras):
        names = ", ".join([*(one.name for one in workloads.all_of_them(large=True)), *EXTRAS])
        print(f"--only {options.only}: names no benchmark; there are {names}")
        return 2
    workloads.OUT.mkdir(exist_ok=True)
    found: dict[str, Any] = {"machine": _machine(), "options": vars(options), "kernel": {}, "command": {}, "absent": []}
    runs = 1 if options.quick else options.runs
    traces = {one.name: one.trace() for one in chosen}
    for name, trace in traces.items():
        if trace is None:
            print(f"{name}: left out, its trace is not in SERVECAST_SHARED")
            found["absent"].append(name)
    present = [(one, traces[one.name]) for one in chosen if traces[one.name] is not None]
    _tables(found, present, runs)
    _extras(found, extras, runs, options.quick)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"bench-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\nAll measurements: {path}")
    return 0


def _tables(found: dict[str, Any], present: list, runs: int) -> None:
    in_memory = [(one, trace) for one, trace in present if one.name != "week"]  # its arrays would not fit
    if in_memory:
        _say(table.KERNEL_TITLE, table.KERNEL_HEAD)
    for one, trace in in_memory:
        found["kernel"][one.name] = row = figures.kernel(one, trace, runs)
        _say(table.kernel(one.name, row))
    if present:
        _say("", table.COMMAND_TITLE, table.COMMAND_HEAD)
    for one, trace in present:
        found["command"][one.name] = row = figures.command(one, trace, 1 if one.name == "week" else runs)
        _say(table.command(one.name, row))


def _extras(found: dict[str, Any], extras: list[str], runs: int, quick: bool) -> None:
    if "write" in extras:
        # Without the real trace the sample stands in, and the JSON says so.
        azure = workloads.azure(1, False, quick)
        trace = azure.trace()
        one = azure if trace is not None else workloads.Workload("sample", lambda: workloads.sample(quick))
        found["write"] = figures.command(one, trace or workloads.sample(quick), runs, tables=True) | {"of": one.name}
        _say("", f"[{one.name}]", *table.ratio(found["write"]))
    if "decode" in extras:
        found["decode"] = figures.decoding(runs, 500 if quick else 30_000)
        _say("", *table.decoding(found["decode"]))
    if "fleet" in extras:
        found["fleet"] = figures.fleet(runs, 200 if quick else 20_000)
        _say("", *table.fleet(found["fleet"]))
    if "purchase" in extras:
        found["purchase"] = figures.purchase(1 if quick else min(runs, 3), 10_000 if quick else 100_000_000)
        _say("", *table.purchase(found["purchase"]))
    if "start" in extras:
        found["start"] = figures.start_up(runs, compiling=not quick)
        _say("", *table.start_up(found["start"]))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure how fast a replay is.")
    parser.add_argument(
        "--only", metavar="NAME", help="only benchmarks whose name begins so: azure, sample, fleet, ..."
    )
    parser.add_argument("--runs", type=int, default=5, help="measurements of each figure (default 5)")
    parser.add_argument(
        "--quick", action="store_true", help="smallest sizes, one run each: does everything still work?"
    )
    parser.add_argument(
        "--large", action="store_true", help="also a week of 10 million requests: hours and 20 GB of disk"
    )
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error("--runs: must be at least 1")
    return options


def _wanted(name: str, only: str | None) -> bool:
    return only is None or name.startswith(only)


def _machine() -> dict[str, Any]:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": load,
    }


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
