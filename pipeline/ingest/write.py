"""Parquet files of a table of the schema: whole or not at all, the same rows giving the same bytes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import TraceError
from pipeline.schema import Table, arrow_schema

ROW_GROUP_ROWS = 1 << 17


def arrow_table(frame: pl.DataFrame, table: Table) -> pa.Table:
    """Return the frame as an Arrow table with exactly the schema of `table`, its sentences as metadata."""
    schema = arrow_schema(table)
    columns = []
    for column in table.columns:
        array = frame[column.name].rechunk().to_arrow()
        if pa.types.is_dictionary(column.type):
            array = array.cast(pa.string()).dictionary_encode()
        columns.append(array.cast(column.type))
    return pa.Table.from_arrays(columns, schema=schema)


def write_all(files: Sequence[tuple[Path, pl.DataFrame, Table]]) -> None:
    """Write all files beside their places, then rename them in order; TraceError naming the one that failed.

    A failure leaves no temporary file; files that existed before stay as they were.
    """
    temporary = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path, _, _ in files]
    path = files[0][0]
    try:
        for (path, frame, table), beside in zip(files, temporary, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = arrow_table(frame, table)
            pq.write_table(rows, beside, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        for (path, _, _), beside in zip(files, temporary, strict=True):
            os.replace(beside, path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for beside in temporary:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
