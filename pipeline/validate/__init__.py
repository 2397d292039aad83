"""How exact the milliseconds are: comparisons with measurements, recorded as data and recomputed on demand."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.hardware import catalogue
from pipeline.validate import checks, closedloop, kv, openloop, replays, steps
from pipeline.validate.checks import Check, Table

TABLES: tuple[Table, ...] = (kv.TABLE, steps.TABLE, replays.TABLE, openloop.TABLE, closedloop.TABLE, steps.STATIC)
RECORDED = "validation.csv"  # among the data of pipeline/hardware, so that reports can cite it


def chosen(names: Sequence[str]) -> list[Table]:
    """Return the tables of these names, all if none is named; ConfigError for an unknown one."""
    known = {table.name: table for table in TABLES}
    for name in names:
        if name not in known:
            raise ConfigError(f"{name}: no such comparison; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def recorded(tables: Sequence[Table]) -> list[Check]:
    """Return the recorded rows of these tables."""
    names = {table.name for table in tables}
    return [check for check in checks.read(catalogue.rows(RECORDED)) if check.table in names]


def recompute(tables: Sequence[Table], data: Path) -> list[Check]:
    """Return the rows of these tables from a folder of measurements; ConfigError if it lacks the file of one."""
    found: list[Check] = []
    for table in tables:
        file = checks.locate(data, table.file)
        if file is None:
            raise ConfigError(f"{data}: has no {table.file}, which the comparison {table.name} is made from")
        found += table.compute(file)
    return found
