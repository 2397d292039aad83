"""Rows to Parquet: order by arrival across slices, number the requests, write in equal row groups."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.ingest.synth import prefix, sessions
from pipeline.ingest.synth.sessions import NONE, STATUSES
from pipeline.ingest.synth.traffic import CLASSES
from pipeline.schema import TRACE, arrow_schema

ROW_GROUP_ROWS = 131_072
SCHEMA = arrow_schema(TRACE)


@dataclass(slots=True)
class Summary:
    """What was generated: counts of rows and tokens, and the span of arrivals in microseconds."""

    requests: int = 0
    replayable: int = 0
    span_us: int = 0
    input_tokens: int = 0  # of replayable requests
    output_tokens: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)


class Sink:
    """Collects rows slice by slice and writes those whose time has come.

    Use as a context manager: the file appears under its name when the block ends without an error,
    and not at all otherwise. Rows that arrive outside [0, end_us) are left out.
    """

    def __init__(
        self, path: Path, *, seed: int, start_us: int, end_us: int, tenants: tuple[str, ...], model: str
    ) -> None:
        """start_us : epoch microseconds of the window's start."""
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._seed, self._start_us, self._end_us = seed, start_us, end_us
        self._tenants, self._model = pa.array(tenants, pa.string()), model
        self._pending = np.empty(0, sessions.ROW)
        self._tables: list[pa.Table] = []
        self._first_us: int | None = None
        self.summary = Summary()

    def __enter__(self) -> "Sink":
        """Open the file under its hidden name."""
        self._writer = pq.ParquetWriter(self._partial, SCHEMA, compression="zstd", compression_level=6)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the file and give it its name, or remove it after an error."""
        try:
            if kind is None:
                self._write_groups(least=1)
                self._writer.close()
                os.replace(self._partial, self._path)
            else:
                with contextlib.suppress(OSError):  # the first error is the one to tell
                    self._writer.close()
        finally:
            self._partial.unlink(missing_ok=True)

    def add(self, parts: list[np.ndarray], until_us: int) -> None:
        """Take new rows and write every row that arrives before `until_us`; no later part may hold such a row."""
        rows = np.concatenate([self._pending, *parts])
        rows = rows[(rows["arrival_us"] >= 0) & (rows["arrival_us"] < self._end_us)]
        due = rows["arrival_us"] < until_us
        self._pending, ready = rows[~due], rows[due]
        ready = ready[np.lexsort((ready["key"], ready["arrival_us"]))]
        if not len(ready):
            return
        first = self.summary.requests + 1
        for children in (ready, self._pending):
            _link(children, ready["key"], first)
        if self._first_us is None:
            self._first_us = int(ready["arrival_us"][0])
        self._tables.append(self._table(ready, first))
        self._count(ready)
        self._write_groups(least=ROW_GROUP_ROWS)

    def _write_groups(self, least: int) -> None:
        """Write all full row groups, and a last one of at least `least` rows."""
        waiting = sum(len(table) for table in self._tables)
        if waiting < least or not waiting:
            return
        table = pa.concat_tables(self._tables)
        whole = waiting if least < ROW_GROUP_ROWS else waiting // ROW_GROUP_ROWS * ROW_GROUP_ROWS
        self._writer.write_table(table.slice(0, whole), row_group_size=ROW_GROUP_ROWS)
        self._tables = [table.slice(whole)]

    def _count(self, rows: np.ndarray) -> None:
        total = self.summary
        total.requests += len(rows)
        total.span_us = int(rows["arrival_us"][-1]) - (self._first_us or 0)
        good = rows[_replayable(rows)]
        total.replayable += len(good)
        total.input_tokens += int(good["input_tokens"].sum(dtype=np.int64))
        total.output_tokens += int(good["output_tokens"].sum(dtype=np.int64))
        for index, n in enumerate(np.bincount(rows["klass"])):
            if n:
                name = CLASSES[index].name
                total.classes[name] = total.classes.get(name, 0) + int(n)
        for index, n in enumerate(np.bincount(rows["status"])):
            if n:
                total.statuses[STATUSES[index]] = total.statuses.get(STATUSES[index], 0) + int(n)

    def _table(self, rows: np.ndarray, first: int) -> pa.Table:
        """Return trace rows for sorted ROW[n] whose first request has the number `first`."""
        n = len(rows)
        klass = rows["klass"]
        has_session = _by_class(klass, [traffic.sessions for traffic in CLASSES])
        parent = _numbered("synth:", rows["parent"])
        session = pc.binary_join_element_wise("s-", _text(rows["session"]), "")
        call = pc.binary_join_element_wise("c-", _text(rows["session"]), ".", _text(rows["turn"]), "")
        covered = rows["prefix_tokens"] > 0
        columns = {
            "request_id": _numbered("synth:", first + np.arange(n)),
            "logical_id": _where(rows["retried"], call),
            "attempt": pa.array(rows["attempt"]),
            "arrival_time": pa.array(rows["arrival_us"] + self._start_us, SCHEMA.field("arrival_time").type),
            "arrival_us": pa.array(rows["arrival_us"] - self._first_us),
            "input_tokens": _known(rows["input_tokens"]),
            "output_tokens": _known(rows["output_tokens"]),
            "reasoning_tokens": _known(rows["reasoning_tokens"]),
            "max_tokens": _known(rows["max_tokens"]),
            "model": _labels(np.zeros(n, np.int32), pa.array([self._model])),
            "tenant": _labels(rows["tenant"], self._tenants),
            "class": _labels(klass, pa.array([traffic.name for traffic in CLASSES])),
            "session_id": _where(has_session, session),
            "turn": pa.array(rows["turn"].astype(np.int32), mask=~has_session),
            "parent_request_id": parent,
            "after_request_id": parent,
            "think_us": pa.array(rows["think_us"], mask=rows["parent"] == NONE),
            "priority": pa.array(_by_class(klass, [traffic.priority for traffic in CLASSES]).astype(np.int32)),
            "n": pa.array(np.ones(n, np.int16)),
            "stream": pa.array(_by_class(klass, [traffic.stream for traffic in CLASSES])),
            "status": _labels(rows["status"], pa.array(STATUSES)),
            "http_status": _known(_by_class(rows["status"], sessions.HTTP_STATUS).astype(np.int16)),
            "error_type": pa.array(sessions.ERROR_TYPE, pa.string()).take(pa.array(rows["status"])),
            "finish_reason": pa.array(sessions.FINISH_REASONS).take(_known(rows["finish"])),
            "served_from": _labels(np.zeros(n, np.int32), pa.array(["engine"])),
            "replayable": pa.array(_replayable(rows)),
            "flags": _flags(has_session & (rows["turn"] > 1) & (rows["parent"] == NONE)),
            "prefix_hashes": _hash_lists(rows, self._seed, covered),
            "prefix_block_tokens": pa.array(np.full(n, prefix.BLOCK_TOKENS, np.int32), mask=~covered),
            "prefix_tokens": pa.array(rows["prefix_tokens"], mask=~covered),
            "prefix_kind": _where(covered, pa.repeat("token_blocks", n)),
        }
        return pa.table([columns[f.name] if f.name in columns else pa.nulls(n, f.type) for f in SCHEMA], schema=SCHEMA)


def _link(children: np.ndarray, keys: np.ndarray, first: int) -> None:
    """Set `parent` of the children whose parent is among the requests with these keys, numbered from `first`."""
    order = np.argsort(keys)
    place = np.searchsorted(keys, children["parent_key"], sorter=order)
    found = order[np.minimum(place, len(keys) - 1)]
    match = keys[found] == children["parent_key"]
    children["parent"][match] = first + found[match]


def _replayable(rows: np.ndarray) -> np.ndarray:
    return rows["status"] <= sessions.CANCELLED


def _by_class(index: np.ndarray, values: list | tuple) -> np.ndarray:
    return np.array(values)[index]


def _text(numbers: np.ndarray) -> pa.Array:
    return pc.cast(pa.array(numbers), pa.string())


def _numbered(label: str, numbers: np.ndarray) -> pa.Array:
    """Return label + number, null where the number is NONE."""
    return pc.binary_join_element_wise(label, pc.cast(_known(numbers), pa.string()), "")


def _known(values: np.ndarray) -> pa.Array:
    return pa.array(values, mask=values == NONE)


def _where(mask: np.ndarray, values: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(mask), values, pa.scalar(None, pa.string()))


def _labels(codes: np.ndarray, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)


def _flags(outside: np.ndarray) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(outside))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.repeat("parent_outside_window", int(offsets[-1])))


def _hash_lists(rows: np.ndarray, seed: int, covered: np.ndarray) -> pa.Array:
    names, offsets = prefix.block_names(rows, seed)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(names), mask=pa.array(~covered))
