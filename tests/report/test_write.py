"""The report from the run folder to the files, through the SQL answers."""

import json
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from pipeline import report
from pipeline.errors import RunError
from pipeline.report import blocks, contents, drawing, summary
from pipeline.report.run import open_runs
from tests.queries import fake_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fake_run.write(tmp_path_factory.mktemp("runs") / "a", count=400, seed=1)


@pytest.fixture
def _quick_images(monkeypatch):
    """Drawing PNGs takes most of the time; here only their presence matters."""
    monkeypatch.setattr(drawing, "to_png", lambda figure: b"PNG")


def test_one_run_gives_page_summary_and_every_chart(folder, tmp_path):
    files = report.write([folder], tmp_path / "out")
    assert files[:2] == [tmp_path / "out/report.html", tmp_path / "out/report.md"]
    assert sorted(files) == sorted(p for p in (tmp_path / "out").rglob("*") if p.is_file())
    images = set(re.findall(r"\]\((charts/[^)]+)\)", files[1].read_text()))
    assert images == {f"charts/{p.name}" for p in files[2:]}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in files[2:])


@pytest.mark.usefixtures("_quick_images")
def test_the_same_run_gives_the_same_bytes(folder, tmp_path):
    first, second = (report.write([folder], tmp_path / name) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


@pytest.mark.usefixtures("_quick_images")
def test_several_runs_give_an_index_and_a_page_each(folder, tmp_path):
    other = fake_run.write(tmp_path / "b", count=3, seed=2)
    files = report.write([folder, other, folder], tmp_path / "out")
    names = [str(p.relative_to(tmp_path / "out")) for p in files if p.suffix != ".png"]
    assert names == [
        "index.html", "index.md", "0000000000000001/report.html", "0000000000000001/report.md",
        "0000000000000002/report.html", "0000000000000002/report.md",
    ]  # fmt: skip
    assert 'href="0000000000000002/report.html"' in files[0].read_text()


def test_headline_agrees_with_the_stored_requests(folder):
    """The figures are those of the run folder, counted here without SQL."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    replayed = [r for r in rows if r["outcome"] != "not_replayed"]
    (run,) = open_runs([folder])
    (row,) = run.answer("headline")
    assert row["requests"] == len(replayed)
    span_s = (max(r["arrival_ns"] for r in replayed) - min(r["arrival_ns"] for r in replayed)) / 1e9
    said = report.summary_lines(folder).replace("\n", " ")
    rate = float(re.match(r"At ([\d.]+) requests/s", said)[1])
    assert rate == pytest.approx(len(replayed) / span_s, rel=0.02)
    assert f"{len(rows) - len(replayed)} not replayed" in said


@pytest.mark.parametrize(
    ("count", "load", "says"),
    [
        (0, {}, "No request was replayed."),
        (1, {}, "With 1 request, "),
        (20, {"timeout_s": 0.0}, "no request got a token; SLO met for 0 % of requests."),
    ],
)
def test_odd_runs_are_told_in_sentences(tmp_path, count, load, says):
    odd = fake_run.write(tmp_path / "odd", count=count, seed=3, **load)
    (run,) = open_runs([odd])
    assert says in summary.plain(run).replace("\n", " ")
    told = contents.collect(run, blocks.load())
    assert says in told.headline
    text = " ".join(
        part.content.alt if part.kind == "chart" else str(part.content) for c in told.chapters for part in c.parts
    )
    assert "nan" not in text.lower().split()
    assert "None" not in text


def test_an_unfinished_folder_is_refused(tmp_path):
    (tmp_path / "half").mkdir()
    with pytest.raises(RunError, match=r"has no run\.json"):
        report.write([tmp_path / "half"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_no_half_file(folder, tmp_path, monkeypatch):
    def full(self, content):
        Path.touch(self)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        report.write([folder], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_default_folder_names_day_and_run():
    runs = [Path("runs/0123456789abcdef"), Path("runs/fedcba9876543210")]
    assert report.default_folder(runs[:1], date(2026, 3, 2)) == Path("reports/out/2026-03-02/0123456789abcdef")
    assert report.default_folder(runs, date(2026, 3, 2)) == Path("reports/out/2026-03-02")


def test_the_summary_does_without_the_chart_library(folder):
    code = (
        "import sys, json, pathlib; from pipeline import report; report.summary_lines(pathlib.Path(sys.argv[1])); "
        "print(json.dumps([m for m in ('altair', 'vl_convert') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
