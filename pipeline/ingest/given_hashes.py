"""What Mooncake and Qwen-Bailian share: JSON lines with lengths, a relative clock and given block ids."""

from collections.abc import Iterator, Sequence

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest import clock, lines, prefix, records
from pipeline.ingest.options import positive
from pipeline.ingest.sources import Source, line_batches

LENGTHS = ("input_length", "output_length")


def batches(source: Source, options: dict[str, str], digits: int, scalars: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield records with lengths, clock and chained hashes, plus the named scalars as text.

    digits : decimal places from the unit of `timestamp` to the microsecond
    """
    fields = dict.fromkeys(("timestamp", *LENGTHS, *scalars), pl.String()) | {"hash_ids": pl.List(pl.String())}
    for text in line_batches(source):
        frame = lines.json_columns(text, fields).rename({"line_number": "source_row"})
        frame = (
            frame.lazy()
            .with_columns(
                clock.decimal_us(lines.json_number("timestamp"), digits).alias("clock_us"),
                pl.col("hash_ids").list.eval(pl.element().cast(pl.UInt64, strict=False)).alias("ids"),
            )
            .collect()
        )
        bad_ids = pl.col("ids").list.eval(pl.element().is_null()).list.any()
        checks = [
            *records.count_faults(LENGTHS),
            (bad_ids, lines.fault("bad_row", "hash_ids holds something else than whole numbers from 0")),
            (pl.col("timestamp").is_null(), lines.fault("missing_arrival", "timestamp is absent")),
            (pl.col("clock_us").is_null(), lines.fault("bad_timestamp", "timestamp is no number")),
            *records.negative_faults(LENGTHS),
        ]
        frame = frame.lazy().with_columns(records.first_fault(checks, pl.col("fault"))).collect()
        ids = frame.select(pl.when(pl.col("fault").is_null()).then("ids").alias("prefix_hashes"))["prefix_hashes"]
        yield frame.select(
            "source_row",
            "fault",
            "clock_us",
            records.count("input_length").alias("input_tokens"),
            records.count("output_length").alias("output_tokens"),
            records.flag("tokens_missing", pl.any_horizontal(pl.col(LENGTHS).is_null())),
            *scalars,
            prefix.chain(ids),
        )


def numbered(name: str, source: Source) -> pl.Expr:
    """Return ids made of the line number, for records that have none."""
    return records.request_id(name, source)


def checked(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Add block size, covered tokens and kind where the list fits the prompt.

    A list fits if it names all blocks of the prompt or all but a partial last one. A list that does not is dropped
    and flagged `prefix_mismatch`; TraceError if that happens to more than half of them: the block size is wrong.
    """
    block = positive(options, "prefix_block_tokens")
    size, prompt = pl.col("prefix_hashes").list.len().cast(pl.Int64), pl.col("input_tokens")
    fits = ((size == -(-prompt // block)) | (size == prompt // block)) & (size > 0)
    frame = frame.with_columns(fits.fill_null(False).alias("fits"), (size > 0).fill_null(False).alias("listed"))
    misfits = frame.filter(pl.col("listed") & ~pl.col("fits"))
    if 2 * len(misfits) > frame["listed"].sum():
        guess = misfits.select((prompt / size).median())["input_tokens"][0]
        raise TraceError(
            f"hash_ids of {len(misfits):,} of {frame['listed'].sum():,} records do not fit blocks of {block} tokens; "
            f"their prompts have about {guess:.0f} tokens per id: state it with --read-option prefix_block_tokens=N"
        )
    covered = pl.min_horizontal(prompt, size * block)
    return frame.with_columns(
        pl.when("fits").then("prefix_hashes").alias("prefix_hashes"),
        pl.when("fits").then(block).alias("prefix_block_tokens"),
        pl.when("fits").then(covered).alias("prefix_tokens"),
        pl.when("fits").then(pl.lit("given_hashes")).alias("prefix_kind"),
        (pl.col("listed") & ~pl.col("fits")).alias("flag:prefix_mismatch"),
    ).drop("fits", "listed")
