"""Sweeps on this machine: runs, files, page, resumption, points that fail, processes that die, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.report import drawing
from pipeline.sweep import grid, local, run, work
from pipeline.sweep.work import Job
from tests.replay import servecast
from tests.sweep.deadly import deadly
from tests.sweep.little import GRID, little, run_here

LINE = "0us 64>40 times=40, 1s 100>10 times=10"


@pytest.fixture(autouse=True)
def _quick_images(monkeypatch):
    """Drawing PNGs takes a second each; here only their presence matters."""
    monkeypatch.setattr(drawing, "to_png", lambda figure: b"PNG")


@pytest.fixture
def trace(tmp_path):
    return servecast.trace(tmp_path / "trace.parquet", LINE)


@pytest.fixture
def inline(monkeypatch):
    """Where processes are not what a test is about."""
    monkeypatch.setattr(local, "run", run_here)


def sweep(tmp_path, trace, sweep_text=GRID, *more, root="runs", base="", **changed):
    path = little(tmp_path / "grid.toml", sweep_text, base, **changed)
    return servecast.run("sweep", path, trace, "-o", tmp_path / root, "--jobs", 2, *more)


def result(tmp_path, root="runs") -> Path:
    (folder,) = (tmp_path / root / "sweeps").iterdir()
    return folder


def stamps(root: Path) -> dict[str, int]:
    files = [path for run in root.glob("[0-9a-f]*") for path in run.rglob("*") if path.is_file()]
    assert files
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_every_point_is_the_run_that_replay_would_make_and_nothing_is_made_twice(tmp_path, trace):
    """Also: the same bytes again, from an empty folder, on one process."""
    done = sweep(tmp_path, trace)
    assert done.exit_code == 0, done.output
    facts = json.loads((result(tmp_path) / "sweep.json").read_text())
    assert [p["settings"] for p in facts["points"]] == [
        {"engine.max_num_seqs": seqs, "load.rate_scale": rate} for seqs in (2, 8) for rate in (1, 4)
    ]
    point = facts["points"][3]
    alone = servecast.replay(trace, tmp_path / "alone", "--no-bands", engine__max_num_seqs=8, load__rate_scale=4)
    assert point["run_id"] == alone.name
    assert servecast.content(tmp_path / "runs" / alone.name) == servecast.content(alone)
    # By hand: 50 requests, all answered; arrivals span 1 s / rate_scale.
    assert [p["figures"]["requests"] for p in facts["points"]] == [50] * 4
    assert [p["figures"]["offered_rps"] for p in facts["points"]] == pytest.approx([49, 196] * 2)
    assert {p["figures"]["gpus"] for p in facts["points"]} == {1}

    stored = pq.read_table(result(tmp_path) / "points.parquet").to_pylist()
    assert [row["run_id"] for row in stored] == [p["run_id"] for p in facts["points"]]
    assert [row["ttft_p95_ms"] for row in stored] == [p["figures"]["ttft_p95_ms"] for p in facts["points"]]
    assert [row["engine.max_num_seqs"] for row in stored] == [2, 2, 8, 8]

    before, files = stamps(tmp_path / "runs"), servecast.content(tmp_path / "runs")
    again = sweep(tmp_path, trace)
    assert "(0 made now, 4 were there)" in again.output
    assert stamps(tmp_path / "runs") == before
    assert servecast.content(tmp_path / "runs") == files

    points = grid.load(tmp_path / "grid.toml")
    from pipeline.replay.prepare import prepare

    other = run.sweep(points, prepare([trace], tmp_path), tmp_path / "other", workers=1)
    assert other.made == 4
    assert servecast.content(tmp_path / "other") == files


def test_the_page_has_every_point_with_a_way_to_its_run(tmp_path, trace, inline):
    done = sweep(tmp_path, trace, "load.rate_scale = [1, 4]\nfleet.replicas = [1, 2]")
    assert done.exit_code == 0, done.output
    folder = result(tmp_path)
    facts = json.loads((folder / "sweep.json").read_text())
    page, plain = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    assert f"report {folder}/report.html" in done.output
    for point in facts["points"]:
        target = f"../../{point['run_id']}/"
        assert (folder / target / "run.json").is_file()
        assert f'<a href="{target}">{point["run_id"]}</a>' in page
        assert f"[{point['run_id']}]({target})" in plain
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page)[1])
    assert sorted(specs) == ["choice-sweep-tpot", "choice-sweep-ttft"]
    for metric, limit in (("ttft", 1000), ("tpot", 50)):
        tables = specs[f"choice-sweep-{metric}"]["datasets"].values()
        (marks,) = [rows for rows in tables if len(rows) == 2 * len(facts["points"])]
        for point in facts["points"]:
            own = {row["s"]: row for row in marks if row["run"] == point["run_id"]}
            figures = point["figures"]
            assert own["answered in full"]["y"] == pytest.approx(figures["completed_rps"], rel=1e-5)
            assert own["goodput: within the SLO"]["y"] == pytest.approx(figures["goodput_rps"], rel=1e-5)
            assert [row["x"] for row in own.values()] == pytest.approx([figures[f"{metric}_p95_ms"]] * 2, rel=1e-5)
        assert [limit] in [[row["x"] for row in rows] for rows in tables if "l" in rows[0]]
        assert (folder / "charts" / f"choice-sweep-{metric}.png").is_file()
    assert facts["chosen"]["reason"] in page.replace("\u00a0", " ")
    assert "NaN" not in page.split('id="specs">')[1].split("</script>")[0]


def test_limits_that_differ_draw_no_line_and_points_with_a_page_lead_there(tmp_path, trace, inline):
    done = sweep(tmp_path, trace, "slo.ttft_ms = [0.5, 100000]")
    assert done.exit_code == 0, done.output
    folder = result(tmp_path)
    facts = json.loads((folder / "sweep.json").read_text())
    assert facts["chosen"]["point"] == 2
    assert [p["figures"]["slo_share"] for p in facts["points"]] == [0, 1]
    named = folder / facts["points"][0]["run_id"] / "report.html"
    named.parent.mkdir()
    named.write_text("a page that was there")
    assert sweep(tmp_path, trace, "slo.ttft_ms = [0.5, 100000]").exit_code == 0
    page = (folder / "report.html").read_text()
    assert f'href="{named.parent.name}/report.html"' in page
    assert f'href="../../{facts["points"][1]["run_id"]}/"' in page
    assert "TTFT SLO" not in page
    assert "TPOT SLO" in page


def test_points_that_cannot_be_used_are_named_and_cost_no_other_one(tmp_path, trace, inline):
    """A batch limit that is none, a model that does not fit, and one that works."""
    done = sweep(
        tmp_path, trace, '[[sweep.point]]\nengine.max_num_seqs = 0\n[[sweep.point]]\nhardware.model = "llama-3.1-70b"\n'
        "[[sweep.point]]\nengine.max_num_seqs = 4", max_num_seqs=None, num_gpu_blocks=None
    )  # fmt: skip
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert re.search(r"point 1 \([^()]*\) cannot be used: engine.max_num_seqs = 0: must be at least 1", said)
    assert re.search(r"point 2 \([^()]*llama-3.1-70b\) cannot be used: ", said)
    folder = result(tmp_path)
    facts = json.loads((folder / "sweep.json").read_text())
    assert [p["status"] for p in facts["points"]] == ["unusable", "unusable", "done"]
    assert (tmp_path / "runs" / facts["points"][2]["run_id"] / "run.json").is_file()
    page = (folder / "report.html").read_text()
    assert "2 points without a run" in page.replace("\u00a0", " ")
    assert "must be at least 1" in page


def test_a_grid_of_which_nothing_can_be_used(tmp_path, trace):
    done = sweep(tmp_path, trace, 'hardware.gpu = ["l4-24gb", "nonsense"]\nhardware.model = ["llama-3.1-405b"]')
    assert done.exit_code == 2
    assert "nonsense" in done.stderr
    assert not (tmp_path / "runs" / "sweeps").exists()


def test_two_points_that_are_the_same_run(tmp_path, trace, inline):
    """The default written out."""
    done = sweep(tmp_path, trace, '[[sweep.point]]\nengine.max_num_active_seqs = "none"\n[[sweep.point]]\n'
                 "engine.max_num_active_seqs = 8", root="twice")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "(1 made now, 0 were there)" in done.output


def test_a_run_that_fails_is_named_and_tried_again(tmp_path, trace, inline):
    """Something else lies in the place of one run."""
    assert sweep(tmp_path, trace, "load.rate_scale = [1, 2]").exit_code == 0
    (first, second) = json.loads((result(tmp_path) / "sweep.json").read_text())["points"]
    blocked = tmp_path / "blocked" / first["run_id"]
    blocked.mkdir(parents=True)
    (blocked / "notes").write_text("not a run")
    done = sweep(tmp_path, trace, "load.rate_scale = [1, 2]", root="blocked")
    assert done.exit_code == 2
    assert "point 1 (rate_scale 1) failed: " in done.output
    assert "is there and no finished run" in " ".join(done.output.split())
    assert (tmp_path / "blocked" / second["run_id"] / "run.json").is_file()
    (blocked / "notes").unlink()
    blocked.rmdir()
    done = sweep(tmp_path, trace, "load.rate_scale = [1, 2]", root="blocked")
    assert done.exit_code == 0
    assert "(1 made now, 1 were there)" in done.output
    assert servecast.content(tmp_path / "blocked") == servecast.content(tmp_path / "runs")


def test_a_process_that_dies_costs_only_its_own_run():
    from pipeline.config import Config

    jobs = [Job(index, f"{index:016x}", Config()) for index in range(4)]
    seen = []
    outcomes = local.run(partial(deadly, victim=2), jobs, 2, lambda done, share: seen.append(share))
    assert sorted(outcomes) == list(range(4))
    assert outcomes.pop(2).reason.startswith("its process died")
    assert {index: outcome.figures for index, outcome in outcomes.items()} == {i: {"index": i} for i in (0, 1, 3)}
    assert all(0 <= share <= 4 for share in seen)


def test_what_an_error_may_quote_is_not_shown():
    def fail():
        raise KeyError("text of a prompt")

    try:
        fail()
    except KeyError as error:
        shown = work.failure(error)
    assert re.fullmatch(r"internal fault: KeyError at test_run\.py:\d+", shown.reason)
    assert shown.exit_code == 3


def living(group: int) -> list[str]:
    """Processes of a group that have not ended."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [row[2] for row in rows if int(row[0]) == group and not row[1].startswith("Z")]


def test_ctrl_c_keeps_what_is_finished_and_stops_every_process(tmp_path, monkeypatch):
    """As a terminal sends it: to the command and all its processes at once."""
    path = little(tmp_path / "grid.toml", "load.rate_scale = [1, 2, 3, 4, 5]")
    long = servecast.trace(tmp_path / "long.parquet", "0us 64>400 times=3000")
    root = tmp_path / "runs"
    process = servecast.start("sweep", path, long, "-o", root, "--jobs", 2, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(root.glob("*/run.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    status, out, err = servecast.finish(process)
    assert (status, out) == (130, ""), err
    assert err == "servecast: interrupted; nothing half-written was kept\n"
    kept = [folder.name for folder in root.iterdir()]
    assert 1 <= len(kept) < 5
    assert not [name for name in kept if name.startswith(".")]
    deadline = time.monotonic() + 20
    while living(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert living(process.pid) == []
    monkeypatch.setattr(local, "run", run_here)
    again = servecast.run("sweep", path, long, "-o", root, "--jobs", 2)
    assert again.exit_code == 0, again.output
    assert f"({5 - len(kept)} made now, {len(kept)} were there)" in again.output


def test_a_log_is_read_once_and_the_engine_is_compiled_once(tmp_path, inline):
    from tests.ingest import build

    log = build.write(tmp_path / "log", build.AZURE)
    done = servecast.run(
        "sweep", little(tmp_path / "grid.toml", "load.rate_scale = [1, 2]"), log, "-o", tmp_path / "runs"
    )
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "runs" / "traces").iterdir())) == 1
    assert work.is_compiled()
