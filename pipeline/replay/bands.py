"""How sure a run is: the same replay with step times a little shorter and longer, and the load that saturates it.

Near saturation a small error of the step time decides everything, so headlines get a band from replays with step times
scaled by the configuration's own error, at least LEAST_ERROR_PCT. The rate at which the queue no longer empties is what
the engine answers when every request of the trace waits at its door. Nothing of these replays is kept but their
figures, in bands.json beside run.json.
"""

import json
import os
from pathlib import Path
from typing import Any

import polars as pl

from pipeline import hardware
from pipeline.config import Config
from pipeline.errors import RunError
from pipeline.replay import driver, manifest
from pipeline.replay.manifest import TraceFile

FILE = "bands.json"
VERSION = 1
LEAST_ERROR_PCT = 10.0
MOST_REQUESTS = 200_000  # of a trace that gets bands unasked: three more replays of it take seconds
DENSE = 1e6  # rate_scale at which a day's arrivals fall into a tenth of a second
FEWEST_ANSWERED = 100  # requests answered while others wait, from which a rate can be read


def ensure(run: Path, trace: TraceFile, config: Config, where: str | None = None) -> Path:
    """Write bands.json into a finished run that has none, whole or not at all; return its path."""
    path = run / FILE
    if not path.is_file():
        part = path.with_name(f".{FILE}.{os.getpid()}")
        try:
            part.write_text(manifest.text(measure(trace, config, where)), encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise RunError(f"{path}: cannot be written: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)
    return path


def wanted(run: Path, asked: bool | None) -> bool:
    """Return whether a run gets bands: as asked, else if it is small enough."""
    if asked is not None:
        return asked
    rows = json.loads((run / "run.json").read_text(encoding="utf-8"))["trace"]["replayed"]
    return 0 < rows <= MOST_REQUESTS


def measure(trace: TraceFile, config: Config, where: str | None = None) -> dict[str, Any]:
    """Return the content of bands.json: figures at both ends of the error, and the load that saturates."""
    deployment = hardware.resolve(config)
    error_pct = min(max(LEAST_ERROR_PCT, deployment.step_time.error_pct), 90.0)
    ends = {scale: _rows(trace, config, where, scale) for scale in (1 - error_pct / 100, 1 + error_pct / 100)}
    return {
        "version": VERSION,
        "error_pct": error_pct,
        "basis": deployment.step_time.basis,
        "replays": [{"scale": scale, **figures(rows, config, deployment.frontend_ms)} for scale, rows in ends.items()],
        "saturation": _saturation(next(iter(ends.values())), trace, config, where),
    }


def _rows(trace: TraceFile, config: Config, where: str | None, scale: float) -> pl.DataFrame:
    """Return what a replay made of the requests that reached the engine."""
    rows = pl.DataFrame(driver.requests(trace, config, where=where, scale=scale))
    return rows.with_columns(pl.col("class", "outcome").cast(pl.String)).filter(pl.col("outcome") != "not_replayed")


def figures(rows: pl.DataFrame, config: Config, frontend_ms: float) -> dict[str, float | None]:
    """Return p95 of TTFT, TPOT and E2E and the share within the SLO, as queries/facts/request_latency.sql defines them.

    rows : requests.parquet of a replay, without those that were not replayed
    """
    completed = pl.col("outcome").is_in(("finished", "max_model_len", "cancelled"))
    after = pl.col("output_tokens") - 1
    asked = rows.select(
        "class",
        completed.alias("completed"),
        ttft=(pl.col("first_token_ns") - pl.col("arrival_ns")) / 1e6 + frontend_ms,
        tpot=pl.when(completed & (after > 0)).then((pl.col("finish_ns") - pl.col("first_token_ns")) / 1e6 / after),
        e2e=pl.when(completed).then((pl.col("finish_ns") - pl.col("arrival_ns")) / 1e6 + frontend_ms),
    )
    kept = pl.col("completed")
    for metric in ("ttft", "tpot", "e2e"):
        limit = _limit(config, metric, asked["class"].unique().to_list())
        # An answer without a first token breaks a limit of TTFT; one of a single token has no TPOT to break.
        unknown = limit.is_null() if metric == "ttft" else pl.lit(True)
        kept = kept & (limit.is_null() | (pl.col(metric) <= limit)).fill_null(unknown)
    found = {f"{metric}_p95_ms": asked[metric].quantile(0.95, "linear") for metric in ("ttft", "tpot", "e2e")}
    return found | {"slo_share": asked.select(kept.cast(pl.Float64).mean()).item()}


def _limit(config: Config, metric: str, classes: list[str | None]) -> pl.Expr:
    """Return the limit of a request's class, milliseconds; null is none."""
    own = {name: getattr(config.slo.targets(name), f"{metric}_ms") for name in classes if name in config.slo.classes}
    general = pl.lit(getattr(config.slo.targets(None), f"{metric}_ms"), pl.Float64)
    if not own:
        return general
    stated = pl.col("class").replace_strict(own, default=None, return_dtype=pl.Float64)
    return pl.when(pl.col("class").is_in(list(own))).then(stated).otherwise(general)


def capacity_rps(trace: TraceFile, config: Config, where: str | None = None) -> float | None:
    """Return the rate at which the queue no longer empties, requests per second; None if the trace is too short.

    All requests arrive at once and no client gives up; what is answered by the time the last one starts, over that
    time, is the rate.
    """
    dense = {"kind": "open", "concurrency": None, "sessions": "logged", "rate_scale": DENSE}
    load = config.load.model_copy(update=dense | {"timeout_s": None, "queue_limit": None})
    rows = _rows(trace, config.model_copy(update={"load": load}), where, 1.0).drop_nulls("first_scheduled_ns")
    last_start_ns = rows["first_scheduled_ns"].max()
    if not isinstance(last_start_ns, int) or last_start_ns == 0:
        return None
    answered = int((rows["finish_ns"] <= last_start_ns).sum())
    return answered / (last_start_ns / 1e9) if answered >= FEWEST_ANSWERED else None


def _saturation(rows: pl.DataFrame, trace: TraceFile, config: Config, where: str | None) -> dict[str, float | None]:
    """Return the offered rate between first and last arrival beside the one that saturates, and their ratio.

    rows : any replay of the trace. Where requests wait for each other's ends, nothing is offered, and all is None.
    """
    if config.load.kind == "closed" or config.load.sessions == "follow":
        return dict.fromkeys(("offered_rps", "capacity_rps", "share"))
    span_ns = int(rows["arrival_ns"].max() or 0) - int(rows["arrival_ns"].min() or 0)  # type: ignore[arg-type]
    offered_rps = (len(rows) - 1) / (span_ns / 1e9) if span_ns > 0 else None
    most_rps = capacity_rps(trace, config, where)
    share = offered_rps / most_rps if offered_rps is not None and most_rps else None
    return {"offered_rps": offered_rps, "capacity_rps": most_rps, "share": share}
