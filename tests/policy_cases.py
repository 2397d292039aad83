"""Replay recorded cases of real schedulers and compare every step, decision and outcome.

    python tests/policy_cases.py FOLDER... [--engine twin|kernel|shortcut]

A folder is a case, a bundle of cases, or a folder of such folders, of any engine that `tests/policies` knows; its
config.json tells which. One line per case: `ok`, or the first difference of each table. Exit code 0 if all agree, 1 if
any differs, 2 if a folder holds no case, or one of no known engine.
"""

import argparse
import importlib
import pkgutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import policies
from tests.policies import base

ENGINES = ("kernel", "shortcut", "twin")


def module_of(folder: Path) -> ModuleType:
    """Return the module of tests/policies that knows the engine of a case folder; NotACaseError if none does."""
    config = base.config(folder)
    for entry in pkgutil.iter_modules(policies.__path__):
        module = importlib.import_module(f"tests.policies.{entry.name}")
        if hasattr(module, "RECOGNISES") and module.RECOGNISES(config):
            return module
    raise base.NotACaseError(f"{folder}: no module of tests/policies knows its engine")


def compared(folder: Path, engine: str) -> Iterator[tuple[base.Case, list[str], float]]:
    """Replay every case of a folder; yield it, what differs from the recording, and the seconds it took."""
    module = module_of(folder)
    if not hasattr(module, engine):
        raise base.NotACaseError(f"{folder}: its engine has no {engine}")
    for case in module.read(folder):
        began = time.perf_counter()
        result = getattr(module, engine)(case)
        seconds = time.perf_counter() - began
        yield case, base.differences(case, result), seconds


def disagreements(folder: Path, engine: str) -> dict[str, list[str]]:
    """Return what differs from the recording, by case, for those cases of a folder where something does."""
    return {case.name: found for case, found, _ in compared(folder, engine) if found}


def show(folder: Path, engine: str) -> bool:
    """Print a line for each case of a folder; true if all agree."""
    agree = True
    for case, found, seconds in compared(folder, engine):
        agree = agree and not found
        sizes = [f"{base.rows(case.tables[name]):6} {name}" for name in ("requests", "steps") if name in case.tables]
        print(f"{case.name:32} {' '.join(sizes)} {seconds:8.2f} s  {'; '.join(found) or 'ok'}", flush=True)
    return agree


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path, help="case, bundle, or a folder of them")
    parser.add_argument("--engine", choices=ENGINES, default="kernel", help="what replays")
    options = parser.parse_args(arguments)
    try:
        folders = [found for folder in options.folders for found in base.find(folder)]
        agree = [show(folder, options.engine) for folder in folders]
    except base.NotACaseError as error:
        print(f"not a recorded case: {error}", file=sys.stderr)
        return 2
    print(f"{sum(agree)} of {len(agree)} folders agree")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
