"""The page definition: which questions a report asks, in which order, and how the answers are shown."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import ConfigError
from pipeline.report import charts, compare_views, purchase_views, sweep_views, tables
from pipeline.report.run import MOST_POINTS, Run
from pipeline.report.shapes import Figure, Nothing, Table
from pipeline.resources import folder

LEAST_POINTS = 12
CHARTS = charts.CHARTS | sweep_views.CHARTS | compare_views.CHARTS | purchase_views.CHARTS
TABLES = tables.TABLES | sweep_views.TABLES | compare_views.TABLES | purchase_views.TABLES


def _known_chart(name: str | None) -> str | None:
    if name is not None and name not in CHARTS:
        raise ValueError(f"no chart of that name; there are {', '.join(sorted(CHARTS))}")
    return name


def _known_table(name: str | None) -> str | None:
    if name is not None and name not in TABLES:
        raise ValueError(f"no table of that name; there are {', '.join(sorted(TABLES))}")
    return name


def _fit_only(params: dict[str, int | str]) -> dict[str, int | str]:
    for name, value in params.items():
        if isinstance(value, str) and not (value == "fit" and name in ("points", "minutes")):
            raise ValueError(f"{name} = {value!r}: must be a number; points and minutes can also be 'fit'")
    return params


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Block(_Strict):
    """A question, the answer that knows, how it is shown, and how to read it."""

    question: str
    answer: str
    read: str
    params: Annotated[dict[str, int | str], AfterValidator(_fit_only)] = {}
    chart: Annotated[str | None, AfterValidator(_known_chart)] = None
    table: Annotated[str | None, AfterValidator(_known_table)] = None

    @model_validator(mode="after")
    def _one_view(self) -> "Block":
        if (self.chart is None) == (self.table is None):
            raise ValueError("a block has either a chart or a table")
        return self

    @property
    def view(self) -> str:
        """Name of the chart or table."""
        return self.chart or self.table or ""


class Section(_Strict):
    """Blocks under one heading."""

    id: Annotated[str, Field(pattern="^[a-z]+$")]
    heading: str
    block: list[Block]


class Page(_Strict):
    """A page: title and sections in reading order."""

    title: str
    section: list[Section]

    @model_validator(mode="after")
    def _names_once(self) -> "Page":
        seen: set[str] = set()
        for section in self.section:
            for block in section.block:
                name = block_id(section, block)
                if name in seen:
                    raise ValueError(f"{name} is on the page twice")
                seen.add(name)
        return self


def block_id(section: Section, block: Block) -> str:
    """Return what a block is called on the page and in file names: `memory-kv-memory`, `memory-kv-memory-table`."""
    return f"{section.id}-{block.view.replace('_', '-')}" + ("" if block.chart else "-table")


@dataclass(frozen=True, slots=True)
class Shown:
    """A block with what its answer came to."""

    block: Block
    params: dict[str, Any]
    content: Figure | Table | Nothing


def load(path: Path | None = None) -> Page:
    """Read a page definition, the one of `servecast report` by default; ConfigError if it is not one."""
    path = path or folder("reports") / "replay.toml"
    try:
        return Page.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {place}: {first['msg']}") from error


def show(page: Page, run: Run) -> Iterator[tuple[Section, list[Shown]]]:
    """Yield each section with its blocks answered for the run."""
    for section in page.section:
        yield section, [_answer(block, run) for block in section.block]


def _answer(block: Block, run: Run) -> Shown:
    params = {name: _fitting(name, run) if value == "fit" else value for name, value in block.params.items()}
    rows = run.answer(block.answer, **params)
    draw = CHARTS[block.chart] if block.chart else TABLES[block.table or ""]
    return Shown(block, params, draw(run, rows))


def _fitting(name: str, run: Run) -> int:
    """Return a number of points, or of minutes to a point, that a reader can tell apart: none shorter than a second."""
    duration_s = math.ceil(run.one("headline")["duration_s"] or 0.0)
    if name == "points":
        return min(MOST_POINTS, max(LEAST_POINTS, duration_s))
    return max(1, math.ceil(duration_s / (60 * MOST_POINTS)))
