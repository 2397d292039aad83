"""What a comparison with a measurement is, and the limits that a table of them must keep."""

import csv
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# judged     counts for the limits
# fitted     a parameter was read off this very row, so it proves nothing
# explained  the row contradicts itself or the published files; why is in the note
# estimate   no kernel table for this configuration: the roofline stands in
# predicted  nothing was observed, or the observation is not at hand
# not judged something that decides the result is not stated, or not modelled
STANDINGS = ("judged", "fitted", "explained", "estimate", "predicted", "not judged")


@dataclass(frozen=True, slots=True)
class Check:
    """One figure: what was measured, and what is predicted for the same configuration."""

    table: str
    run: str  # the measured run by its name at the source
    gpu: str
    model: str
    tensor_parallel_size: int | None
    metric: str
    unit: str
    observed: float | None
    predicted: float | None
    error_pct: float | None
    standing: str
    note: str = ""


def error_pct(observed: float | None, predicted: float | None) -> float | None:
    """Return 100 x (predicted / observed - 1), None where one of them is unknown."""
    return None if not observed or predicted is None else 100 * (predicted / observed - 1)


def locate(data: Path, *names: str) -> Path | None:
    """Return the first of these files or folders that the folder of measurements, or one beside it, holds."""
    places = (data, data / "groundtruth", data / "steptime", data.parent / "steptime")
    return next((place / name for name in names for place in places if (place / name).exists()), None)


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on the absolute errors of the judged rows of some metrics, percent."""

    of: str  # for readers
    statistic: str  # mean, median or worst
    most_pct: float
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A set of comparisons of one kind; `compute` makes its rows from a file of measurements."""

    name: str
    title: str
    about: str
    limits: tuple[Limit, ...]
    file: str  # what it needs of that folder
    compute: Callable[[Path], list[Check]]  # takes that file


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a table did against one of its limits; `value_pct` is None where no row is judged."""

    limit: Limit
    rows: int
    value_pct: float | None

    @property
    def kept(self) -> bool | None:
        """Return whether the limit is kept; None where nothing is judged."""
        return None if self.value_pct is None else self.value_pct <= self.limit.most_pct


_STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "worst": max,
}


def verdicts(table: Table, checks: Iterable[Check]) -> list[Verdict]:
    """Return how the judged rows of a table do against each of its limits."""
    judged = [check for check in checks if check.standing == "judged" and check.error_pct is not None]
    found = []
    for limit in table.limits:
        errors = [abs(check.error_pct or 0.0) for check in judged if check.metric in limit.metrics]
        found.append(Verdict(limit, len(errors), _STATISTICS[limit.statistic](errors) if errors else None))
    return found


def write(checks: Sequence[Check], path: Path) -> None:
    """Write the rows as CSV, figures to six digits, so that a change of the last bit is no change."""
    names = [field.name for field in dataclasses.fields(Check)]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(names)
        for check in checks:
            out.writerow([_text(getattr(check, name)) for name in names])


def read(rows: Iterable[dict[str, str]]) -> list[Check]:
    """Return rows that `write` wrote."""
    return [
        Check(
            table=row["table"],
            run=row["run"],
            gpu=row["gpu"],
            model=row["model"],
            tensor_parallel_size=int(row["tensor_parallel_size"]) if row["tensor_parallel_size"] else None,
            metric=row["metric"],
            unit=row["unit"],
            observed=_number(row["observed"]),
            predicted=_number(row["predicted"]),
            error_pct=_number(row["error_pct"]),
            standing=row["standing"],
            note=row["note"],
        )
        for row in rows
    ]


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _number(text: str) -> float | None:
    return float(text) if text else None
