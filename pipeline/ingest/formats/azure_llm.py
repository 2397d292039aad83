"""Azure LLM inference traces of 2023 and 2024 (CSV): TIMESTAMP, ContextTokens, GeneratedTokens.

Published at github.com/Azure/AzurePublicDataset. 2023: CRLF, no line end after the last row, seven fractional
digits, no zone. 2024: offset +00:00, no fraction on whole seconds. Further columns are not read.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import clock, lines, records
from pipeline.ingest.sources import Sample, Source, line_batches

NAME = "azure_llm_trace"
TITLE = "Azure LLM inference CSV: TIMESTAMP, ContextTokens, GeneratedTokens"
LOCATOR = "row"
RELATIVE_CLOCK = False
PRIVATE = False
OPTIONS = {"naive_timestamps_are": "UTC"}
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def looks(sample: Sample) -> str | None:
    """Return the reason if the header names the three columns."""
    if set(COLUMNS) <= set(sample.columns):
        return "the header names " + ", ".join(COLUMNS)
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per row after the header."""
    zone = clock.zone(options["naive_timestamps_are"])
    tokens = COLUMNS[1:]
    for text in lines.csv_batches(line_batches(source), COLUMNS, source):
        stamp = pl.col("TIMESTAMP")
        times = clock.iso_us(stamp, zone).alias("clock_us"), clock.is_naive(stamp).alias("naive")
        text = text.lazy().with_columns(times).collect()
        checks = [
            *records.count_faults(tokens),
            (stamp.is_null(), lines.fault("missing_arrival", "TIMESTAMP is empty")),
            (pl.col("clock_us").is_null(), lines.fault("bad_timestamp", "TIMESTAMP is no ISO 8601 time")),
            *records.negative_faults(tokens),
        ]
        yield (
            text.lazy()
            .select(
                "source_row",
                records.first_fault(checks, pl.col("fault")),
                "clock_us",
                "naive",
                records.request_id(NAME, source).alias("request_id"),
                records.count("ContextTokens").alias("input_tokens"),
                records.count("GeneratedTokens").alias("output_tokens"),
                records.flag("tokens_missing", pl.any_horizontal(pl.col(tokens).is_null())),
            )
            .collect()
        )


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Nothing depends on other rows."""
    return frame
