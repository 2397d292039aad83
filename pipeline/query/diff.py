"""What differs between two runs: settings, and every figure of the headline."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from pipeline.query import output, session

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between runs a and b, and all headline figures of both.

    settings  (key, a, b) of every setting, input or version that is not the same
    figures   (figure, a, b, b - a, b / a) of every headline figure; None where it is unknown
    """

    run_a: str
    run_b: str
    settings: list[tuple[str, str | None, str | None]]
    figures: list[tuple[str, float | None, float | None, float | None, float | None]]

    @property
    def is_none(self) -> bool:
        """Whether settings, inputs and every figure are equal."""
        return not self.settings and all(a == b for _, a, b, _, _ in self.figures)


def diff(folder_a: Path | str, folder_b: Path | str) -> Difference:
    """Compare two run folders; a folder and itself, or copies of one run, differ in nothing.

    Raises RunError for a folder that cannot be read.
    """
    # Two connections: copies of one run have the same id, which one session refuses.
    a, b = session.open([folder_a], keep=True), session.open([folder_b], keep=True)
    run_a, run_b = _run_id(a), _run_id(b)
    settings = []
    left, right = _settings(a), _settings(b)
    for key in [*left, *(key for key in right if key not in left)]:
        if left.get(key) != right.get(key):
            settings.append((key, left.get(key), right.get(key)))
    first, second = (session.answer(connection, "headline").to_dicts()[0] for connection in (a, b))
    figures = [_figure(name, first[name], second[name]) for name in first if name != "run_id"]
    return Difference(run_a, run_b, settings, figures)


def show(difference: Difference, console: Console) -> None:
    """Print a comparison: settings that differ, then all headline figures."""
    console.print(Text(f"a: {difference.run_a}\nb: {difference.run_b}"))
    if difference.is_none:
        console.print(Text("no differences"))
        return
    console.print()
    if difference.settings:
        output.show(["setting", "a", "b"], difference.settings, console)
    else:
        console.print(Text("settings are equal"))
    console.print()
    output.show(["figure", "a", "b", "b - a", "b / a"], difference.figures, console)


def _run_id(connection: "duckdb.DuckDBPyConnection") -> str:
    return session.rows(connection, "SELECT run_id FROM runs")[0][0]


def _settings(connection: "duckdb.DuckDBPyConnection") -> dict[str, str | None]:
    """Return all that a run was made from, by name: trace and version first, then every setting."""
    columns = ("trace_path", "trace_digest", "trace_where", "engine_version")
    (row,) = session.rows(connection, f"SELECT {', '.join(columns)} FROM runs")
    return dict(zip(columns, row, strict=True)) | dict(
        session.rows(connection, "SELECT key, value FROM run_config ORDER BY key")
    )


def _figure(name: str, a: float | None, b: float | None) -> tuple:
    if a is None or b is None:
        return name, a, b, None, None
    return name, a, b, b - a, b / a if a else None
