"""Qwen-Bailian usage traces (JSON lines): chats with parent, turn, type and hash_ids of 16-token blocks.

Published at github.com/alibaba-edu/qwen-bailian-usagetraces-anon. `timestamp` counts seconds from an unknown
instant, `parent_chat_id` is -1 for the first turn of a conversation.
"""

from collections.abc import Iterator

import polars as pl

from pipeline.ingest import given_hashes, records
from pipeline.ingest.sources import Sample, Source

NAME = "qwen_bailian"
TITLE = "Qwen-Bailian JSON lines: chat_id, parent_chat_id, timestamp, input_length, output_length, type, turn, hash_ids"
LOCATOR = "line"
RELATIVE_CLOCK = True
PRIVATE = False
OPTIONS = {"prefix_block_tokens": "16"}
_KEYS = {"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"}


def looks(sample: Sample) -> str | None:
    """Return the reason if the first object names a chat and its parent."""
    if sample.objects and set(sample.objects[0]) >= _KEYS:
        return "JSON lines with " + ", ".join(sorted(_KEYS))
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per line."""
    scalars = ("chat_id", "parent_chat_id", "type", "turn")
    for frame in given_hashes.batches(source, options, digits=6, scalars=scalars):
        parent = pl.col("parent_chat_id")
        turn = records.count("turn")
        frame = frame.with_columns(
            pl.coalesce("chat_id", given_hashes.numbered(NAME, source)).alias("request_id"),
            pl.when(parent != "-1").then(parent).alias("parent_request_id"),
            pl.when((turn >= 1) & (turn < 2**31)).then(turn).alias("turn"),
            pl.col("type").alias("class"),
        ).drop("chat_id", "parent_chat_id", "type")
        yield frame


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Name the session after the root of its chain, flag chains that leave the file, check the hash lists."""
    return given_hashes.checked(_sessions(frame), options)


def _sessions(frame: pl.DataFrame) -> pl.DataFrame:
    """Follow parents by doubling: after k rounds every row knows its ancestor 2^k steps up, or its root."""
    parents = frame.select(pl.col("request_id").alias("id"), pl.col("parent_request_id").alias("up")).unique(
        "id", keep="first", maintain_order=True
    )
    inside = pl.col("up").is_in(parents["id"].implode())
    links = parents.with_columns(
        pl.when(inside).then("up").alias("next"),
        pl.when(inside).then("up").otherwise(pl.coalesce("up", "id")).alias("root"),
        (pl.col("up").is_not_null() & ~inside).alias("outside"),
    ).select("id", "next", "root", "outside")
    for _ in range(max(len(links), 1).bit_length()):
        if links["next"].null_count() == len(links):
            break
        above = links.rename({"id": "next", "next": "next_up", "root": "root_up", "outside": "outside_up"})
        links = links.join(above, on="next", how="left", maintain_order="left").select(
            "id",
            pl.col("next_up").alias("next"),
            pl.coalesce("root_up", "root").alias("root"),
            (pl.col("outside") | pl.col("outside_up").fill_null(False)).alias("outside"),
        )
    circle = pl.col("next").is_not_null()
    roots = links.select(
        pl.col("id").alias("request_id"),
        pl.when(~circle).then("root").alias("session_id"),
        pl.col("outside").alias("flag:parent_outside_window"),
        circle.alias("flag:parent_circle"),
    )
    return frame.join(roots, on="request_id", how="left", maintain_order="left")
