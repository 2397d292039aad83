"""What must be true of trace rows before an engine gets them.

`ingest` writes only such rows; but a file with the right columns may come from anywhere, and the compiled
engine looks at nothing twice.
"""

import polars as pl
import pyarrow as pa

from pipeline.errors import TraceError
from pipeline.ingest.records import MAX_TOKENS

MOST_US = 2**61 // 1000  # so that nanoseconds, and a client's patience on top, stay within int64

_input, _output = pl.col("input_tokens"), pl.col("output_tokens")
_hashes, _covered, _block = pl.col("prefix_hashes"), pl.col("prefix_tokens"), pl.col("prefix_block_tokens")
_hashed = _hashes.list.len().fill_null(0) > 0

ARRIVALS = (
    ("arrival_us is below 0", pl.col("arrival_us") < 0),
    (f"arrival_us is above {MOST_US:,}", pl.col("arrival_us") > MOST_US),
    ("arrival_us is below that of the row before", pl.col("arrival_us") < pl.col("before_us")),
)
# Of rows that reach the engine.
COUNTS = (
    ("input_tokens is missing", _input.is_null()),
    ("output_tokens is missing", _output.is_null()),
    ("input_tokens is below 1", _input < 1),
    ("output_tokens is below 1", _output < 1),
    (f"input_tokens is above {MAX_TOKENS:,}", _input > MAX_TOKENS),
    (f"output_tokens is above {MAX_TOKENS:,}", _output > MAX_TOKENS),
    ("prefix_tokens is below 0", _covered < 0),
    ("prefix_block_tokens is below 1", _block < 1),
    ("prefix_hashes without prefix_tokens", _hashed & _covered.is_null()),
    ("prefix_hashes without prefix_block_tokens", _hashed & _block.is_null()),
    ("prefix_hashes holds a null", _hashes.list.eval(pl.element().is_null()).list.any()),
    ("prefix_tokens is above input_tokens + output_tokens", _covered > _input + _output),
    (
        "prefix_hashes has not one entry per prefix_block_tokens of prefix_tokens",
        _hashes.list.len().cast(pl.Int64).fill_null(0) != (_covered + _block - 1) // _block,
    ),
)
_NEEDED = ("arrival_us", "replayable", "input_tokens", "output_tokens")
_PREFIX = ("prefix_hashes", "prefix_tokens", "prefix_block_tokens")


def check(name: str, rows: pa.Table, first_row: int, before_us: int) -> None:
    """Raise TraceError with the first fault among consecutive rows of a trace.

    first_row : number of the first of them in the file, from 1
    before_us : arrival of the row before
    """
    frame = pl.from_arrow(rows.select([*_NEEDED, *_PREFIX]))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.col("arrival_us").shift(1, fill_value=before_us).alias("before_us"))
    faults = [bad for _, bad in ARRIVALS] + [bad & pl.col("replayable") for _, bad in COUNTS]
    numbers = [pl.col(name).cast(pl.Int64) for name in (*_NEEDED[2:], *_PREFIX[1:])]
    places = frame.with_columns(numbers).select(
        (pl.when(bad.fill_null(False)).then(pl.int_range(pl.len()))).min().alias(str(number))
        for number, bad in enumerate(faults)
    )
    found = [(row, number) for number, row in enumerate(places.row(0)) if row is not None]
    if found:
        row, number = min(found)
        what = (*ARRIVALS, *COUNTS)[number][0]
        raise TraceError(
            f"{name}: row {first_row + row}: {what}; `servecast ingest {name} -o OTHER.parquet` sorts the rows and "
            "sets aside those that cannot be used"
        )
