"""BurstGPT traces, releases 1 and 3 (CSV): six or eight columns, read by name.

Published at github.com/HPMLL/BurstGPT. `Timestamp` counts seconds of an unnamed local clock, `Response tokens` 0
marks a failed request, `Elapsed time` is the total time in seconds, `Log Type` the only field like a tenant.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import clock, lines, records
from pipeline.ingest.sources import Sample, Source, line_batches

NAME = "burstgpt"
TITLE = "BurstGPT CSV: Timestamp, Model, Request tokens, Response tokens, Total tokens, Log Type"
LOCATOR = "row"
RELATIVE_CLOCK = True
PRIVATE = False
OPTIONS: dict[str, str] = {}
REQUIRED = ("Timestamp", "Model", "Request tokens", "Response tokens", "Log Type")
COLUMNS = (*REQUIRED, "Total tokens", "Session ID", "Elapsed time")
TOKENS = ("Request tokens", "Response tokens")


def looks(sample: Sample) -> str | None:
    """Return the reason if the header names the columns that both releases have."""
    if set(REQUIRED) <= set(sample.columns):
        release = "with session and elapsed time" if "Session ID" in sample.columns else "without sessions"
        return f"the header names {', '.join(REQUIRED)}, {release}"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per row after the header."""
    for text in lines.csv_batches(line_batches(source), COLUMNS, source):
        stamp, elapsed = clock.decimal_us(pl.col("Timestamp"), 6), clock.decimal_us(pl.col("Elapsed time"), 6)
        checks = [
            *records.count_faults(TOKENS),
            (pl.col("Timestamp").is_null(), lines.fault("missing_arrival", "Timestamp is empty")),
            (stamp.is_null(), lines.fault("bad_timestamp", "Timestamp is no number of seconds")),
            *records.negative_faults(TOKENS),
        ]
        prompt, answer = records.count("Request tokens"), records.count("Response tokens")
        failed = answer == 0
        total = records.count("Total tokens")
        yield (
            text.lazy()
            .select(
                "source_row",
                records.first_fault(checks, pl.col("fault")),
                stamp.alias("clock_us"),
                records.request_id(NAME, source).alias("request_id"),
                prompt.alias("input_tokens"),
                pl.when(answer > 0).then(answer).alias("output_tokens"),
                pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")).alias("status"),
                pl.col("Model").alias("model"),
                pl.col("Log Type").alias("tenant"),
                pl.col("Log Type").str.to_lowercase().str.strip_suffix(" log").alias("class"),
                pl.col("Session ID").alias("session_id"),
                pl.when(elapsed >= 0).then(elapsed).alias("obs_e2e_us"),
                records.flag("negative_duration", elapsed < 0),
                records.flag("tokens_missing", pl.any_horizontal(pl.col(TOKENS).is_null())),
                records.flag("total_mismatch", total != prompt + answer),
            )
            .collect()
        )


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Number the turns of a session by order and name the request before as the parent."""
    session = pl.col("session_id")
    turn = pl.when(session.is_not_null()).then(pl.int_range(1, pl.len() + 1).over("session_id"))
    parent = pl.when(session.is_not_null()).then(pl.col("request_id").shift(1).over("session_id"))
    return frame.with_columns(turn.alias("turn"), parent.alias("parent_request_id"))
