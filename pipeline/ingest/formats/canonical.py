"""Traces of one's own: Parquet with the columns of trace/1, as traces/README.md describes them."""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import validate
from pipeline.ingest.sources import PARQUET, Sample, Source

NAME = "trace"
TITLE = "canonical Parquet, trace/1"
LOCATOR = "row"
RELATIVE_CLOCK = False
PRIVATE = False
OPTIONS = {"naive_timestamps_are": "UTC"}


def looks(sample: Sample) -> str | None:
    """Return the reason if the file is Parquet: no other format here is."""
    return "Parquet" if sample.head.startswith(PARQUET) else None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield the validated rows; `relative` says that the clock is arrival_us alone."""
    yield validate.records_of(source, options["naive_timestamps_are"])


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Mark parents and predecessors that the trace does not hold."""
    return validate.links(frame)
