"""What the log saw beside what a replay makes of it, request by request."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipeline import hardware
from pipeline.config import Config
from pipeline.errors import TraceError
from pipeline.replay import driver
from pipeline.replay.manifest import TraceFile

FEWEST_REQUESTS = 20  # with a latency in the log, in each part: fewer say little
METRICS = ("ttft", "e2e")
COMPLETED = ("finished", "max_model_len", "cancelled")


@dataclass(frozen=True, slots=True)
class Point:
    """The parameters that are fitted: few, physical, and settings of [hardware]."""

    step_time_scale: float  # factor on the time of the kernels
    step_overhead_ms: float  # engine time per step outside the kernels
    frontend_ms: float  # time outside the engine that callers see

    def applied(self, config: Config) -> Config:
        """Return the config with these settings."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return config.model_copy(update={"hardware": config.hardware.model_copy(update=values)})


def start(config: Config) -> Point:
    """Return the parameters of a config as they stand, defaults resolved."""
    resolved = hardware.resolve(config).config.hardware
    assert resolved.step_overhead_ms is not None
    assert resolved.frontend_ms is not None
    return Point(resolved.step_time_scale, resolved.step_overhead_ms, resolved.frontend_ms)


def replay(trace: TraceFile, config: Config, where: str | None, point: Point) -> pl.DataFrame:
    """Return one row per replayed request whose latency the log states, ordered by place in the trace.

    request, arrival_ns, input_tokens, output_tokens
    in_flight           : requests in the system when it arrived, in the replay
    observed_<metric>_ms, predicted_<metric>_ms : null where the log has none, or the replay has none
    Raises ConfigError and TraceError as a replay does.
    """
    table = pl.DataFrame(driver.requests(trace, point.applied(config), where=where))
    rows = table.filter(pl.col("outcome").cast(pl.String) != "not_replayed").sort("arrival_ns", "request")
    whole = pl.col("outcome").cast(pl.String).is_in(COMPLETED)
    ends = np.sort(rows["finish_ns"].drop_nulls().to_numpy())
    arrival_ns = rows["arrival_ns"].to_numpy()
    before = np.searchsorted(arrival_ns, arrival_ns, side="left") - np.searchsorted(ends, arrival_ns, side="right")
    latency = {"ttft": pl.col("first_token_ns"), "e2e": pl.when(whole).then(pl.col("finish_ns"))}
    return (
        rows.with_columns(pl.Series("in_flight", np.maximum(before, 0)))
        .filter((pl.col("obs_ttft_us") > 0) | (pl.col("obs_e2e_us") > 0))
        .select(
            "request",
            "arrival_ns",
            "input_tokens",
            "output_tokens",
            "in_flight",
            *(_positive(pl.col(f"obs_{m}_us") / 1e3).alias(f"observed_{m}_ms") for m in METRICS),
            *(
                ((latency[m] - pl.col("arrival_ns")) / 1e6 + point.frontend_ms).alias(f"predicted_{m}_ms")
                for m in METRICS
            ),
        )
        .sort("request")
    )


def split(rows: pl.DataFrame, fit_share: float, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return bool[rows]: those of the first part of the log, which is fitted, and those of the rest."""
    fitted = np.arange(len(rows)) < round(fit_share * len(rows))
    if min(fitted.sum(), (~fitted).sum()) < FEWEST_REQUESTS:
        raise TraceError(
            f"{name}: {len(rows)} replayed requests have a latency in the log (obs_ttft_us, obs_e2e_us); calibration "
            f"needs at least {FEWEST_REQUESTS} in the part that is fitted and in the rest"
        )
    return fitted, ~fitted


def _positive(value: pl.Expr) -> pl.Expr:
    return pl.when(value > 0).then(value)
