"""What an answer becomes: a figure, a table, or a sentence that says why there is neither."""

from dataclasses import dataclass
from typing import Any

NAMES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "itl_request_mean": "ITL, mean per request",
    "e2e": "E2E",
    "queue": "queue time",
}


NOT_OBSERVED = "The log states no latencies that the replay could be held against."


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing: Vega-Lite specification, and what it shows in a sentence for those who cannot see it."""

    spec: dict[str, Any]
    alt: str


@dataclass(frozen=True, slots=True)
class Heading:
    """Heading of a column; numbers stand to the right."""

    text: str
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first cell of a row is its heading."""

    headings: tuple[Heading, ...]
    rows: list[list[str]]
    note: str = ""
    links: tuple[str, ...] = ()  # where the last cell of each row leads, if anywhere


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing to show, and why."""

    reason: str
