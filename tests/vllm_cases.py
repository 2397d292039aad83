"""Replay recorded cases of the real vLLM scheduler and compare every step, decision and outcome.

    python tests/vllm_cases.py FOLDER... [--engine twin|kernel]

A folder is a case, a bundle of cases, or a folder of such folders. One line per case: `ok`, or the first
difference of each table. Exit code 0 if all agree, 1 if any differs, 2 if a folder holds no case.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import cases, engines, oracle

# columns that have a value in the recording only where the request finished
WHEN_FINISHED = ("finish_step", "finish_ns")


def differences(case: cases.Case, result: oracle.Result) -> list[str]:
    """Return one line per table that differs from the recording, naming its first difference; none if all agree."""
    found = []
    for table in ("steps", "decisions", "requests"):
        expected, got = getattr(case.expected, table), getattr(result, table)
        if table == "decisions" and not got:
            continue  # the shortcut decides without writing rows
        if table == "requests":
            got = _recorded_form(got)
        line = _first_difference(table, expected, got)
        if line:
            found.append(line)
    if result.stalled != case.stalled:
        found.append(f"stalled: recorded {case.stalled}, got {result.stalled}")
    return found


def _recorded_form(requests: dict) -> dict:
    finished = np.isin(np.asarray(requests["outcome"], dtype=object), ("finished", "max_model_len"))
    kept = {name: np.where(finished, requests[name], oracle.NONE) for name in WHEN_FINISHED}
    return requests | kept


def _first_difference(table: str, expected: dict, got: dict) -> str:
    """Return where two tables differ first, by row and then by column, or an empty text."""
    first: tuple[int, str, object, object] | None = None
    for name, wanted in expected.items():
        values = np.asarray(got[name], dtype=wanted.dtype)
        common = min(len(wanted), len(values))
        unequal = np.flatnonzero(wanted[:common] != values[:common])
        if len(unequal) and (first is None or unequal[0] < first[0]):
            first = (int(unequal[0]), name, wanted[unequal[0]], values[unequal[0]])
    rows, rows_got = len(next(iter(expected.values()))), len(next(iter(got.values())))
    if first is not None:
        row, name, wanted, value = first
        place = f"step {expected['step'][row]}, row {row}" if table == "decisions" else f"row {row}"
        return f"{table}, {place}, {name}: recorded {wanted}, got {value}"
    if rows != rows_got:
        return f"{table}: recorded {rows} rows, got {rows_got}"
    return ""


def replay(folder: Path, engine) -> bool:
    """Replay every case of a folder, print a line for each; true if all agree."""
    agree = True
    for case in cases.read(folder):
        began = time.perf_counter()
        result = engine(case)
        seconds = time.perf_counter() - began
        found = differences(case, result)
        agree = agree and not found
        size = f"{len(case.arrival_ns):6} requests {case.expected_steps:6} steps {seconds:8.2f} s"
        print(f"{case.name:32} {size}  {'; '.join(found) or 'ok'}", flush=True)
    return agree


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path, help="case, bundle, or a folder of them")
    parser.add_argument("--engine", choices=sorted(engines.ENGINES), default=engines.DEFAULT, help="what replays")
    options = parser.parse_args(arguments)
    try:
        folders = [found for folder in options.folders for found in cases.find(folder)]
        agree = [replay(folder, engines.ENGINES[options.engine]) for folder in folders]
    except cases.NotACaseError as error:
        print(f"not a recorded case: {error}", file=sys.stderr)
        return 2
    print(f"{sum(agree)} of {len(agree)} folders agree")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
