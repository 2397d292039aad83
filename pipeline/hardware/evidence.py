"""What was measured nearest to a configuration: rows of `data/validation.csv`, chosen by model and accelerator.

A configuration with measured step times is compared with judged rows, an estimate with rows that were estimates too.
"""

import statistics
from typing import Any

from pipeline.hardware import catalogue
from pipeline.hardware.catalogue import Gpu, Model

METRICS = ("TPOT p95", "TPOT mean")  # of replays request by request, and of load tests that state no more


def nearest(gpu: Gpu, model: Model, estimate: bool) -> dict[str, Any]:
    """Return how near the nearest rows are (`same`), their worst error in percent, and a sentence that says so.

    same : "model and accelerator", "model", "accelerator", or None where nothing comparable was measured
    """
    standing = "estimate" if estimate else "judged"
    rows = [
        row
        for row in catalogue.rows("validation.csv")
        if row["standing"] == standing and row["metric"] in METRICS and row["error_pct"]
    ]
    kinds = (("model and accelerator", ("model", "gpu")), ("model", ("model",)), ("accelerator", ("gpu",)))
    own = {"model": model.tables_of, "gpu": gpu.id}
    for same, keys in kinds:
        found = [row for row in rows if all(row[key] == own[key] for key in keys)]
        if found:
            metric = min((row["metric"] for row in found), key=METRICS.index)
            found = [row for row in found if row["metric"] == metric]
            worst_pct = max(abs(float(row["error_pct"])) for row in found)
            return {
                "same": same,
                "metric": metric,
                "error_pct": worst_pct,
                "text": _text(same, metric, found, worst_pct),
            }
    return {
        "same": None,
        "metric": None,
        "error_pct": None,
        "text": "Nothing comparable was measured: `servecast validate` has no row of this model or accelerator"
        + (" among the estimates." if estimate else "."),
    }


def _text(same: str, metric: str, rows: list[dict[str, str]], worst_pct: float) -> str:
    statistic = " ".join(reversed(metric.split()))
    within = f"{statistic} was within {worst_pct:.1f} % of real vLLM"
    if len(rows) > 2:
        median_pct = statistics.median(abs(float(row["error_pct"])) for row in rows)
        within += f", {median_pct:.1f} % at the median of {len(rows)} measurements"
    if same == "model and accelerator":
        text = f"On this accelerator this model's {within}"
    elif same == "model":
        text = f"On comparable hardware ({_listed(rows, 'gpu')}) this model's {within}"
    else:
        text = f"On this accelerator other models' ({_listed(rows, 'model')}) {within}"
    return f"{text} (`servecast validate`)."


def _listed(rows: list[dict[str, str]], key: str) -> str:
    return ", ".join(dict.fromkeys(row[key] for row in rows))
