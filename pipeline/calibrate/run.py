"""Calibrate: replay, fit, judge, and write what was found."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipeline import config as config_module
from pipeline.calibrate import chart, fit, judge, observed
from pipeline.calibrate.observed import Point
from pipeline.config import Config
from pipeline.replay.manifest import TraceFile

VERSION = "calibration/1"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was fitted, on how much of the log, and what it is worth: errors by part, `before` and `after`."""

    start: Point
    found: Point
    fitted_requests: int
    judged_requests: int
    replays: int
    errors: dict[str, dict[str, dict[str, dict[str, float]]]]  # part (fitted, rest), before or after, metric, statistic
    residuals: list[dict[str, Any]]  # of the rest


def calibrate(
    trace: TraceFile,
    config: Config,
    *,
    where: str | None = None,
    fit_share: float = 0.5,
    replayed: Callable[[int], None] = lambda _: None,
) -> Calibration:
    """Fit the step time to the first `fit_share` of the requests with latencies in the log; judge on the others.

    Every replay is of the whole trace, so that the last requests that are fitted meet the load that they met.
    replayed : told the number of replays so far
    """
    count = 0

    def replay(point: Point) -> pl.DataFrame:
        nonlocal count
        count += 1
        replayed(count)
        return observed.replay(trace, config, where, point)

    start = observed.start(config)
    before = replay(start)
    fitted, rest = observed.split(before, fit_share, trace.name)
    found = fit.rounded(fit.fit(replay, start, fitted))
    sides = {"before": judge.with_tpot(before), "after": judge.with_tpot(replay(found))}
    parts = {"fitted": pl.Series(fitted), "rest": pl.Series(rest)}
    return Calibration(
        start,
        found,
        int(fitted.sum()),
        int(rest.sum()),
        count,
        {part: {when: judge.errors(rows.filter(mask)) for when, rows in sides.items()} for part, mask in parts.items()},
        judge.residuals(*(rows.filter(parts["rest"]) for rows in sides.values())),
    )


def write(calibration: Calibration, config: Config, name: str, out: Path) -> list[Path]:
    """Write the settings (`out`), all figures (.json) and the chart (.png) beside it, and return these files.

    name : of the log, for the comment
    """
    comment = (
        f"# Settings fitted by `servecast calibrate` to the latencies of {calibration.fitted_requests:,} requests of\n"
        f"# {json.dumps(name)}, judged on the {calibration.judged_requests:,} after them. Use it with --config.\n"
    )
    files = {
        out: (comment + _toml(_stated(calibration.found.applied(config)))).encode(),
        out.with_suffix(".json"): (json.dumps({"version": VERSION, **asdict(calibration)}, indent=1) + "\n").encode(),
        out.with_suffix(".png"): chart.png(calibration.residuals),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        path.write_bytes(content)
    return list(files)


def _stated(config: Config) -> dict[str, Any]:
    """Return the settings that differ from the defaults, by section; the fitted ones always."""
    fitted = set(Point.__dataclass_fields__)
    plain = config_module.to_dict(Config())
    stated = {}
    for section, values in config_module.to_dict(config).items():
        default = plain.get(section, {})
        kept = {
            key: value
            for key, value in values.items()
            if (value != default.get(key, ...) and value is not None) or (section == "hardware" and key in fitted)
        }
        if kept:
            stated[section] = kept
    return stated


def _toml(sections: Mapping[str, Any], prefix: str = "") -> str:
    """Return nested tables as TOML; values are texts, numbers, truth values and lists of these."""
    lines, tables = [], []
    for key, value in sections.items():
        name = key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)
        if isinstance(value, Mapping):
            tables.append(f"\n[{prefix}{name}]\n{_toml(value, f'{prefix}{name}.')}")
        else:
            lines.append(f"{name} = {json.dumps('none' if value is None else value, ensure_ascii=True)}\n")
    return "".join(lines) + "".join(tables)
