"""Coarse clocks: requests that a log stamped with the same tick, spread inside it by a seed."""

import numpy as np
import polars as pl

BUCKETED_ROWS_PER_STAMP = 2


def is_bucketed(clock_us: pl.Series) -> bool:
    """Tell whether stamps are shared by two rows or more on average: the clock is coarser than the arrivals."""
    return len(clock_us) >= BUCKETED_ROWS_PER_STAMP * max(clock_us.n_unique(), 1)


def tick_us(stamps: np.ndarray) -> int:
    """Return the width of the clock's tick: the gap between distinct stamps that 1 % of the gaps stay below.

    The lowest percentile, not the lowest gap, so that one stray stamp does not decide; 0 for fewer than two stamps.
    stamps : distinct, rising
    """
    gaps = np.diff(stamps)
    return int(np.quantile(gaps, 0.01, method="lower")) if len(gaps) else 0


def spread(frame: pl.DataFrame, seed: int) -> tuple[pl.DataFrame, int]:
    """Move every row by a uniform offset inside its tick, rows of one stamp in their order.

    The tick of a stamp begins at the stamp and is as wide as the clock's tick, at most up to the next stamp.
    frame : rows in trace order with clock_us; changes clock_us and sets flag:ticks_spread where the tick has width
    Returns the frame and the width of the clock's tick in microseconds.
    """
    clock = frame["clock_us"].to_numpy()
    stamps, place = np.unique(clock, return_inverse=True)
    tick = tick_us(stamps)
    width = np.minimum(np.append(np.diff(stamps), tick), tick)[place]
    offset = np.random.default_rng(seed).integers(0, np.maximum(width, 1))
    offset = offset[np.lexsort((offset, place))]
    moved = frame.with_columns(pl.Series("clock_us", clock + offset), pl.Series("flag:ticks_spread", width > 1))
    return moved, tick
