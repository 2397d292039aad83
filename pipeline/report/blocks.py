"""The page definition: which questions a report asks, in which order, and how the answers are shown."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import ConfigError
from pipeline.report.charts import CHARTS
from pipeline.report.run import MOST_POINTS, Run
from pipeline.report.shapes import Figure, Nothing, Table
from pipeline.report.tables import TABLES
from pipeline.resources import folder


def _known_chart(name: str | None) -> str | None:
    if name is not None and name not in CHARTS:
        raise ValueError(f"no chart of that name; there are {', '.join(sorted(CHARTS))}")
    return name


def _known_table(name: str | None) -> str | None:
    if name is not None and name not in TABLES:
        raise ValueError(f"no table of that name; there are {', '.join(sorted(TABLES))}")
    return name


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Block(_Strict):
    """A question, the answer that knows, how it is shown, and how to read it."""

    question: str
    answer: str
    read: str
    params: dict[str, int | str] = {}
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


@dataclass(frozen=True, slots=True)
class Shown:
    """A block with what its answer came to."""

    block: Block
    params: dict[str, int | str]
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
    params = dict(block.params)
    if params.get("minutes") == "fit":
        duration_s = run.one("headline")["duration_s"] or 0.0
        params["minutes"] = max(1, -(-int(duration_s) // (60 * MOST_POINTS)))
    rows = run.answer(block.answer, **params)
    draw = CHARTS[block.chart] if block.chart else TABLES[block.table or ""]
    return Shown(block, params, draw(run, rows))
