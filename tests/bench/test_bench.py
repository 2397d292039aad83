"""Every benchmark once, at its smallest size, and what the tables make of measurements."""

import json

import pytest

from tests.bench import kernel, table, workloads
from tests.bench.__main__ import EXTRAS, main

NAMES = [one.name for one in workloads.all_of_them(quick=True)]


@pytest.mark.parametrize("name", [*NAMES, *EXTRAS])
def test_each_benchmark_runs_and_fits_80_columns(name, tmp_path, capsys):
    assert main(["--quick", "--only", name], out=tmp_path) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines() if str(tmp_path) not in line)
    (path,) = tmp_path.glob("bench-*.json")
    found = json.loads(path.read_text())
    assert name in [*found["kernel"], *found["absent"], *found]


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
