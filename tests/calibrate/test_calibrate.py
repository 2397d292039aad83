"""Calibration: known parameters are found again, in what the log can tell; the settings it writes can be used."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import config
from pipeline.calibrate import judge, observed, run
from pipeline.calibrate.observed import Point
from pipeline.errors import TraceError
from pipeline.replay import driver
from pipeline.replay.manifest import TraceFile
from tests import builders
from tests.replay import servecast

TRUTH = Point(step_time_scale=1.3, step_overhead_ms=3.0, frontend_ms=55.0)
SETTINGS = ["engine.max_num_seqs=128", "engine.max_num_batched_tokens=2048", "engine.max_model_len=4096"]


def observe(path, requests=400, noise=0.03, metrics=("ttft", "e2e")) -> TraceFile:
    """Write a trace whose latencies are those of a replay under TRUTH, each changed by a random factor."""
    random = np.random.default_rng(7)
    busy = np.arange(requests) % 50 < 35  # 50 requests a second and 2 a second in turn, so that batches differ
    arrivals_us = np.cumsum(random.exponential(np.where(busy, 20_000, 500_000))).astype(int)
    rows = [
        builders.Row(int(us), int(prompt), int(output))
        for us, prompt, output in zip(
            arrivals_us, random.integers(20, 2000, requests), random.integers(5, 300, requests), strict=True
        )
    ]
    table = builders.Trace(rows).table()
    pq.write_table(table, path)
    trace = TraceFile(path, path.name, "0" * 64)
    found = driver.requests(trace, TRUTH.applied(config.load(overrides=SETTINGS)))
    ends = {"ttft": "first_token_ns", "e2e": "finish_ns"}
    for metric in metrics:
        ms = (found[ends[metric]].to_numpy() - found["arrival_ns"].to_numpy()) / 1e6 + TRUTH.frontend_ms
        us = np.rint(1000 * ms * np.exp(random.normal(0, noise, requests))).astype(int)
        place = table.schema.get_field_index(f"obs_{metric}_us")
        table = table.set_column(place, table.schema.field(place), pa.array(us))
    pq.write_table(table, path)
    return trace


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    trace = observe(tmp_path_factory.mktemp("observed") / "log.parquet")
    return run.calibrate(trace, config.load(overrides=SETTINGS))


def test_known_parameters_are_recovered_from_noise(found):
    assert found.start == Point(1.0, 0.8, 20.0)
    assert found.found.step_time_scale == pytest.approx(TRUTH.step_time_scale, rel=0.05)
    assert found.found.step_overhead_ms == pytest.approx(TRUTH.step_overhead_ms, abs=0.5)
    assert found.found.frontend_ms == pytest.approx(TRUTH.frontend_ms, abs=5.0)


def test_the_rest_of_the_log_is_judged(found):
    assert (found.fitted_requests, found.judged_requests) == (200, 200)
    for metric in ("ttft", "e2e", "tpot"):
        before, after = (found.errors["rest"][when][metric] for when in ("before", "after"))
        assert abs(before["mean"]) > 0.15
        assert abs(after["mean"]) < 0.03
    # the noise itself: the median size of a normal error of 3 % is 0.674 * 3 %
    assert found.errors["rest"]["after"]["e2e"]["request"] == pytest.approx(0.0202, abs=0.005)
    assert {(r["metric"], r["by"]) for r in found.residuals} >= {("ttft", "input_tokens"), ("e2e", "in_flight")}


def test_end_to_end_times_alone_leave_the_frontend_as_it_is(tmp_path):
    trace = observe(tmp_path / "log.parquet", requests=200, metrics=("e2e",))
    found = run.calibrate(trace, config.load(overrides=[*SETTINGS, "hardware.frontend_ms=55"]))
    assert found.found.frontend_ms == 55.0
    assert found.found.step_time_scale == pytest.approx(TRUTH.step_time_scale, rel=0.08)
    assert set(found.errors["rest"]["after"]) == {"e2e"}


def test_the_command_writes_settings_figures_and_a_chart(tmp_path):
    observe(tmp_path / "log.parquet", requests=80)
    overrides = [word for text in [*SETTINGS, "slo.chat.ttft_ms=300"] for word in ("--set", text)]
    out = tmp_path / "made" / "fitted.toml"
    result = servecast.run("calibrate", tmp_path / "log.parquet", *overrides, "-o", out)
    assert result.exit_code == 0, result.output
    assert "Error, judged on the rest: 40 requests" in result.output
    loaded = config.load(out)
    figures = json.loads(out.with_suffix(".json").read_text())
    assert loaded.hardware.step_time_scale == figures["found"]["step_time_scale"]
    assert loaded.hardware.frontend_ms == figures["found"]["frontend_ms"]
    assert loaded.engine.max_num_seqs == 128
    assert loaded.slo.targets("chat").ttft_ms == 300
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    given = config.load(overrides=[*SETTINGS, "slo.chat.ttft_ms=300"])
    fitted = Point(**figures["found"]).applied(given)
    assert config.digest(loaded) == config.digest(fitted)


def test_a_log_without_latencies_is_refused(tmp_path):
    path = servecast.trace(tmp_path / "log.parquet", "0us 30>5 times=50")
    result = servecast.run("calibrate", path, "-o", tmp_path / "x.toml")
    assert result.exit_code == 2
    assert "0 replayed requests have a latency in the log (obs_ttft_us, obs_e2e_us)" in result.output
    assert not (tmp_path / "x.toml").exists()


def test_too_small_a_part_is_refused():
    rows = observed.pl.DataFrame({"request": range(100)})
    with pytest.raises(TraceError, match="at least 20 in the part that is fitted and in the rest"):
        observed.split(rows, 0.95, "log")


def test_errors_by_hand():
    rows = observed.pl.DataFrame(
        {
            "input_tokens": [10, 10, 10],
            "output_tokens": [1, 3, 3],
            "in_flight": [0, 1, 2],
            "observed_ttft_ms": [100.0, 200.0, None],
            "predicted_ttft_ms": [110.0, 150.0, 1.0],
            "observed_e2e_ms": [100.0, 400.0, 10.0],
            "predicted_e2e_ms": [110.0, 450.0, None],
        }
    )
    found = judge.errors(judge.with_tpot(rows))
    assert found["ttft"]["mean"] == pytest.approx(130 / 150 - 1)
    assert found["ttft"]["request"] == pytest.approx(0.175)
    assert found["e2e"]["requests"] == 2
    assert found["tpot"]["mean"] == pytest.approx(150 / 100 - 1)  # (450 - 150) / 2 against (400 - 200) / 2
