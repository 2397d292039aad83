"""How good a fit is: errors before and after, and what is left by load and by length."""

from typing import Any

import numpy as np
import polars as pl

BINS = 6
# Of a latency: the column that says how long the request is.
LENGTH = {"ttft": "input_tokens", "e2e": "output_tokens", "tpot": "output_tokens"}
STATISTICS: dict[str, float | None] = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def with_tpot(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with TPOT of both sides: (E2E - TTFT) / (output tokens - 1), null for one token."""
    after = pl.when(pl.col("output_tokens") > 1).then(pl.col("output_tokens") - 1)
    return rows.with_columns(
        ((pl.col(f"{side}_e2e_ms") - pl.col(f"{side}_ttft_ms")) / after).alias(f"{side}_tpot_ms")
        for side in ("observed", "predicted")
    )


def errors(rows: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Return by metric the error of mean and percentiles, predicted / observed - 1, and `request`, its median size."""
    found = {}
    for metric in LENGTH:
        both = _both(rows, metric)
        if len(both) == 0:
            continue
        entry = {"requests": float(len(both))}
        for name, q in STATISTICS.items():
            ours, theirs = (_statistic(both[side], q) for side in ("predicted", "observed"))
            entry[name] = ours / theirs - 1
        entry["request"] = float(np.median(np.abs(both["predicted"] / both["observed"] - 1)))
        found[metric] = entry
    return found


def residuals(before: pl.DataFrame, after: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the median error by load and by length, in bins of as many requests each.

    metric, by (in_flight, input_tokens or output_tokens), x (median of that), when (before or after), error_share
    """
    out = []
    for metric, length in LENGTH.items():
        for by in ("in_flight", length):
            for when, rows in (("before", before), ("after", after)):
                # Both are sorted by the load of the fitted replay, so that a bin holds the same requests.
                keyed = rows.with_columns(after[by].alias("x"))
                both = _both(keyed, metric).sort("x", maintain_order=True)
                for part in np.array_split(np.arange(len(both)), min(BINS, len(both))) if len(both) else ():
                    some = both[part]
                    error = float(np.median(some["predicted"] / some["observed"] - 1))
                    out.append(
                        {
                            "metric": metric,
                            "by": by,
                            "x": float(np.median(some["x"])),
                            "when": when,
                            "error_share": error,
                        }
                    )
    return out


def _both(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    columns = [pl.col(f"{side}_{metric}_ms").alias(side) for side in ("observed", "predicted")]
    more = [pl.col("x")] if "x" in rows.columns else []
    return rows.select(*columns, *more).drop_nulls()


def _statistic(values: pl.Series, q: float | None) -> float:
    value = values.mean() if q is None else values.quantile(q, "linear")
    assert isinstance(value, float)
    return value
