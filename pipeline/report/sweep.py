"""The page of a sweep: `sweep.json` as the report of one run is, its rows the points."""

import json
from pathlib import Path
from typing import Any

from pipeline.errors import RunError
from pipeline.report import blocks, contents, words
from pipeline.report.contents import Chapter, Contents, Tile
from pipeline.report.run import Row, Run
from pipeline.resources import folder as resource_folder

VERSION = "sweep/1"


def collect(folder: Path) -> Contents:
    """Read the sweep in a folder and put its page in order; RunError if it is none."""
    facts = _read(folder / "sweep.json")
    rows = [_row(folder, facts, point) for point in facts["points"] if point["figures"] is not None]
    manifest = facts | {"run_id": facts["sweep_id"], "config_digest": facts["digest"]}
    run = Run(folder, manifest, lambda name, params: rows)
    page = blocks.load(resource_folder("reports") / f"{facts['page']}.toml")
    chapters = [
        Chapter(section.id, section.heading, [contents.part(section, one) for one in shown])
        for section, shown in blocks.show(page, run)
    ]
    return Contents(
        run=run,
        title=page.title,
        setting=f"{words.plural(len(facts['points']), 'point')} over {', '.join(facts['varied'])}",
        headline=facts["chosen"]["reason"],
        verdict=_verdict(facts, rows),
        binds="",
        certainty="",
        records=_records(facts["trace"]),
        tiles=_tiles(rows),
        chapters=chapters,
        unmodelled=facts["unmodelled"],
        warnings=[*_without_run(facts), *facts["warnings"]],
        settings=[
            ("Trace", [*contents.flat(facts["trace"])]),
            ("Configuration that all points share, with every default", [*contents.flat(facts["config"])]),
        ],
        noun="sweep",
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path.parent}: has no sweep.json, so this is no sweep") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    version = facts.get("version") if isinstance(facts, dict) else None
    if version != VERSION:
        raise RunError(f"{path}: version is {version!r}; this servecast reads {VERSION!r}")
    return facts


def _row(folder: Path, facts: dict[str, Any], point: dict[str, Any]) -> Row:
    """Return a point as the charts and the table take it; it leads to its run's page, else to the run's folder."""
    page = f"{point['run_id']}/report.html"
    return {
        **point["figures"],
        "run_id": point["run_id"],
        "point": point["point"],
        "settings": point["settings"],
        "settings_text": _settings_text(point["settings"]),
        "chosen": point["point"] == facts["chosen"]["point"],
        "link": page if (folder / page).is_file() else f"../../{point['run_id']}/",
    }


def _settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} {contents.setting_text(value)}" for key, value in settings.items())


def _verdict(facts: dict[str, Any], rows: list[Row]) -> str:
    target = facts["target_slo_share"]
    keep = sum(r["slo_share"] is not None and r["slo_share"] >= target for r in rows)
    missing = len(facts["points"]) - len(rows)
    without = f"; {words.plural(missing, 'point')} without a run, see the warnings" if missing else ""
    of = f"{keep} of {words.plural(len(rows), 'point')}"
    return f"{of} {'keeps' if keep == 1 else 'keep'} the SLO for {words.share(target, 2)} of the requests{without}."


def _records(trace: dict[str, Any]) -> str:
    if "rows" not in trace:
        return f"Nothing is known of the trace {trace['path']}."
    rejected = trace.get("rejected_records")
    unread = "not known whether records of the log could not be read"
    if rejected is not None:
        unread = f"{words.plural(rejected, 'record')} of the log could not be read"
    left_out = words.count(trace["rows"] - trace["replayed"])
    where = f" Only requests with {trace['where']} were taken." if trace.get("where") else ""
    return f"{words.plural(trace['rows'], 'request')} in the trace; {unread}; {left_out} not replayed.{where}"


def _without_run(facts: dict[str, Any]) -> list[str]:
    what = {"unusable": "cannot be used", "failed": "failed"}
    return [
        f"point {p['point']} ({_settings_text(p['settings'])}) {what[p['status']]}: {p['reason']}"
        for p in facts["points"]
        if p["figures"] is None
    ]


def _tiles(rows: list[Row]) -> list[Tile]:
    """Return the figures of the chosen point; none where there is no such point."""
    for row in rows:
        if row["chosen"]:
            return [
                Tile("chosen", f"point {row['point']}", row["settings_text"]),
                Tile("goodput", words.number(row["goodput_rps"]), "requests/s within the SLO"),
                Tile("per accelerator", words.number(row["goodput_per_gpu_rps"]), f"requests/s, {row['gpus']} in all"),
                Tile("within the SLO", words.share(row["slo_share"]), "of requests"),
                Tile("TTFT p95", words.milliseconds(row["ttft_p95_ms"])),
                Tile("TPOT p95", words.milliseconds(row["tpot_p95_ms"])),
                Tile("E2E p95", words.milliseconds(row["e2e_p95_ms"])),
                Tile("KV memory peak", words.share(row["kv_peak_share"], 0)),
            ]
    return []
