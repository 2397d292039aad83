"""The fit: parameters under which a replay's latencies come nearest to those of the log.

scipy's bounded least squares on logarithms of predicted over observed latency, with a loss that lets single outliers
pull little. A replay jumps a little with every change, since batches fall differently; derivatives are therefore taken
over steps that are far larger than that noise, each parameter's own. What the log cannot tell stays near where it was:
each parameter's distance from the start counts as one more residual, in units of how uncertain it is beforehand.
"""

from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import polars as pl
from scipy.optimize import least_squares

from pipeline.calibrate.observed import METRICS, Point

# For each parameter, the scale as a logarithm: bounds, the size that matters, the step of the derivative, and how
# uncertain it is before the log is seen (roofline estimates, engine overheads and frontends as measured elsewhere).
LOW = np.array([np.log(0.25), 0.0, 0.0])
HIGH = np.array([np.log(4.0), 50.0, 2000.0])
SIZE = np.array([0.1, 1.0, 20.0])
STEP = np.array([0.04, 0.3, 5.0])
UNCERTAIN = np.array([0.5, 3.0, 30.0])
OUTLIER = 0.15  # relative error from which a request counts as an outlier
MISSING = np.log(10.0)  # residual of a request that the replay does not answer
MOST_REPLAYS = 40  # steps of the solver


def fit(replay: Callable[[Point], pl.DataFrame], start: Point, fitted: np.ndarray) -> Point:
    """Return the fitted parameters.

    replay : a replay under parameters, as `observed.replay` returns it
    fitted : bool[rows] that are fitted
    The frontend is fitted only where the log has times to first token: E2E alone cannot tell it from the steps.
    """
    known: dict[tuple[float, ...], np.ndarray] = {}

    begin = np.array([np.log(start.step_time_scale), start.step_overhead_ms, start.frontend_ms])
    begin = np.clip(begin, LOW, HIGH)

    def residuals(x: np.ndarray) -> np.ndarray:
        key = tuple(np.round(x, 9))
        if key not in known:
            told = _residuals(replay(_point(x)).filter(pl.Series(fitted)))
            known[key] = np.append(told, OUTLIER * (x - begin) / UNCERTAIN)
        return known[key]

    first = replay(start).filter(pl.Series(fitted))
    free = np.array([True, True, first["observed_ttft_ms"].null_count() < len(first)])

    def whole(part: np.ndarray) -> np.ndarray:
        x = begin.copy()
        x[free] = part
        return x

    def jacobian(part: np.ndarray) -> np.ndarray:
        x, columns = whole(part), []
        for i in np.flatnonzero(free):
            up, down = x.copy(), x.copy()
            up[i], down[i] = min(x[i] + STEP[i], HIGH[i]), max(x[i] - STEP[i], LOW[i])
            columns.append((residuals(up) - residuals(down)) / (up[i] - down[i]))
        return np.stack(columns, axis=1)

    inside = np.clip(begin, LOW + 1e-6 * SIZE, HIGH - 1e-6 * SIZE)  # the solver starts strictly within bounds
    found = least_squares(
        lambda part: residuals(whole(part)),
        inside[free],
        jac=jacobian,
        bounds=(LOW[free], HIGH[free]),
        x_scale=SIZE[free],
        loss="soft_l1",
        f_scale=OUTLIER,
        xtol=1e-4,
        ftol=1e-6,
        max_nfev=MOST_REPLAYS,
    )
    return _point(whole(found.x))


def _point(x: np.ndarray) -> Point:
    return Point(float(np.exp(x[0])), float(x[1]), float(x[2]))


def rounded(point: Point) -> Point:
    """Return the parameters with the digits that mean something, as they are written."""
    return Point(*(float(f"{value:.4g}") for value in astuple(point)))


def _residuals(rows: pl.DataFrame) -> np.ndarray:
    """Return log(predicted / observed) of every latency that the log states, TTFT first."""
    parts = []
    for metric in METRICS:
        stated = rows.filter(pl.col(f"observed_{metric}_ms").is_not_null())
        ratio = (pl.col(f"predicted_{metric}_ms") / pl.col(f"observed_{metric}_ms")).log()
        parts.append(stated.select(ratio.fill_null(MISSING).clip(-MISSING, MISSING)).to_series().to_numpy())
    return np.concatenate(parts)
