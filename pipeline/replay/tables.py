"""Kernel rows to tables of the run folder, as schema.py describes them."""

import numpy as np
import pyarrow as pa

from pipeline import schema
from pipeline.kernel import layout
from pipeline.kernel.layout import NONE

# Columns of the trace that requests.parquet repeats, by their name there.
IDENTITY = {
    "request_id": "request_id",
    "arrival_time": "arrival_time",
    "tenant": "tenant",
    "model": "model",
    "deployment": "deployment",
    "class": "class",
    "session_id": "session_id",
    "turn": "turn",
    "status": "log_status",
    "obs_ttft_us": "obs_ttft_us",
    "obs_e2e_us": "obs_e2e_us",
    "input_tokens": "input_tokens",
}
_NULL_IF_NONE = (
    "first_scheduled_ns",
    "first_token_ns",
    "finish_ns",
    "first_token_step",
    "finish_step",
    "cached_tokens",
)


def requests(rows: np.ndarray, first: int, identity: pa.Table) -> pa.Table:
    """Return requests.parquet rows.

    rows     : REQUEST records that are done, those of trace rows `first` and following
    identity : IDENTITY columns of the same trace rows
    """
    out = rows["outcome"] == layout.NOT_REPLAYED
    columns: dict[str, pa.Array | pa.ChunkedArray] = {new: identity[old] for old, new in IDENTITY.items()}
    columns["request"] = pa.array(np.arange(first, first + len(rows)))
    codes = pa.array(rows["outcome"].astype(np.int32) - 1)
    columns["outcome"] = pa.DictionaryArray.from_arrays(codes, pa.array(schema.OUTCOMES))
    columns["arrival_ns"] = pa.array(rows["arrival_ns"])
    columns["output_tokens"] = pa.array(rows["known_tokens"] - rows["input_tokens"], mask=out)
    columns["replica"] = pa.array(rows["replica"].astype(np.int16), mask=out)
    for name in ("resumed_cached_tokens", "computed_tokens", "preemptions"):
        columns[name] = pa.array(rows[name], mask=out)
    for name in _NULL_IF_NONE:
        columns[name] = pa.array(rows[name], mask=out | (rows[name] == NONE))
    return _table(schema.REQUESTS, columns)


def engine_columns(table: str, rows: np.ndarray, replica: int) -> dict[str, np.ndarray]:
    """Return rows of `steps`, `gaps` or `decisions` as the columns of the kernel's records, not copied."""
    columns = {}
    for column in schema.TABLES[table].columns:
        if column.name == "prefill_area":
            columns[column.name] = rows["prefill_area2"] / 2
        elif column.name == "replica":
            columns[column.name] = np.full(len(rows), replica, np.int16)
        else:
            columns[column.name] = rows[column.name]
    return columns


def _table(table: schema.Table, columns: dict) -> pa.Table:
    wanted = schema.arrow_schema(table)
    return pa.table([columns[name] for name in wanted.names], names=wanted.names).cast(wanted)
