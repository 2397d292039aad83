"""Mooncake traces (JSON lines): timestamp in ms, input_length, output_length, hash_ids of 512-token blocks.

Published at github.com/kvcache-ai/Mooncake (FAST '25 release). `hash_ids` names every block of the prompt, the
last one partial where the prompt ends inside it; an id stands for its block and all before it.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import given_hashes, ticks
from pipeline.ingest.sources import Sample, Source

NAME = "mooncake"
TITLE = "Mooncake JSON lines: timestamp, input_length, output_length, hash_ids"
LOCATOR = "line"
RELATIVE_CLOCK = True
PRIVATE = False
OPTIONS = {"prefix_block_tokens": "512"}
_KEYS = {"timestamp", "input_length", "output_length", "hash_ids"}
_OTHER_DIALECTS = {"chat_id", "delay", "dependencies", "not_before_ms", "session_id"}


def looks(sample: Sample) -> str | None:
    """Return the reason if the first object has the keys of the plain form and of no other that shares them."""
    keys = set(sample.objects[0]) if sample.objects else set()
    if keys >= _KEYS and not keys & _OTHER_DIALECTS:
        return "JSON lines with timestamp, input_length, output_length, hash_ids"
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per line."""
    for frame in given_hashes.batches(source, options, digits=3, scalars=("request_id",)):
        named = pl.coalesce(pl.col("request_id"), given_hashes.numbered(NAME, source))
        yield frame.with_columns(named.alias("request_id"))


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Check the hash lists against the block size and flag a clock that ticks more coarsely than requests come."""
    frame = given_hashes.checked(frame, options)
    return frame.with_columns(pl.lit(ticks.is_bucketed(frame["clock_us"])).alias("flag:bucketed_arrivals"))
