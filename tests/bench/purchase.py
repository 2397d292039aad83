"""Admission to provisioned capacity: batches of made-up requests through purchases of one size."""

import time
from collections.abc import Iterator

import numpy as np

from pipeline.capacity import rates
from pipeline.capacity.accounting import Demand
from pipeline.capacity.admission import Replay
from pipeline.config import Prices

BATCH = 1 << 20
UNITS = 1000
_OFFERS = {"azure": "gpt-4.1", "google": "gemini-3.5-flash"}


def admit(provider: str, requests: int) -> float:
    """Send requests at about 80 % of a purchase through its rule, and return CPU seconds of the replay alone."""
    prices = Prices(provider=provider, model=_OFFERS[provider])  # type: ignore[arg-type]
    unit = rates.offer(prices).unit
    assert unit is not None
    per_us = 0.8 * UNITS * float(unit.tokens_per_minute) / 60e6
    replay, spent = None, 0.0
    for batch in _batches(requests, per_us):
        if replay is None:
            replay = Replay(unit, prices, UNITS, batch.scale, round(requests * 1100 / per_us))
        start = time.thread_time()
        replay.feed(batch)
        spent += time.thread_time() - start
    return spent


def _batches(requests: int, tokens_per_us: float) -> Iterator[Demand]:
    """Yield batches whose requests weigh 1,100 tokens on average, with Poisson arrivals, from a fixed seed."""
    random, last_us, none = np.random.default_rng(0), 0.0, np.zeros(0, np.int64)
    for first in range(0, requests, BATCH):
        n = min(BATCH, requests - first)
        arrival = last_us + np.cumsum(random.exponential(1100 / tokens_per_us, n))
        last_us = float(arrival[-1])
        actual = random.integers(200, 2001, n)
        usd = actual / 1e6
        yield Demand(
            arrival_us=arrival.astype(np.int64), duration_us=random.integers(1_000_000, 20_000_000, n),
            estimate=actual + random.integers(0, 1000, n), actual=actual, second_estimate=none, second_actual=none,
            raw_tokens=actual, payg_usd=usd, spill_usd=usd, served=np.ones(n, np.bool_), scale=1,
        )  # fmt: skip
