"""Runs that do not get to their end: killed, interrupted, refused by the disk, or made twice at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import resources
from tests.replay import servecast

# It happens when the first table is about to be closed: row groups are on disk, footer and manifest are not.
MIDWAY = """
import os, pathlib, signal, time
from pipeline.replay import sink
real = sink.TableWriter._close_part
def close(writer):
    {act}
    real(writer)
sink.TableWriter._close_part = close
"""
LINE = "0us 64>40 times=40"


def sample() -> Path:
    return resources.folder("traces") / "sample.parquet"


@pytest.fixture
def trace(tmp_path):
    return servecast.trace(tmp_path / "trace.parquet", LINE)


@pytest.fixture
def wanted(trace, tmp_path):
    """The bytes of the run that nothing happened to."""
    return servecast.content(servecast.replay(trace, tmp_path / "undisturbed"))


def start(trace, root, act="pass", **options):
    return servecast.start("replay", trace, "-o", root, *servecast.settings(), before=MIDWAY.format(act=act), **options)


def test_a_killed_run_leaves_nothing_that_counts_and_can_be_made_again(trace, tmp_path, wanted):
    root = tmp_path / "runs"
    status, out, _ = servecast.finish(start(trace, root, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert (status, out) == (-signal.SIGKILL, "")
    (left,) = root.iterdir()
    assert left.name.endswith(".partial")
    assert (left / "requests.parquet").stat().st_size > 0
    (left / "run.json").write_text("{}")  # even killed in the last instant before the folder gets its name
    for command in (["sql", "FROM runs"], ["report", root / left.name.split(".")[1]]):
        status, out, err = servecast.finish(servecast.start(*command, cwd=tmp_path))
        assert (status, out) == (2, "")
        assert "runs: holds no run" in err or "no such run folder" in err
    again = servecast.replay(trace, root)
    assert servecast.content(again) == wanted
    assert list(root.iterdir()) == [again]


def test_what_a_living_process_is_writing_is_left_alone(trace, tmp_path):
    run = servecast.replay(trace, tmp_path / "elsewhere").name
    root = tmp_path / "runs"
    mine, odd = root / f".{run}.{os.getppid()}.partial", root / f".{run}.notes.partial"
    for folder in (mine, odd):
        folder.mkdir(parents=True)
    servecast.replay(trace, root)
    assert mine.exists()
    assert odd.exists()


def test_an_interrupted_run_is_removed(trace, tmp_path, wanted):
    root = tmp_path / "runs"
    status, out, err = servecast.finish(start(trace, root, "os.kill(os.getpid(), signal.SIGINT)"))
    assert (status, out) == (130, "")
    assert err == "servecast: interrupted; nothing half-written was kept\n"
    assert list(root.iterdir()) == []
    assert servecast.content(servecast.replay(trace, root)) == wanted


def test_an_interrupted_import_is_removed(tmp_path):
    from tests.ingest import build

    log = build.write(tmp_path / "log", build.AZURE)
    before = (
        "import os, signal\nimport pyarrow.parquet as pq\nreal = pq.write_table\n"
        "def write(*a, **k):\n    real(*a, **k)\n    os.kill(os.getpid(), signal.SIGINT)\npq.write_table = write"
    )
    process = servecast.start("ingest", log, "-o", tmp_path / "out" / "t.parquet", before=before)
    assert servecast.finish(process)[0] == 130
    assert list((tmp_path / "out").iterdir()) == []


def test_the_same_run_twice_at_once(trace, tmp_path, wanted):
    """Each waits until both have opened their folders, so both write to the end."""
    root = tmp_path / "runs"
    everybody = f"while len(list(pathlib.Path({str(root)!r}).iterdir())) < 2: time.sleep(0.02)"
    both = [
        start(trace, root, f"if not hasattr(sink, 'met'):\n        {everybody}\n    sink.met = True") for _ in range(2)
    ]
    ends = [servecast.finish(process) for process in both]
    assert [status for status, _, _ in ends] == [0, 0]
    (folder,) = root.iterdir()
    assert servecast.content(folder) == wanted


def mounted(path: Path, size: str) -> Path:
    """Mount a small file system of its own, or skip where that is not allowed."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("only root can mount a small disk")
    return path


@pytest.fixture
def disk(tmp_path):
    """A real disk of 1 MiB."""
    if sys.platform != "linux":
        pytest.skip("tmpfs is Linux's")
    path = mounted(tmp_path / "disk", "1m")
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_full_disk_under_the_runs(disk):
    """Steps and requests of the sample take about 4 MiB."""
    process = servecast.start("replay", sample(), "-o", disk / "runs")
    status, out, err = servecast.finish(process)
    assert (status, out) == (2, "")
    assert err.startswith(f"servecast: {disk}/runs/")
    assert "No space left on device; nothing was kept" in err
    assert err.count("\n") == 1  # nothing from a destructor either
    assert list((disk / "runs").iterdir()) == []


def test_a_full_disk_under_a_trace(disk):
    (disk / "ballast").write_bytes(bytes(900_000))
    process = servecast.start("ingest", sample(), "-o", disk / "t.parquet")
    status, out, err = servecast.finish(process)
    assert (status, out) == (2, "")
    assert err.startswith(f"servecast: {disk}/t.parquet: cannot be written: ")
    assert "No space left on device" in err
    assert err.count("\n") == 1
    assert [path.name for path in disk.iterdir()] == ["ballast"]


def test_a_limit_on_the_size_of_files(tmp_path):
    """What a full disk gives, for users who cannot mount one: no file may grow beyond 100,000 bytes."""
    before = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    process = servecast.start("replay", sample(), "-o", tmp_path / "runs", before=before)
    status, out, err = servecast.finish(process)
    assert (status, out) == (2, "")
    assert "cannot be written" in err
    assert "File too large; nothing was kept" in err
    assert err.count("\n") == 1
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("table", ["requests", "steps", "gaps", "run.json"])
def test_a_disk_that_fills_at_any_file(trace, tmp_path, monkeypatch, table):
    from pipeline.replay import sink

    full = OSError(28, "No space left on device")

    def refuse(*_, **__):
        raise full

    if table == "run.json":
        monkeypatch.setattr(Path, "write_text", refuse)
    else:
        real = sink.TableWriter._write_group

        def write(self, rows):
            if self.schema.metadata[b"table"] == table.encode():
                refuse()
            real(self, rows)

        monkeypatch.setattr(sink.TableWriter, "_write_group", write)
    result = servecast.run("replay", trace, "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 2, result.output
    assert "cannot be written: No space left on device; nothing was kept" in result.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_fault_in_the_writer_does_not_hang(trace, tmp_path, monkeypatch):
    from pipeline.replay import tables

    monkeypatch.setattr(tables, "engine_columns", lambda *_: 1 / 0)
    result = servecast.run("replay", trace, "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 3
    assert "internal fault: ZeroDivisionError" in result.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_place_of_runs_is_a_file(trace, tmp_path):
    (tmp_path / "runs").write_text("")
    result = servecast.run("replay", trace, "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 2
    assert f"{tmp_path}/runs: cannot write runs here: File exists" in result.stderr
    result = servecast.run("replay", trace, "-o", tmp_path / "runs" / "more", *servecast.settings())
    assert "more: cannot write runs here: Not a directory" in result.stderr


def test_a_log_whose_import_has_no_place(tmp_path):
    from tests.ingest import build

    log = build.write(tmp_path / "log", build.AZURE)
    (tmp_path / "runs").write_text("")
    result = servecast.run("replay", log, "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_a_place_that_is_read_only(trace, tmp_path):
    """Root may write anywhere, so the folder is mounted read-only where that is possible."""
    place = tmp_path / "place"
    if os.geteuid() == 0:
        mounted(place, "1m")
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    else:
        place.mkdir(mode=0o500)
    try:
        result = servecast.run("replay", trace, "-o", place / "runs", *servecast.settings())
        assert result.exit_code == 2
        assert "runs: cannot write runs here: " in result.stderr
        written = servecast.run("ingest", trace, "-o", place / "t.parquet")
        assert written.exit_code == 2
        assert "t.rejects.parquet: cannot be written: " in written.stderr
        made = servecast.run("synth", place / "t.parquet", "--requests", "20")
        assert made.exit_code == 2
        assert "t.parquet" in made.stderr
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", place], check=True)


def test_something_else_in_the_place_of_the_run(trace, tmp_path):
    """A run whose run.json was deleted is not overwritten, and not taken for a run."""
    folder = servecast.replay(trace, tmp_path / "runs")
    (folder / "run.json").unlink()
    result = servecast.run("replay", trace, "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 2
    assert f"{folder}: is there and no finished run (it has no run.json); remove it" in result.stderr
    assert (folder / "requests.parquet").exists()
    assert list((tmp_path / "runs").iterdir()) == [folder]
