"""Traffic: the requests of a log, gone through batch by batch as often as is asked, and what they come to by minute.

A log of any length needs memory for a batch, for its minutes, and for its last hour.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.capacity import admission
from pipeline.capacity.accounting import Counter, Demand
from pipeline.capacity.rates import Offer
from pipeline.config import Prices
from pipeline.errors import TraceError
from pipeline.ingest import read

MINUTE_US = 60_000_000
COLUMNS = (
    "arrival_us", "arrival_time", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "max_tokens",
    "obs_e2e_us",
)  # fmt: skip
_TAIL_US = 60 * MINUTE_US
_BATCH = 1 << 17  # every size of a sweep has its own scratch arrays for a batch


@dataclass(frozen=True, slots=True)
class Traffic:
    """Replayable requests in order of arrival, with longer answers or another share of cached input if asked.

    read   : goes through the log once more, in batches
    output : factor on output tokens
    cached : factor on cached input; what is no longer cached is plain, and no more is cached than there is
    """

    read: Callable[[], Iterable[pl.DataFrame]]
    output: float = 1.0
    cached: float = 1.0

    @classmethod
    def of(cls, trace: pl.DataFrame, rows: int = _BATCH) -> "Traffic":
        """Return the traffic of a trace in memory, to be gone through so many rows at a time."""
        return cls(lambda: (trace[first : first + rows] for first in range(0, len(trace), rows)))

    @classmethod
    def stored(cls, path: Path, where: str | None) -> "Traffic":
        """Return the traffic of a trace file; TraceError if it is none or the condition cannot be used."""
        read.check(path)
        return cls(lambda: read.batches(path, [*COLUMNS, "replayable"], where, _BATCH))

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield the requests with at least one in each batch."""
        for rows in self.read():
            kept = rows.filter("replayable") if "replayable" in rows.columns else rows
            kept = kept.select(name for name in COLUMNS if name in kept.columns)
            if len(kept):
                yield self._changed(kept)

    def demands(self, offer: Offer, prices: Prices) -> Iterator[Demand]:
        """Yield what the requests ask of a unit of the offer; raises as `accounting.Counter`."""
        counter = Counter(offer, prices)
        return (counter.count(rows) for rows in self.batches())

    def _changed(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self.output != 1.0:
            rows = rows.with_columns(
                (pl.col(name).cast(pl.Float64) * self.output).round().clip(1).cast(pl.Int64)
                for name in ("output_tokens", "max_tokens")
                if name in rows.columns
            )
        if self.cached != 1.0 and "cached_tokens" in rows.columns:
            written = pl.col("cache_write_tokens").fill_null(0) if "cache_write_tokens" in rows.columns else pl.lit(0)
            room = pl.col("input_tokens").cast(pl.Int64) - written.cast(pl.Int64)
            more = (pl.col("cached_tokens").fill_null(0).cast(pl.Float64) * self.cached).round().cast(pl.Int64)
            rows = rows.with_columns(pl.min_horizontal(more, room).alias("cached_tokens"))
        return rows


@dataclass(slots=True)
class Minutes:
    """What the requests of each minute come to, empty minutes included; arrays of equal length.

    actual, second_actual : weighted tokens times `scale`, of the unit's budgets
    """

    scale: int
    requests: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    actual: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    second_actual: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    raw_tokens: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    payg_usd: np.ndarray = field(default_factory=lambda: np.zeros(0))
    spill_usd: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, demand: Demand) -> None:
        """Add a batch. Sums of dollars are made in order of arrival, so that batches do not show in their last bits."""
        minute = demand.arrival_us // MINUTE_US
        missing = int(minute[-1]) + 1 - len(self.requests)
        if missing > 0:
            for name in ("requests", "actual", "second_actual", "raw_tokens", "payg_usd", "spill_usd"):
                setattr(self, name, np.pad(getattr(self, name), (0, missing)))
        np.add.at(self.requests, minute, 1)
        for name in ("actual", "raw_tokens", "payg_usd", "spill_usd"):
            np.add.at(getattr(self, name), minute, getattr(demand, name))
        if len(demand.second_actual):
            np.add.at(self.second_actual, minute, demand.second_actual)

    def times(self, growth: float = 1.0, payg: float = 1.0) -> "Minutes":
        """Return the minutes with so much more traffic, or at other pay-as-you-go prices."""
        return replace(
            self,
            actual=self.actual * growth,
            second_actual=self.second_actual * growth,
            payg_usd=self.payg_usd * growth * payg,
            spill_usd=self.spill_usd * growth * payg,
        )


@dataclass(slots=True)
class Survey:
    """What one pass over the traffic finds.

    too_long  : requests that bought capacity refuses whatever the load
    tokens    : sum of each class of tokens that the trace has a column for; None where no request states it
    last_rows : the requests of the last hour, and `recent`, outputs before them as `accounting.Counter` knows them
    """

    minutes: Minutes
    requests: int = 0
    too_long: int = 0
    tokens: dict[str, int | None] = field(default_factory=dict)
    first_time: datetime | None = None
    last_us: int = 0
    last_rows: list[tuple[np.ndarray, pl.DataFrame]] = field(default_factory=list)

    @property
    def span_us(self) -> int:
        """Length of the log, up to the end of its last minute."""
        return (self.last_us // MINUTE_US + 1) * MINUTE_US

    def tail(self, offer: Offer, prices: Prices) -> Demand:
        """Return what the requests of the last hour of the log ask, or of the whole log if it is shorter."""
        counter = Counter(offer, prices)
        counter.recent = self.last_rows[0][0]
        found = counter.count(pl.concat(rows for _, rows in self.last_rows))
        first = int(np.searchsorted(found.arrival_us, self.span_us - min(self.span_us, _TAIL_US)))
        return admission.part(found, slice(first, None))


def survey(traffic: Traffic, offer: Offer, prices: Prices) -> Survey:
    """Go through the traffic once; TraceError if there is no request, else as `Traffic.demands`."""
    counter = Counter(offer, prices)
    found = Survey(Minutes(counter.scale))
    for rows in traffic.batches():
        before = counter.recent
        demand = counter.count(rows)
        if found.requests == 0 and "arrival_time" in rows.columns:
            found.first_time = rows["arrival_time"][0]
        found.minutes.add(demand)
        found.requests += len(demand)
        found.too_long += int((~demand.served).sum())
        found.last_us = int(demand.arrival_us[-1])
        for name in ("cached_tokens", "cache_write_tokens"):
            if name in rows.columns:
                known = rows[name].drop_nulls()
                former = found.tokens.get(name)
                found.tokens[name] = (former or 0) + int(known.sum()) if len(known) or former is not None else None
        found.last_rows.append((before, rows))
        # A minute more than the hour, since the log is taken to end with its last minute.
        begin_us = found.last_us - _TAIL_US - MINUTE_US
        while len(found.last_rows) > 1 and int(found.last_rows[1][1]["arrival_us"][0]) <= begin_us:
            found.last_rows.pop(0)
    if found.requests == 0:
        raise TraceError("no request of the trace can be counted: none was served by the engine with known tokens")
    return found
