"""Every benchmark once, at its smallest size, and what the tables make of measurements."""

import contextlib
import io
import json

import pytest

from tests.bench import figures, kernel, table, workloads
from tests.bench.__main__ import EXTRAS, main

NAMES = [one.name for one in workloads.all_of_them(quick=True)]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All benchmarks in one go; each command is a process of its own, so only that of the sample is really run."""
    folder, sample, real = tmp_path_factory.mktemp("bench"), {}, figures.command

    def command(workload, trace, runs, tables=False):
        if not sample:
            sample.update(real(workloads.Workload("sample", lambda: None), workloads.sample(quick=True), runs, True))
        return sample

    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setattr(figures, "command", command)
        assert main(["--quick"], out=folder) == 0
    (path,) = folder.glob("bench-*.json")
    return json.loads(path.read_text()), [line for line in shown.getvalue().splitlines() if str(folder) not in line]


def test_each_benchmark_runs_and_fits_80_columns(everything):
    found, lines = everything
    assert [line for line in lines if len(line) > 80] == []
    for name in NAMES:
        assert name in found["absent"] or (name in found["kernel"] and name in found["command"])
    assert set(EXTRAS) <= set(found)


def test_one_benchmark_may_be_chosen(tmp_path, capsys):
    assert main(["--quick", "--only", "decode"], out=tmp_path) == 0
    assert "Steps in which all requests just decode" in capsys.readouterr().out
    (path,) = tmp_path.glob("bench-*.json")
    found = json.loads(path.read_text())
    assert (found["kernel"], found["command"]) == ({}, {})
    assert [row["batch"] for row in found["decode"]] == [8, 64, 512] * 2


def test_an_unknown_name_is_refused(tmp_path, capsys):
    assert main(["--only", "nothing"], out=tmp_path) == 2
    assert "azure 1x plain" in capsys.readouterr().out


def test_events_of_one_request_are_counted_by_hand():
    """A prompt of 16 tokens, 33 out, blocks of 16: arrival, admission, chunk, finish, three blocks each way."""
    deployment, _ = kernel.batches(workloads.sample(quick=True), ("engine.enable_prefix_caching=false",))
    made = kernel.replay(deployment, kernel.decoding(1, 33))
    assert (made.requests, made.steps, made.tokens) == (1, 33, 16 + 33)
    assert made.events == 4 + 2 * 3


def test_a_command_is_summed_up_by_median_and_spread():
    row = {f"{name}_s": [3.0, 1.0, 2.0] for name in ("read", "replay", "write", "queries", "all")}
    line = table.command("name", row | {"memory_mib": [100.0, 300.0, 200.0]})
    assert line.split() == ["name", "2.00", "2.00", "2.00", "2.00", "2.00", "1.00-3.00", "300"]
