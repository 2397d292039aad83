"""What a purchase of so many units takes, refuses and spills: requests through `buckets`, sizes side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from pipeline.capacity import buckets
from pipeline.capacity.accounting import Demand
from pipeline.capacity.rates import Unit
from pipeline.config import Prices
from pipeline.errors import ConfigError

_RETRIES = {"none": buckets.NO_RETRY, "retry_after": buckets.RETRY_AFTER, "exponential": buckets.EXPONENTIAL}
_MOST = 1 << 61  # sums of tokens stay far below the range of int64
_MINUTE_US = 60_000_000
_COLUMNS = tuple(name for name in Demand.__slots__ if name != "scale")


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of the requests under one purchase.

    throttled      : refusals (429), each attempt counted
    delay_s        : time lost to refusals in all: between first attempt and admission or giving up, and
        prices.spill_delay_ms for each spilled request
    spilled_weighted_tokens, spilled_raw_tokens, spilled_usd : of those that were not admitted; one that was refused
        for good is charged as if it had spilled, since its answer has to come from somewhere
    minutes        : weighted tokens of admitted requests by minute of admission
    """

    units: int
    requests: int
    accepted: int
    spilled: int
    refused: int
    throttled: int
    delay_s: float
    weighted_tokens: float
    spilled_weighted_tokens: float
    spilled_raw_tokens: int
    spilled_usd: float
    minutes: np.ndarray

    @property
    def spilled_share(self) -> float:
        """Share of weighted tokens that the purchase did not serve."""
        return self.spilled_weighted_tokens / self.weighted_tokens if self.weighted_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Trail:
    """What happened to each request at its last attempt.

    decision : "accepted", "spilled" or "refused"
    level    : weighted tokens in the bucket just before; for windows, what was left of the quota
    wait_ms  : retry-after that it was told, milliseconds; 0 if it was told none
    """

    decision: list[str]
    level: list[float]
    wait_ms: list[int]


class Replay:
    """Requests through a purchase of a fixed size, batch by batch; `feed` in order of time, then `result`."""

    def __init__(self, unit: Unit, prices: Prices, units: int, scale: int, span_us: int) -> None:
        """Prepare the bucket; ConfigError if its numbers are too large to stay exact.

        scale   : as in Demand
        span_us : end of the log; `minutes` reaches up to it
        """
        self.units, self.scale, self.prices = units, scale, prices
        self.minutes = np.zeros(max(1, -(-span_us // _MINUTE_US)), np.int64)
        self.counters = np.zeros(buckets.COUNTERS, np.int64)
        self.state = np.zeros(buckets.STATE, np.int64)
        self.requests = 0
        self.weighted = 0
        self.spilled_usd = 0.0
        self._due = [np.zeros(0, np.int64)] * 3
        self._retries = np.zeros(0, buckets.RETRY)
        self._pending: Demand | None = None
        per_us = unit.tokens_per_minute * scale / _MINUTE_US
        self.leaky = prices.provider == "azure"
        self.exact = per_us.denominator if self.leaky else 1
        self.drain = units * per_us.numerator
        self.depth = self.drain * round(1e6 * prices.bucket_s)
        self.window_us = round(1e6 * window_s(prices, units))
        self.quota = int(units * per_us * self.window_us)
        second = unit.output_tokens_per_minute or Fraction(0)
        self.second_quota = int(units * second * scale * Fraction(self.window_us, _MINUTE_US))
        if not self.leaky:
            self.state[buckets.AT] = buckets.NO_WINDOW
        if max(self.depth, self.quota, self.second_quota) > _MOST:
            raise ConfigError(f"{units:,} units: their tokens are too many to be counted exactly; buy fewer")

    def warm(self, demand: Demand) -> None:
        """Bring the bucket to where these requests, at negative times, leave it; they are not counted."""
        self.state[buckets.AT] = demand.arrival_us[0] if self.leaky else buckets.NO_WINDOW
        kept = (self.counters.copy(), self.minutes.copy())
        self.feed(demand)
        self.counters, self.minutes = kept
        self.requests, self.weighted, self.spilled_usd = 0, 0, 0.0

    def feed(self, demand: Demand, final: bool = True, trail: bool = False) -> Trail | None:
        """Send a batch of requests through; with `trail`, return what happened to each of a log in one batch.

        final : this is the last batch; before it, refused clients may have to wait for the next one to try again
        """
        n = len(demand)
        if self._pending is not None:
            demand = together(self._pending, demand)
        rows = len(demand)
        decision, level, wait_ms = np.full(rows, buckets.PENDING, np.int8), *np.zeros((2, rows * trail), np.int64)
        if self.units == 0:
            decision[:] = 2
            self._spill_all(demand)
        else:
            self._run(demand, rows - n, final, decision, level, wait_ms)
        self.requests += n
        self.weighted += int(demand.actual[rows - n :].sum())
        # Without units there is no other side: the cache is that of pay-as-you-go itself.
        usd = demand.spill_usd if self.units else demand.payg_usd
        self.spilled_usd += float(usd[(decision == 0) | (decision == 2)].sum())
        if not trail:
            return None
        names = ("refused", "accepted", "spilled")
        whole = self.scale * self.exact
        return Trail([names[d] for d in decision], (level / whole).tolist(), wait_ms.tolist())

    def result(self) -> Admitted:
        """Return what became of all requests fed so far."""
        c = self.counters
        whole = self.scale * self.exact
        return Admitted(
            units=self.units,
            requests=self.requests,
            accepted=int(c[buckets.ACCEPTED]),
            spilled=int(c[buckets.SPILLED]),
            refused=int(c[buckets.REFUSED]),
            throttled=int(c[buckets.THROTTLED]),
            delay_s=float(c[buckets.RETRY_US]) / 1e6 + self._spill_delay_s(),
            weighted_tokens=self.weighted / self.scale,
            spilled_weighted_tokens=float(c[buckets.SPILLED_WEIGHTED]) / whole,
            spilled_raw_tokens=int(c[buckets.SPILLED_RAW]),
            spilled_usd=self.spilled_usd,
            minutes=self.minutes / whole,
        )

    def _run(
        self, demand: Demand, first_row: int, final: bool, decision: np.ndarray, level: np.ndarray, wait_ms: np.ndarray
    ) -> None:
        n, p = len(demand), self.prices
        self._due = [np.concatenate([old[: self.state[buckets.DUE]], np.zeros(n, np.int64)]) for old in self._due]
        room = n - len(self._retries) if p.retry != "none" else 1
        retries = np.concatenate([self._retries, np.zeros(room, buckets.RETRY)])
        policy: Any = (_RETRIES[p.retry], p.max_retries, p.overflow == "spill", self.state, *self._due, retries)
        counted: Any = (first_row, final, self.minutes, decision, level, wait_ms, self.counters)
        if self.leaky:
            buckets.leak(
                demand.arrival_us, demand.duration_us, demand.estimate * self.exact, demand.actual * self.exact,
                demand.raw_tokens, demand.served, self.drain, self.depth, *policy, *counted,
            )  # fmt: skip
        else:
            buckets.windows(
                demand.arrival_us, demand.duration_us, demand.estimate, demand.actual, demand.second_estimate,
                demand.second_actual, demand.raw_tokens, demand.served, self.quota, self.second_quota, self.window_us,
                round(1e6 * p.window_phase_s), *policy, *counted,
            )  # fmt: skip
        self._keep(demand, retries[: self.state[buckets.WAITING]])

    def _keep(self, demand: Demand, retries: np.ndarray) -> None:
        """Keep the requests that still retry, to stand at the front of the next batch in their present order."""
        rows = np.sort(retries["row"])
        self._retries = retries.copy()
        self._retries["row"] = np.searchsorted(rows, retries["row"])
        self._pending = part(demand, rows) if len(rows) else None

    def _spill_delay_s(self) -> float:
        """Return what the failed first attempts of spilled requests cost; without units there is no first attempt."""
        return int(self.counters[buckets.SPILLED]) * self.prices.spill_delay_ms / 1e3 if self.units else 0.0

    def _spill_all(self, demand: Demand) -> None:
        """Nothing is bought, so everything is pay-as-you-go."""
        self.counters[buckets.SPILLED] += len(demand)
        self.counters[buckets.SPILLED_WEIGHTED] += demand.actual.sum() * self.exact
        self.counters[buckets.SPILLED_RAW] += demand.raw_tokens.sum()


def window_s(prices: Prices, units: int) -> float:
    """Return the length of a quota window: a minute, or Google's by the number of units (its worked figures)."""
    if prices.window_s is not None:
        return prices.window_s
    if prices.provider != "google":
        return 60.0
    return 120.0 if units <= 3 else 30.0 if units < 50 else 5.0


def sweep(
    unit: Unit,
    prices: Prices,
    sizes: Sequence[int],
    batches: Iterable[Demand],
    span_us: int,
    before: Demand | None = None,
) -> list[Admitted]:
    """Send the requests through purchases of several sizes, in one pass over the batches.

    before : requests at negative times that fill the buckets, so that a short log does not begin with a free minute
    """
    replays: list[Replay] = []
    for batch, final in _with_last(batches):
        if not replays:
            replays = [Replay(unit, prices, units, batch.scale, span_us) for units in sizes]
            if before is not None and len(before):
                for replay in replays:
                    replay.warm(before)
        for replay in replays:
            replay.feed(batch, final)
    return [replay.result() for replay in replays]


def _with_last(batches: Iterable[Demand]) -> Iterator[tuple[Demand, bool]]:
    """Yield each batch, and whether it is the last one."""
    former: Demand | None = None
    for batch in batches:
        if former is not None:
            yield former, False
        former = batch
    if former is not None:
        yield former, True


def pieces(demand: Demand, rows: int) -> Iterator[Demand]:
    """Cut a demand into batches of at most so many requests."""
    for first in range(0, len(demand), rows):
        yield part(demand, slice(first, first + rows))


def part(demand: Demand, rows: slice | np.ndarray) -> Demand:
    """Return some rows of a demand."""
    columns = {name: getattr(demand, name) for name in _COLUMNS}
    # A unit with one budget has empty columns for the second.
    return Demand(**{name: column[rows] if len(column) else column for name, column in columns.items()},
                  scale=demand.scale)  # fmt: skip


def together(one: Demand, other: Demand) -> Demand:
    """Return the rows of two demands, one after the other."""
    columns = {name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in _COLUMNS}
    return Demand(**columns, scale=one.scale)


def shifted(demand: Demand, by_us: int) -> Demand:
    """Return the requests as they come so much earlier: those of the last hour, before the log repeats itself."""
    return replace(demand, arrival_us=demand.arrival_us - by_us)
