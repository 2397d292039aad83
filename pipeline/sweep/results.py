"""Results: what the points came to, which one to choose, and the two files that keep it.

`sweeps/<id>/points.parquet` has a row per point, `sweep.json` the same with what is common to all. The id is a digest
of points and trace, so the same sweep asked again writes the same files.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import config as config_module
from pipeline.errors import RunError
from pipeline.query import catalog, runs
from pipeline.replay import manifest
from pipeline.replay.manifest import TraceFile
from pipeline.report import words
from pipeline.sweep.grid import Grid, Settings, describe, value_text

VERSION = "sweep/1"
DONE, UNUSABLE, FAILED = "done", "unusable", "failed"
_TYPES = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "INTEGER": pa.int32(), "DOUBLE": pa.float64()}


@dataclass(frozen=True, slots=True)
class Result:
    """One point: settings, the run it is, its figures (a row of `sweep_points`), or why there are none."""

    number: int
    settings: Settings
    status: str  # done, unusable (its settings do not work) or failed
    run_id: str | None
    figures: Mapping[str, Any] | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The point to choose, None if there is none, and the reason in one sentence."""

    number: int | None
    reason: str


def digest(grid: Grid, trace: TraceFile, where: str | None) -> str:
    """Return 64 hex digits that depend on the points, the trace, the engine's version and how figures are computed."""
    points = [
        [point.settings, point.reason if point.config is None else config_module.digest(point.config)]
        for point in grid.points
    ]
    parts = {
        "version": VERSION,
        "trace": trace.digest,
        "where": where,
        "engine": manifest.PROGRAM,
        "queries": _queries("sweep_points"),
        "target_slo_share": grid.target_slo_share,
        "page": grid.page,
        "points": points,
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _queries(name: str) -> dict[str, str]:
    """Return an answer and all that it needs, by name."""
    query = catalog.load()[name]
    return {name: query.body} | {key: body for needed in query.needs for key, body in _queries(needed).items()}


def known_figures(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the figures by run that this same sweep found before; none where it did not come to its end."""
    try:
        facts = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {p["run_id"]: p["figures"] for p in facts["points"] if p["figures"] is not None}


def choose(results: Sequence[Result], target_slo_share: float) -> Choice:
    """Return the point with the highest goodput per accelerator among those that keep the SLO often enough.

    Where several are equal, the one with fewer accelerators, then the first.
    """
    target = words.share(target_slo_share, 2)
    judged = [(r, r.figures) for r in results if r.figures is not None and r.figures["slo_share"] is not None]
    good = [(r, f) for r, f in judged if f["slo_share"] >= target_slo_share and f["goodput_per_gpu_rps"] is not None]
    if good:
        best, row = max(good, key=lambda item: (item[1]["goodput_per_gpu_rps"], -item[1]["gpus"]))
        rate = f"{words.number(row['goodput_per_gpu_rps'])} requests/s"
        if row["gpus"] > 1:
            rate += f" on each of {row['gpus']}"
        name = f"Choose point {best.number} ({describe(best.settings)})"
        if len(good) == 1:
            only = f"it is the only one that keeps the SLO for {target} of the requests"
            return Choice(best.number, f"{name}: {only}; goodput per accelerator {rate}.")
        of = f"of the {len(good)} points that keep the SLO for {target} of the requests"
        return Choice(best.number, f"{name}: {of} it has the highest goodput per accelerator, {rate}.")
    if not judged:
        return Choice(None, "No point can be chosen: none replayed a request.")
    near, row = max(judged, key=lambda item: item[1]["slo_share"])
    return Choice(
        None,
        f"No point keeps the SLO for {target} of the requests; point {near.number} ({describe(near.settings)}) comes "
        f"nearest with {words.share(row['slo_share'], 2)}.",
    )


def table(results: Sequence[Result], varied: Sequence[str], choice: Choice) -> pa.Table:
    """Return points.parquet: number, settings, status, run, figures and choice of each point, in order."""
    documented = [column for column in catalog.load()["sweep_points"].columns if column.name != "run_id"]
    fields = [_field("point", pa.int32(), "number in the order of the grid, from 1")]
    columns: list[pa.Array] = [pa.array([r.number for r in results], pa.int32())]
    for key in varied:
        values = [r.settings.get(key) for r in results]
        kind = _kind(values)
        fields.append(_field(key, kind, "setting, as the grid has it; null is none"))
        texts = kind == pa.string()
        columns.append(pa.array([value_text(v) if texts and v is not None else v for v in values], kind))
    about_run: list[tuple[str, str, list[str | None]]] = [
        ("status", "done, unusable (its settings do not work) or failed", [r.status for r in results]),
        ("reason", "why there is no run; null where there is one", [r.reason for r in results]),
        ("run_id", "run of this point; null where its settings do not work", [r.run_id for r in results]),
    ]
    for name, doc, values in about_run:
        fields.append(_field(name, pa.string(), doc))
        columns.append(pa.array(values, pa.string()))
    for column in documented:
        fields.append(_field(column.name, _TYPES[column.type], column.doc))
        found = [None if r.figures is None else r.figures[column.name] for r in results]
        columns.append(pa.array(found, _TYPES[column.type]))
    fields.append(_field("chosen", pa.bool_(), "the point to choose"))
    columns.append(pa.array([r.number == choice.number for r in results]))
    about = {"servecast": VERSION, "table": "points", "grain": "one row per point of a sweep"}
    return pa.table(columns, schema=pa.schema(fields, about))


def content(
    sweep: str, grid: Grid, trace: TraceFile, where: str | None, results: Sequence[Result], choice: Choice, root: Path
) -> dict[str, Any]:
    """Return sweep.json, with settings, trace, warnings and what is left out taken from the runs."""
    made = [(r, runs.read(root / r.run_id).facts) for r in results if r.status == DONE and r.run_id]
    return {
        "version": VERSION,
        "page": grid.page,
        "sweep_id": sweep[:16],
        "digest": sweep,
        "engine_version": manifest.PROGRAM,
        "trace": made[0][1]["trace"] if made else {"path": trace.name, "digest": trace.digest, "where": where},
        "target_slo_share": grid.target_slo_share,
        "varied": list(grid.varied),
        "config": _common([facts["config"] for _, facts in made]),
        "unmodelled": list(dict.fromkeys(text for _, facts in made for text in facts["unmodelled"])),
        "warnings": _warnings([(r.number, facts["warnings"]) for r, facts in made]),
        "chosen": {"point": choice.number, "reason": choice.reason},
        "points": [
            {
                "point": r.number,
                "settings": r.settings,
                "status": r.status,
                "reason": r.reason,
                "run_id": r.run_id,
                "figures": None if r.figures is None else {k: v for k, v in r.figures.items() if k != "run_id"},
            }
            for r in results
        ],
    }


def write(folder: Path, points: pa.Table, facts: dict[str, Any]) -> None:
    """Write both files, each whole or not at all, in place of older ones; RunError if that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("points.parquet", "sweep.json"):
            part = folder / f".{name}.{os.getpid()}"
            try:
                if name == "sweep.json":
                    part.write_text(manifest.text(facts), encoding="utf-8")
                else:
                    pq.write_table(points, part)
                part.replace(folder / name)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _field(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    return pa.field(name, kind, metadata={"doc": doc})


def _kind(values: Sequence[Any]) -> pa.DataType:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def _common(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that are the same in all configs, defaults spelled out."""
    if not configs:
        return {}
    first, *others = configs
    same: dict[str, Any] = {}
    for key, value in first.items():
        if isinstance(value, Mapping):
            inner = [other[key] if isinstance(other.get(key), Mapping) else {} for other in others]
            same[key] = _common([value, *inner])
        elif all(key in other and other[key] == value for other in others):
            same[key] = value
    return same


def _warnings(given: Sequence[tuple[int, Sequence[str]]]) -> list[str]:
    """Return each warning once, with the points it is about where these are not all."""
    points: dict[str, list[int]] = {}
    for number, texts in given:
        for text in texts:
            points.setdefault(text, []).append(number)
    return [
        text if len(found) == len(given) else f"{text} (point{'s' if len(found) > 1 else ''} {_ranges(found)})"
        for text, found in points.items()
    ]


def _ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers in short: `1-3, 7`."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)
