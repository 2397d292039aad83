"""Prefix identity: chained block hashes, what follow-up turns reveal about answers, and the reuse they promise.

A block hash stands for its tokens and for everything before them:

    hash_0 = mix(mix0 + id_0),  hash_k = mix(hash_(k-1) * GOLDEN + mix(id_k + GOLDEN))

in 64-bit wrapping arithmetic, `mix` being the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
There is no seed: the same ids give the same hashes in every import. `namespace` sets apart ids that are local
to a session or a file.
"""

import numpy as np
import polars as pl

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SLICE_ROWS = 10_000
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x: np.ndarray) -> np.ndarray:
    """Return the splitmix64 finaliser of each uint64."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


def chain(ids: pl.Series, namespace: np.ndarray | None = None) -> pl.Series:
    """Turn lists of block ids (List(UInt64)) into lists of chained hashes of the same lengths.

    namespace : uint64 per row, the hash before the first block; 0 for all if None
    """
    lengths = ids.list.len().fill_null(0).to_numpy().astype(np.int64)
    flat = ids.drop_nulls().explode(empty_as_null=False).to_numpy().astype(np.uint64)
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")
    longest_first = lengths[order]
    parent = (np.zeros(len(ids), np.uint64) if namespace is None else namespace)[order]
    hashes = np.empty(len(flat), np.uint64)
    for k in range(int(lengths.max(initial=0))):
        rows = int(np.searchsorted(-longest_first, -k, side="left"))
        at = starts[order[:rows]] + k
        parent[:rows] = mix(parent[:rows] * GOLDEN + mix(flat[at] + GOLDEN))
        hashes[at] = parent[:rows]
    return _lists(hashes, lengths, ids.is_not_null().to_numpy(), ids.name)


def _lists(values: np.ndarray, lengths: np.ndarray, present: np.ndarray, name: str) -> pl.Series:
    """Cut flat values into lists of the given lengths; rows not present are null."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    groups = pl.DataFrame({"row": rows, name: pl.Series(values, dtype=pl.UInt64)}).group_by("row", maintain_order=True)
    lists = pl.DataFrame({"row": np.arange(len(lengths))}).join(
        groups.agg(name), on="row", how="left", maintain_order="left"
    )[name]
    empty = pl.Series(present & (lengths == 0))
    return pl.select(pl.when(empty).then(pl.lit([], pl.List(pl.UInt64))).otherwise(lists).alias(name))[name]


def extend(frame: pl.DataFrame) -> pl.DataFrame:
    """Let the hashes of a request reach over its answer where a follow-up turn shows what the answer was.

    A child extends its parent if its prompt starts with all full blocks of the parent's prompt and is at least as
    long as the parent's prompt and answer together. The first such child by arrival gives the parent's blocks up
    to that length; its own last block, if partial, is taken as its own child completed it. Parents whose hashes do
    not cover exactly their prompt (or its full blocks) stay as they are.
    frame : rows of a trace in order; changes prefix_hashes and prefix_tokens
    """
    donors = _donors(frame)
    if not len(donors):
        return frame
    taken = frame["prefix_hashes"].gather(donors["donor"]).alias("longer")
    longer = donors.with_columns(taken).select("row", "reach", pl.col("longer").list.head(pl.col("blocks")))
    return (
        frame.with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .join(longer, on="row", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("longer", "prefix_hashes").alias("prefix_hashes"),
            pl.coalesce("reach", "prefix_tokens").cast(pl.Int32).alias("prefix_tokens"),
        )
        .drop("row", "longer", "reach")
    )


def _donors(frame: pl.DataFrame) -> pl.DataFrame:
    """Return (row, donor, blocks, reach): whose list each extended row takes, how much of it, covering what."""
    block = pl.col("prefix_block_tokens").cast(pl.Int64)
    total = pl.col("input_tokens").cast(pl.Int64) + pl.col("output_tokens")
    rows = frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        "request_id",
        "parent_request_id",
        "session_id",
        "turn",
        block.alias("block"),
        total.alias("reach"),
        (pl.col("input_tokens") // block).cast(pl.Int64).alias("full"),
        pl.col("output_tokens"),
        pl.col("input_tokens").cast(pl.Int64),
        pl.col("prefix_tokens").cast(pl.Int64),
        "prefix_hashes",
    ).filter(pl.col("prefix_hashes").is_not_null())
    pairs = _parents(rows)
    if not len(pairs):
        return pairs
    parent_end = pl.col("prefix_hashes").list.get(pl.col("full") - 1, null_on_oob=True)
    child_end = pl.col("child_hashes").list.get(pl.col("full") - 1, null_on_oob=True)
    exact = (pl.col("prefix_tokens") == pl.col("input_tokens")) | (
        pl.col("prefix_tokens") == pl.col("full") * pl.col("block")
    )
    fits = (
        exact
        & (pl.col("output_tokens") > 0)
        & (pl.col("child_block") == pl.col("block"))
        & (pl.col("child_input") >= pl.col("reach"))
        & (pl.col("child_prefix") >= pl.col("reach"))
        & ((pl.col("full") == 0) | (parent_end == child_end))
    )
    found = pairs.filter(fits).sort("row", "donor").unique("row", keep="first", maintain_order=True)
    found = found.with_columns((-(-pl.col("reach") // pl.col("block"))).alias("blocks"))
    return _completed(found).select("row", "donor", "blocks", "reach")


def _parents(rows: pl.DataFrame) -> pl.DataFrame:
    """Pair every row with the rows that follow it: named parent, else the turn before in the session."""
    child = rows.select(
        pl.col("row").alias("donor"),
        "parent_request_id",
        "session_id",
        "turn",
        pl.col("input_tokens").alias("child_input"),
        pl.col("prefix_tokens").alias("child_prefix"),
        pl.col("block").alias("child_block"),
        pl.col("prefix_hashes").alias("child_hashes"),
    )
    parent = rows.drop("parent_request_id")
    named = parent.drop("session_id", "turn").join(
        child.drop("session_id", "turn"), left_on="request_id", right_on="parent_request_id"
    )
    unnamed = child.filter(pl.col("parent_request_id").is_null()).with_columns(pl.col("turn") - 1)
    by_turn = parent.join(unnamed.drop("parent_request_id"), on=["session_id", "turn"]).select(named.columns)
    return pl.concat([named, by_turn]).filter(pl.col("row") != pl.col("donor"))


def _completed(found: pl.DataFrame) -> pl.DataFrame:
    """Follow donors whose last taken block is partial to the later turn that completed it."""
    links = found.select(pl.col("row").alias("donor"), pl.col("donor").alias("next"))
    inputs = found.select(pl.col("donor").alias("next"), pl.col("child_input").alias("next_input")).unique("next")
    while True:
        partial = pl.col("blocks") > pl.col("child_input") // pl.col("block")
        moved = found.join(links, on="donor", how="left", maintain_order="left").with_columns(
            pl.when(partial & pl.col("next").is_not_null()).then("next").otherwise("donor").alias("next")
        )
        if (moved["next"] == moved["donor"]).all():
            return found
        found = (
            moved.join(inputs, on="next", how="left", maintain_order="left")
            .with_columns(pl.col("next").alias("donor"), pl.col("next_input").alias("child_input"))
            .drop("next", "next_input")
        )


def reuse(frame: pl.DataFrame) -> dict[str, int]:
    """Count prompt tokens that an infinite cache would have held, walking the trace in order.

    A block is found over the tokens that an earlier row covered; the walk ends at the first one not found whole.
    Returns prompt_tokens (all rows that state them), listed_tokens (hits, partial blocks included) and
    full_tokens (hits in full blocks alone). Memory grows with distinct blocks, not with listed ones.
    """
    rows = frame.select(
        pl.col("prefix_block_tokens").cast(pl.Int64),
        pl.col("input_tokens").cast(pl.Int64),
        pl.col("prefix_tokens").cast(pl.Int64),
        "prefix_hashes",
    ).filter(pl.col("prefix_hashes").list.len() > 0)
    listed = full = 0
    known: dict[int, dict[int, int]] = {}
    for part in rows.iter_slices(_SLICE_ROWS):
        for block, prompt, covered, hashes in part.iter_rows():
            found, whole = _walk(known.setdefault(block, {}), block, prompt, covered, hashes)
            listed, full = listed + found, full + whole
    return {
        "prompt_tokens": int(frame["input_tokens"].cast(pl.Int64).sum()),
        "listed_tokens": listed,
        "full_tokens": full,
    }


def _walk(best: dict[int, int], block: int, prompt: int, covered: int, hashes: list[int]) -> tuple[int, int]:
    """Return the tokens of a row that were known, and those in full blocks; note what it covers itself."""
    listed = full = start = 0
    walking = True
    for block_hash in hashes:
        had = best.get(block_hash, 0)
        reach = min(block, covered - start)
        own = min(reach, prompt - start)
        if walking and own > 0:
            hit = min(had, own)
            listed += hit
            if own == block == hit:
                full += own
            walking = hit == own
        if reach > had:
            best[block_hash] = reach
        start += block
    return listed, full
