"""Sink: tables into a run folder that appears whole or not at all.

Everything is written into a folder beside the final one and renamed at the end. Row groups have a fixed
size, whatever the sizes of the kernel's buffers, so the same run gives the same bytes. A thread writes
while the kernel goes on.
"""

import os
import queue
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import schema
from pipeline.errors import RunError

GROUP_ROWS = 1 << 17
PART_ROWS = 1 << 23  # rows of one steps part


def options(columns: pa.Schema) -> dict[str, Any]:
    """Return how the columns of a table are encoded, all of it compressed.

    Labels by dictionary; 64-bit numbers, which are clocks, counters and sums, by their differences; other numbers
    plainly. On steps that writes in two thirds of the time of plain numbers, and half the bytes.
    """
    labels = [field.name for field in columns if pa.types.is_dictionary(field.type)]
    rising = {field.name: "DELTA_BINARY_PACKED" for field in columns if field.type == pa.int64()}
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": labels, "column_encoding": rising}


class TableWriter:
    """One Parquet file, or parts of bounded length, in row groups of GROUP_ROWS rows."""

    def __init__(self, table: schema.Table, name: Callable[[int], Path], part_rows: int | None = None) -> None:
        self.schema = schema.arrow_schema(table)
        self.name = name
        self.part_rows = part_rows
        self.parts = 0
        self.rows_in_part = 0
        self.pending: list[pa.Table] = []
        self.pending_rows = 0
        self.group: dict[str, np.ndarray] = {}
        self.file: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table | Mapping[str, np.ndarray]) -> None:
        """Append rows, always in one of two forms: a table, or columns without nulls. Whole row groups go to disk."""
        if isinstance(rows, pa.Table):
            self._add_table(rows)
        else:
            self._add_columns(rows)

    def _add_columns(self, columns: Mapping[str, np.ndarray]) -> None:
        """Gather columns in arrays as long as a row group, which are used again and again."""
        if not self.group:
            self.group = {name: np.empty(GROUP_ROWS, column.dtype) for name, column in columns.items()}
        count, taken = len(next(iter(columns.values()))), 0
        while taken < count:
            size = min(count - taken, GROUP_ROWS - self.pending_rows)
            for name, column in columns.items():
                self.group[name][self.pending_rows : self.pending_rows + size] = column[taken : taken + size]
            taken += size
            self.pending_rows += size
            if self.pending_rows == GROUP_ROWS:
                self._write_group(self._gathered())
                self.pending_rows = 0

    def _gathered(self) -> pa.Table:
        columns = [pa.array(self.group[name][: self.pending_rows]) for name in self.schema.names]
        return pa.table(columns, names=self.schema.names).cast(self.schema)

    def _add_table(self, table: pa.Table) -> None:
        self.pending.append(table)
        self.pending_rows += len(table)
        if self.pending_rows < GROUP_ROWS:
            return
        rows = pa.concat_tables(self.pending)
        whole = len(rows) - len(rows) % GROUP_ROWS
        for start in range(0, whole, GROUP_ROWS):
            self._write_group(rows.slice(start, GROUP_ROWS))
        self.pending = [rows.slice(whole)]
        self.pending_rows = len(rows) - whole

    def close(self) -> None:
        """Write what is left; a table without rows still gets its file."""
        if self.pending_rows and self.group:
            self._write_group(self._gathered())
        elif self.pending_rows or self.parts == 0:
            self._write_group(pa.concat_tables(self.pending) if self.pending else self.schema.empty_table())
        self._close_part()

    def _write_group(self, rows: pa.Table) -> None:
        if self.file is None:
            path = self.name(self.parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = pq.ParquetWriter(path, self.schema, **options(self.schema))
            self.parts += 1
        self.file.write_table(rows.unify_dictionaries().combine_chunks(), row_group_size=GROUP_ROWS)
        self.rows_in_part += len(rows)
        if self.part_rows is not None and self.rows_in_part >= self.part_rows:
            self._close_part()

    def _close_part(self) -> None:
        if self.file is not None:
            self.file.close()
        self.file = None
        self.rows_in_part = 0


class RunFolder:
    """The folder of a run while it is being written; `keep` makes it the run, `discard` removes it.

    Raises RunError from `write`, `keep` where the disk refuses.
    """

    def __init__(self, root: Path, run_id: str, replicas: int, decisions: bool) -> None:
        self.final = root / run_id
        self.path = root / f".{run_id}.{os.getpid()}.partial"
        if self.final.exists() and not (self.final / "run.json").is_file():
            raise RunError(f"{self.final}: is there and no finished run (it has no run.json); remove it")
        try:
            root.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(root, run_id)
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir()
        except OSError as error:
            raise RunError(f"{root}: cannot write runs here: {error.strerror}") from error
        self.writers = {("requests", 0): TableWriter(schema.REQUESTS, lambda _: self.path / "requests.parquet")}
        self.merged = ("gaps", "decisions") if decisions else ("gaps",)
        for replica in range(replicas):
            self.writers["steps", replica] = TableWriter(schema.STEPS, self._steps_part(replica), PART_ROWS)
            for table in self.merged:
                self.writers[table, replica] = TableWriter(schema.TABLES[table], self._piece(table, replica))
        self.work: queue.Queue = queue.Queue(maxsize=4)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._work, name="sink", daemon=True)
        self.thread.start()

    def _steps_part(self, replica: int) -> Callable[[int], Path]:
        return lambda part: self.path / "steps" / f"replica={replica}" / f"part-{part:05}.parquet"

    def _piece(self, table: str, replica: int) -> Callable[[int], Path]:
        return lambda _: self.path / f"{table}-{replica}.parquet"

    def _work(self) -> None:
        while (item := self.work.get()) is not None:
            if self.error is None:
                try:
                    table, replica, build = item
                    self.writers[table, replica].write(build())
                except BaseException as error:
                    self.error = error

    def write(self, table: str, replica: int, build: Callable[[], pa.Table | Mapping[str, np.ndarray]]) -> None:
        """Queue rows for writing; `build` makes them in the writer's thread."""
        self._check()
        self.work.put((table, replica, build))

    def finish_tables(self) -> None:
        """Wait until every table is on disk."""
        self.work.put(None)
        self.thread.join()
        self._check()
        try:
            for writer in self.writers.values():
                writer.close()
            for table in self.merged:
                self._merge(table)
        except OSError as error:
            self.error = error
        self._check()

    def _merge(self, table: str) -> None:
        """Make one file of the replicas' pieces, in order of replica."""
        pieces = [self._piece(*key)(0) for key in self.writers if key[0] == table]
        if len(pieces) == 1:
            pieces[0].rename(self.path / f"{table}.parquet")
            return
        whole = TableWriter(schema.TABLES[table], lambda _: self.path / f"{table}.parquet")
        for piece in pieces:
            for batch in pq.ParquetFile(piece).iter_batches(GROUP_ROWS):
                whole.write(pa.Table.from_batches([batch]).cast(whole.schema))
            piece.unlink()
        whole.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a small file."""
        try:
            (self.path / name).write_text(text, encoding="utf-8")
        except OSError as error:
            self.error = error
        self._check()

    def keep(self) -> Path:
        """Give the folder its final name and return it; if another process was first, its result stays."""
        try:
            os.rename(self.path, self.final)
        except OSError as error:
            if not (self.final / "run.json").is_file():
                raise RunError(f"{self.final}: cannot be written: {error.strerror}") from error
            self.discard()
        return self.final

    def discard(self) -> None:
        """Remove the unfinished folder."""
        if self.thread.is_alive():
            self.error = self.error or InterruptedError("discarded")
            self.work.put(None)
            self.thread.join()
        shutil.rmtree(self.path, ignore_errors=True)

    def _check(self) -> None:
        if isinstance(self.error, OSError):
            reason = self.error.strerror or str(self.error)
            raise RunError(f"{self.final}: cannot be written: {reason}; nothing was kept") from self.error
        if self.error is not None:
            raise self.error


def _remove_abandoned(root: Path, run_id: str) -> None:
    """Remove what killed processes of this machine left of the same run."""
    for folder in root.glob(f".{run_id}.*.partial"):
        try:
            os.kill(int(folder.name.split(".")[2]), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (PermissionError, ValueError, OverflowError):
            continue  # somebody else's, or not ours at all
