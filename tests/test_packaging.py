"""A wheel built from the repository works outside it, and holds what the repository holds and nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.shared import CHECKOUT

pytest.importorskip("hatchling")


def build(source: Path, out: Path, kind: str = "wheel") -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the tracked files, with what a working checkout has besides."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    copy = tmp_path_factory.mktemp("checkout") / "servecast"
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/") and (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, copy / name)
    for litter in (
        "runs/0123456789abcdef/run.json",
        "reports/out/2026-01-31/0123456789abcdef/report.html",
        "pipeline/__pycache__/cli.cpython-311.pyc",
        "bench/result.json",
        ".venv/lib/thing.py",
        ".hypothesis/examples/x",
    ):
        (copy / litter).parent.mkdir(parents=True, exist_ok=True)
        (copy / litter).write_text("litter")
    return copy


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory):
    return build(checkout, tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def tracked(checkout: Path) -> set[str]:
    """Return where the files of a checkout belong in a wheel."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    places = set()
    for name in filter(None, listed.stdout.split("\0")):
        top = name.split("/")[0]
        if not (checkout / name).is_file() or name.endswith(".gitkeep"):
            continue
        if top == "pipeline":
            places.add(name)
        elif top in ("queries", "reports", "traces"):
            places.add(f"pipeline/_resources/{name}")
    return places


def test_a_wheel_holds_the_tracked_files_and_no_litter(checkout, wheel):
    inside = {name for name in names(wheel) if not name.endswith(".gitkeep")}
    assert inside == tracked(checkout)
    for name in ("traces/sample.parquet", "queries/answers/latency.sql", "reports/page.html.j2", "reports/replay.toml"):
        assert f"pipeline/_resources/{name}" in inside
    assert "pipeline/hardware/data/coefficients.csv" in inside


def test_a_wheel_from_the_source_distribution_is_the_same(checkout, wheel, tmp_path):
    archive = build(checkout, tmp_path / "sdist", "sdist")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert not (source / "reports" / "out").exists()
    assert not (source / "runs").exists()
    assert names(build(source, tmp_path / "again")) == names(wheel)


def test_the_command_and_its_requirements(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "servecast = pipeline.cli:main" in archive.read(entry).decode()
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
        assert "License-Expression: Apache-2.0" in text
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    for module in ("numba", "polars", "pyarrow", "duckdb", "altair", "pydantic", "click", "rich", "jinja2"):
        assert f"Requires-Dist: {module}" in text


def test_it_works_outside_the_repository(wheel, tmp_path):
    """Unpacked alone on the path: replay of the shipped sample, a report, a question, and the sample made again."""
    place = tmp_path / "site"
    shutil.unpack_archive(wheel, place, "zip")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(place)}  # the requirements are those of this environment

    def servecast(*arguments):
        command = [sys.executable, "-P", "-c", "from pipeline.cli import main; main()", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [sys.executable, "-P", "-c", "import pipeline; print(pipeline.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(place))
    sample = place / "pipeline" / "_resources" / "traces" / "sample.parquet"
    shown = servecast("replay", sample, "-o", tmp_path / "runs", "--report", "--where", "arrival_us < 120000000")
    assert "throughput" in shown
    (run,) = (tmp_path / "runs").iterdir()
    (page,) = (tmp_path / "reports" / "out").rglob("report.html")
    assert f"Report: {page.relative_to(tmp_path)}" in shown
    assert run.name in page.read_text(encoding="utf-8")
    assert "finished" in servecast("sql", run, "FROM requests_by_status", "--format", "csv")
    servecast("synth", tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == sample.read_bytes()
