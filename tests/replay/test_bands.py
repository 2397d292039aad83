"""How sure a run is: bands agree with the queries, widen what they should, and saturation is where queues grow."""

import json

import pytest

from pipeline import config
from pipeline.query import session
from pipeline.replay import bands, driver
from pipeline.replay.prepare import prepare
from tests.replay import servecast

LINE = (
    "0us 100>60 tenant=a class=chat prefix=s:64 times=12, 3ms 300>80 class=docs times=6, 90ms 40>1 class=chat times=3, "
    "91ms 40>5 class=chat cancelled times=3, 200ms 600>2, 300ms 64>9 status=error, 2s 90>420 times=4"
)


def settings(*more, **changed):
    return config.load(overrides=[*servecast.settings(**changed)[1::2], *more])


@pytest.fixture
def trace(tmp_path):
    return prepare([servecast.trace(tmp_path / "trace.parquet", LINE)], tmp_path)


@pytest.mark.parametrize("more", [(), ("load.timeout_s=1.5",), ("slo.chat.ttft_ms=40", "slo.docs.tpot_ms=none")])
def test_figures_are_those_of_the_queries(trace, tmp_path, more):
    chosen = settings("slo.ttft_ms=60", "slo.e2e_ms=3000", *more)
    run, _ = driver.replay(trace, chosen, tmp_path)
    (headline,) = session.answer_rows(session.open([run]), "headline")
    found = bands.figures(bands._rows(trace, chosen, None, 1.0), chosen, frontend_ms=20)
    assert 0 < found["slo_share"] < 1
    assert found == {name: pytest.approx(headline[name], rel=1e-9) for name in found}


def test_longer_steps_make_callers_wait_longer(trace):
    told = bands.measure(trace, settings("slo.ttft_ms=60"))
    short, long = told["replays"]
    assert (short["scale"], long["scale"]) == (0.9, 1.1)
    assert short["ttft_p95_ms"] < long["ttft_p95_ms"]
    assert short["e2e_p95_ms"] < long["e2e_p95_ms"]
    assert told["error_pct"] == 10


def test_one_request_alone_scales_exactly(tmp_path):
    """Nobody waits for anybody, so the time in steps is scaled and the frontend's 20 ms are not."""
    alone = prepare([servecast.trace(tmp_path / "one.parquet", "0us 100>50")], tmp_path)
    plain, double = (bands._rows(alone, settings(), None, scale) for scale in (1.0, 2.0))
    assert double["finish_ns"][0] == pytest.approx(2 * plain["finish_ns"][0], abs=100)


def test_an_estimate_has_a_band_of_its_own_error(trace):
    told = bands.measure(trace, settings(hardware__gpu="l4"))
    assert (told["error_pct"], told["basis"]) == (17, "roofline")


def loaded(tmp_path, per_s):
    """Return 600 equal requests at a constant rate."""
    gap_us = round(1e6 / per_s)
    line = ", ".join(f"{n * gap_us}us 100>20" for n in range(600))
    return prepare([servecast.trace(tmp_path / f"{per_s}.parquet", line)], tmp_path)


def test_beyond_saturation_the_queue_no_longer_empties(tmp_path):
    capacity = bands.capacity_rps(loaded(tmp_path, 10), settings())
    assert capacity == pytest.approx(bands.capacity_rps(loaded(tmp_path, 50), settings()), rel=0.01)
    queue_s = {}
    for share in (0.85, 1.2):
        rows = bands._rows(loaded(tmp_path, capacity * share), settings(), None, 1.0)
        queue_s[share] = (rows["first_scheduled_ns"] - rows["arrival_ns"])[-1] / 1e9
    assert queue_s[0.85] < 0.2
    # What arrives too much by the last arrival waits: 600 x (1 - 1/1.2) requests at the rate that is answered.
    assert queue_s[1.2] == pytest.approx(600 * (1 - 1 / 1.2) / capacity, rel=0.15)


def test_few_requests_say_nothing_about_saturation(trace):
    assert bands.measure(trace, settings())["saturation"]["capacity_rps"] is None


def test_a_closed_load_offers_no_rate(tmp_path):
    told = bands.measure(loaded(tmp_path, 10), settings("load.kind=closed", "load.concurrency=4"))
    assert told["saturation"] == {"offered_rps": None, "capacity_rps": None, "share": None}
    short, long = told["replays"]
    assert short["tpot_p95_ms"] < long["tpot_p95_ms"]


@pytest.mark.summary
def test_the_command_and_its_switches(tmp_path):
    path = servecast.trace(tmp_path / "trace.parquet", LINE)
    without = servecast.replay(path, tmp_path / "a", "--no-bands")
    assert not (without / "bands.json").exists()
    result = servecast.run("replay", path, "-o", tmp_path / "a", *servecast.settings())
    assert "With step times 10 % shorter or longer: p95 TTFT" in " ".join(result.stdout.split())
    told = json.loads((without / "bands.json").read_text())
    run = servecast.replay(path, tmp_path / "b")
    assert (run / "bands.json").read_bytes() == (without / "bands.json").read_bytes()
    assert told["version"] == bands.VERSION


def test_large_traces_get_bands_only_when_asked(tmp_path, monkeypatch):
    run = servecast.replay(servecast.trace(tmp_path / "trace.parquet", LINE), tmp_path, "--no-bands")
    assert bands.wanted(run, None)
    monkeypatch.setattr(bands, "MOST_REQUESTS", 5)
    assert not bands.wanted(run, None)
    assert bands.wanted(run, True)
    assert not bands.wanted(run, False)
