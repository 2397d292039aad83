"""Source: a trace file in batches, as the engine takes them and as requests.parquet repeats them."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config import Config
from pipeline.errors import ConfigError, TraceError
from pipeline.ingest import read
from pipeline.kernel import layout
from pipeline.kernel.layout import NONE
from pipeline.replay import checks, sessions
from pipeline.replay.router import Router
from pipeline.replay.state import TraceBatch
from pipeline.replay.tables import IDENTITY

BATCH_ROWS = 16_384
_ENGINE = (
    *("arrival_us", "output_tokens", "max_tokens", "n", "priority"),
    *("prefix_hashes", "prefix_block_tokens", "prefix_tokens"),
)
_CHECKS = ("replayable", "after_request_id", "think_us")


class Source:
    """A trace to replay: batches in order, and the identity of the rows not yet written."""

    def __init__(self, path: Path, where: str | None, config: Config) -> None:
        read.check(path)
        self.path = path
        self.rate_scale = config.load.rate_scale
        self.router = Router(config.fleet)
        self.rows = 0
        self.replayed = 0
        self.with_prefix = 0
        self.several_samples = 0
        self.following = 0  # name a former request in the log
        self.samples = config.engine.SAMPLES
        self.tenants: dict[str | None, int] = {}
        self.most_tenants = config.engine.MOST_TENANTS
        self.models: dict[str | None, int] = {}
        self.first_us: int | None = None
        self.last_us = 0
        self.total_rows = pq.read_metadata(path).num_rows
        self.rows_read = 0
        self._condition = _condition(path, where)
        follow = config.load.sessions == "follow"
        self.former_rows = sessions.former_rows(path, where) if follow else None
        self._batches = self._read()
        self._identities: deque[pa.Table] = deque()

    def next(self) -> TraceBatch | None:
        """Return the next batch with rows in it, or None at the end of the trace."""
        for table in self._batches:
            self._count(table)
            self._identities.append(table.select(list(IDENTITY)))
            return self._batch(table)
        return None

    def take_identity(self, rows: int) -> pa.Table:
        """Return the identity of the next `rows` rows and forget it."""
        parts = []
        while rows > 0:
            head = self._identities.popleft()
            if len(head) > rows:
                self._identities.appendleft(head.slice(rows))
                head = head.slice(0, rows)
            parts.append(head)
            rows -= len(head)
        return pa.concat_tables(parts)

    def _read(self) -> Iterator[pa.Table]:
        columns = list(dict.fromkeys([*IDENTITY, *_ENGINE, *_CHECKS]))
        if self._condition is not None:
            columns = list(dict.fromkeys([*columns, *self._condition.meta.root_names()]))
        before_us = 0
        try:
            for batch in pq.ParquetFile(self.path).iter_batches(BATCH_ROWS, columns=columns):
                table = pa.Table.from_batches([batch])
                if len(table) == 0:
                    continue
                checks.check(str(self.path), table, self.rows_read + 1, before_us)
                before_us = table["arrival_us"][-1].as_py()
                self.rows_read += len(table)
                if self._condition is not None:
                    table = table.filter(_matches(table, self._condition))
                if len(table):
                    yield table
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{self.path}: cannot be read to its end: {error}") from error

    def _count(self, table: pa.Table) -> None:
        runs = table.filter(table["replayable"])
        self.rows += len(table)
        self.replayed += len(runs)
        self.with_prefix += len(runs) - runs["prefix_hashes"].null_count
        self.several_samples += pc.sum(pc.greater(runs["n"], 1)).as_py() or 0
        self.following += len(runs) - runs["after_request_id"].null_count
        for entry in pc.value_counts(runs["model"].combine_chunks().cast(pa.string())).to_pylist():
            self.models[entry["values"]] = self.models.get(entry["values"], 0) + entry["counts"]
        if self.first_us is None:
            self.first_us = table["arrival_us"][0].as_py()
        self.last_us = table["arrival_us"][-1].as_py()

    def _batch(self, table: pa.Table) -> TraceBatch:
        """Turn a table into engine arrays; unknown counts of rows that are not replayed become zero."""
        arrival_us = table["arrival_us"].to_numpy()
        arrival_ns = arrival_us * 1000
        if self.rate_scale != 1.0:
            scaled_ns = np.rint(arrival_ns / self.rate_scale)
            if scaled_ns[-1] > 1000 * checks.MOST_US:
                raise ConfigError(
                    f"load.rate_scale = {self.rate_scale:g}: stretches the trace to more than {checks.MOST_US:,} "
                    "microseconds; use a larger one"
                )
            arrival_ns = scaled_ns.astype(np.int64)
        lists = table["prefix_hashes"].combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        cancelled = pc.equal(table["status"].combine_chunks().cast(pa.string()), "cancelled")
        outcome = np.where(cancelled.to_numpy(zero_copy_only=False), layout.CANCELLED, layout.FINISHED)
        outcome[~table["replayable"].to_numpy()] = layout.NOT_REPLAYED
        former: np.ndarray | int = NONE
        if self.former_rows is not None:
            former = self.former_rows[self.rows - len(table) : self.rows]
        samples, sample_offsets = self._samples(table)
        return TraceBatch(
            arrival_ns=arrival_ns,
            input_tokens=_filled(table, "input_tokens", 0),
            output_tokens=_filled(table, "output_tokens", 0),
            end_outcome=outcome,
            max_tokens=_filled(table, "max_tokens", NONE),
            lengths=samples,
            length_offsets=sample_offsets,
            tenant=self._tenants(table["tenant"]),
            priority=_filled(table, "priority", 0),
            prefix_tokens=_filled(table, "prefix_tokens", 0),
            prefix_block_tokens=_filled(table, "prefix_block_tokens", 1),
            hashes=lists.flatten().to_numpy(zero_copy_only=False),
            hash_offsets=np.append(0, np.cumsum(lengths)).astype(np.int64),
            after=former,
            think_ns=1000 * _filled(table, "think_us", 0),
            replica=self.router.choose(table["replayable"].to_numpy(), table["session_id"]),
        )

    def _tenants(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return int32 numbers of the tenants, by first appearance; requests without one share a number."""
        coded = pc.dictionary_encode(column.combine_chunks().cast(pa.string()), null_encoding="encode")
        numbers = [self.tenants.setdefault(name, len(self.tenants)) for name in coded.dictionary.to_pylist()]
        if self.most_tenants is not None and len(self.tenants) > self.most_tenants:
            raise TraceError(
                f"{self.path}: has more than {self.most_tenants:,} tenants, which a queue for each cannot hold; leave "
                "some out with --where"
            )
        return np.array(numbers, np.int32)[coded.indices.to_numpy()]

    def _samples(self, table: pa.Table) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the tokens of every sample and where each row's begin; None where one sample a request is replayed.

        Logs count the output of all samples together, so each gets an equal share, the first ones what is left over.
        """
        if not self.samples:
            return None, None
        counts = np.maximum(_filled(table, "n", 1), 1)
        share, over = np.divmod(_filled(table, "output_tokens", 0), counts)
        offsets = np.append(0, np.cumsum(counts))
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return np.repeat(share, counts) + (place < np.repeat(over, counts)), offsets


def _filled(table: pa.Table, name: str, value: int) -> np.ndarray:
    return pc.fill_null(table[name], value).to_numpy()


def _condition(path: Path, where: str | None) -> pl.Expr | None:
    if where is None:
        return None
    rows = read.read_trace(path).with_columns(pl.col("arrival_time").dt.replace_time_zone(None))
    return read.condition(where, rows)


def _matches(table: pa.Table, condition: pl.Expr) -> pa.Array:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    labels = [name for name, kind in frame.schema.items() if kind == pl.Categorical or isinstance(kind, pl.Enum)]
    frame = frame.with_columns(pl.col(labels).cast(pl.String), pl.col("arrival_time").dt.replace_time_zone(None))
    return frame.select(condition.fill_null(False).alias("keep"))["keep"].to_arrow()
