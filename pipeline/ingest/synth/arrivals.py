"""When sessions start: daily and weekly shape, slow drift, short bursts.

The rate of a class is its share of a week's requests, times its shape over the local week, times a
random modulation: a drift all classes have in common, a drift of its own (both Ornstein-Uhlenbeck
in the logarithm; its own has mean 1, so that its share holds) and bursts that decay. The rate of
the whole window is then scaled to the requests asked for. Given the rate, sessions start as a
Poisson process. So counts are over-dispersed and the index of dispersion grows with the window, as
in the Azure and Mooncake conversation traces.

Rates are rounded to six digits, so that the last bit of `exp`, which differs between machines, does
not reach the trace.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from pipeline.ingest.synth import sessions
from pipeline.ingest.synth.traffic import CLASSES, Profile, Traffic

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CELL_S = 5
WARM_UP_S = 7_200  # sessions that began so long before the window still send turns into it
SLICE_CELLS = 120
SLICE_ROWS = 250_000

DRIFT_SIGMA, DRIFT_S = 0.30, 500.0
OWN_DRIFT_S = 60.0
BURST_EVERY_S, BURST_DECAY_S, BURST_HEIGHT = 900.0, 30.0, 1.3

# Local hour 0..23, linear in between. The bank works in several time zones, hence the wide day.
OFFICE_HOURS = (
    *(0.42, 0.38, 0.36, 0.36, 0.40, 0.48, 0.62, 0.80, 0.95, 1.05, 1.08, 1.04),
    *(0.94, 0.98, 1.05, 1.06, 1.02, 0.94, 0.84, 0.74, 0.66, 0.60, 0.54, 0.48),
)
NIGHT_HOURS = (
    *(3.0, 3.2, 3.2, 2.8, 2.0, 1.0, 0.5, 0.35, 0.3, 0.3, 0.35, 0.3),
    *(0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4, 0.6, 1.0, 1.8, 2.6, 2.9),
)
OFFICE_DAYS = (1.0, 1.02, 1.03, 1.0, 0.95, 0.45, 0.42)  # Monday first
NIGHT_DAYS = (1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.7)


@dataclass(frozen=True, slots=True)
class Plan:
    """Expected sessions per cell and their number per slice, for every class of the mix."""

    classes: tuple[int, ...]  # positions in CLASSES
    expected: Floats  # [class, cell], sessions; cell 0 begins WARM_UP_S before the window
    sessions: Ints  # [slice, class], how many start
    first_session: Ints  # [slice, class], number of the first of them, from 1
    slice_cells: int

    @property
    def slices(self) -> int:
        """Number of slices, warm-up included."""
        return len(self.sessions)

    def slice_end_us(self, index: int) -> int:
        """Return the end of a slice, microseconds from the start of the window."""
        return ((index + 1) * self.slice_cells * CELL_S - WARM_UP_S) * 1_000_000

    def starts_us(self, index: int, place: int, rng: np.random.Generator) -> Ints:
        """Return the sorted session starts of a slice and class, microseconds from the start of the window."""
        first = index * self.slice_cells
        expected = self.expected[place, first : first + self.slice_cells]
        edges = np.concatenate(([0.0], np.cumsum(expected)))
        u = np.sort(rng.random(int(self.sessions[index, place]))) * edges[-1]
        within_us = np.interp(u, edges, np.arange(len(edges)) * (CELL_S * 1e6))
        return np.floor(within_us).astype(np.int64) + (first * CELL_S - WARM_UP_S) * 1_000_000


def week_shape(traffic: Traffic, local_s: Floats) -> Floats:
    """Return the relative rate at local seconds since a Monday, mean 1 over the week."""
    hours = NIGHT_HOURS if traffic.night else OFFICE_HOURS
    days = NIGHT_DAYS if traffic.night else OFFICE_DAYS

    def rate(seconds: Floats) -> Floats:
        hour = np.interp((seconds / 3600.0) % 24.0, np.arange(25.0), (*hours, hours[0]))
        return hour * np.array(days)[(seconds // 86_400).astype(np.int64) % 7]

    return rate(local_s) / rate(np.arange(150.0, 604_800.0, 300.0)).mean()


def make(profile: Profile, *, seed: int, monday_s: float, duration_s: float, requests: float) -> Plan:
    """Plan a window that begins `monday_s` local seconds after a Monday and expects `requests` requests."""
    slice_cells = max(1, min(SLICE_CELLS, int(SLICE_ROWS * duration_s / requests / CELL_S)))
    slices = math.ceil((WARM_UP_S + duration_s) / (CELL_S * slice_cells))
    cells = slices * slice_cells
    begins_s: Floats = np.arange(cells, dtype=np.float64) * CELL_S - WARM_UP_S
    inside = np.where(begins_s < 0, 0.0, np.clip((duration_s - begins_s) / CELL_S, 0.0, 1.0))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    drift = _drift(rng, cells, DRIFT_SIGMA, DRIFT_S)

    classes = tuple(i for i, traffic in enumerate(CLASSES) if traffic.name in profile.shares)
    rate = np.empty((len(classes), cells))
    for place, index in enumerate(classes):
        traffic = CLASSES[index]
        own = _drift(rng, cells, traffic.rate_sigma, OWN_DRIFT_S)
        modulation: Floats = np.exp(drift + own - traffic.rate_sigma**2 / 2) + _bursts(rng, cells)
        rate[place] = profile.shares[traffic.name] * week_shape(traffic, begins_s + monday_s) * modulation
    rate *= requests / (rate @ inside).sum()
    rows = np.array([sessions.rows_per_session(CLASSES[index]) for index in classes])
    expected = np.round(rate / rows[:, None], 6)
    per_slice = expected.reshape(len(classes), slices, slice_cells).sum(axis=2).T
    starting = rng.poisson(per_slice)
    numbers = np.cumsum(starting.ravel()).reshape(starting.shape)
    return Plan(classes, expected, starting, numbers - starting + 1, slice_cells)


def _drift(rng: np.random.Generator, cells: int, sigma: float, correlation_s: float) -> Floats:
    """Return a stationary Ornstein-Uhlenbeck path at every cell."""
    keep = math.exp(-CELL_S / correlation_s)
    noise = rng.standard_normal(cells) * sigma
    noise[1:] *= math.sqrt(1.0 - keep * keep)
    return np.array(list(accumulate(noise.tolist(), lambda level, step: keep * level + step)))


def _bursts(rng: np.random.Generator, cells: int) -> Floats:
    """Return what bursts add to the rate at every cell, in units of the plain rate."""
    begins = rng.random(cells) < CELL_S / BURST_EVERY_S
    heights = np.where(begins, BURST_HEIGHT * np.exp(0.6 * rng.standard_normal(cells)), 0.0)
    keep = math.exp(-CELL_S / BURST_DECAY_S)
    return np.array(list(accumulate(heights.tolist(), lambda level, height: keep * level + height)))
