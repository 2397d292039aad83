"""Sessions: which row each turn waits for, as `after_request_id` names it."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from pipeline.errors import TraceError
from pipeline.ingest import read
from pipeline.kernel.layout import NONE
from pipeline.replay import checks

_ROW = "row"  # place in the file, from 1


def former_rows(path: Path, where: str | None) -> np.ndarray | None:
    """Return int64 for each row that meets the condition: the row it waits for, by place among them, else NONE.

    None: no row of the trace names another one. A turn whose former one does not meet the condition waits for
    nobody. Raises TraceError with the first row that names a request which cannot be waited for.
    """
    if _is_empty(path, "after_request_id"):
        return None
    columns = ["request_id", "after_request_id", "think_us"]
    rows = read.read_trace(path).select(columns).with_row_index(_ROW, 1).collect()
    _check(str(path), rows)
    if where is not None:
        rows = read.read_trace(path, where).select(columns).collect()
    ids = rows.select(pl.col("request_id").alias("after_request_id"), pl.int_range(pl.len()).alias("former"))
    asked = rows.select(pl.col("after_request_id").drop_nulls().unique())
    found = rows.join(
        ids.join(asked, on="after_request_id", how="semi"), on="after_request_id", how="left", maintain_order="left"
    )
    return found["former"].fill_null(NONE).to_numpy()


def _is_empty(path: Path, column: str) -> bool:
    """Return whether a column of a Parquet file is known to have nulls only."""
    file = pq.read_metadata(path)
    place = file.schema.to_arrow_schema().get_field_index(column)
    names = [file.row_group(0).column(i).path_in_schema for i in range(file.num_columns)] if file.num_row_groups else []
    if place < 0 or column not in names:
        return True
    groups = [file.row_group(i) for i in range(file.num_row_groups)]
    statistics = [(group.num_rows, group.column(names.index(column)).statistics) for group in groups]
    return all(found is not None and found.null_count == rows for rows, found in statistics)


def _check(name: str, rows: pl.DataFrame) -> None:
    """Raise TraceError with the first fault of a row that names another one."""
    count, first, last = pl.len().alias("count"), pl.col(_ROW).first().alias("first"), pl.col(_ROW).last().alias("last")
    ids = rows.group_by(pl.col("request_id").alias("after_request_id")).agg(count, first, last)
    linked = rows.filter(pl.col("after_request_id").is_not_null()).join(ids, on="after_request_id", how="left")
    think = pl.col("think_us")
    faults = (
        ("after_request_id names no request of the trace", pl.col("count").is_null()),
        ("after_request_id names a request that several rows have as their id", pl.col("count") > 1),
        ("after_request_id names the request itself", pl.col("first") == pl.col(_ROW)),
        ("after_request_id names a request further down; a former request comes first", pl.col("first") > pl.col(_ROW)),
        ("after_request_id without think_us", think.is_null()),
        ("think_us is below 0", think < 0),
        (f"think_us is above {checks.MOST_US:,}", think > checks.MOST_US),
    )
    found = []
    for number, (_, bad) in enumerate(faults):
        found += [(int(row), number) for row in linked.filter(bad.fill_null(False))[_ROW].head(1)]
    if found:
        row, number = min(found)
        text = faults[number][0]
        raise TraceError(f"{name}: row {row}: {text}; `load.sessions = logged` lets every request arrive when logged")
