"""How requests are offered: a fixed number under way, or turns that wait for the one before them."""

import json

import pyarrow.parquet as pq
import pytest

from pipeline import config
from pipeline.errors import ConfigError
from tests import builders
from tests.replay import servecast

CHAT = "0us 32>3, 1ms 32>2, 5s 40>2 after=0+1500us, 6s 40>2 after=2, 7s 40>2"


def arrivals(folder):
    return servecast.requests(folder).select("arrival_ns", "finish_ns").rows()


def test_closed_loop_ignores_when_the_log_says(tmp_path):
    path = servecast.trace(tmp_path / "trace.parquet", "9s 32>3, 9s 32>2, 90s 40>2, 91s 40>2")
    folder = servecast.replay(path, tmp_path / "runs", load__kind="closed", load__concurrency=1)
    rows = arrivals(folder)
    assert [arrival for arrival, _ in rows] == [0, *[finish for _, finish in rows[:-1]]]


def test_turns_follow_where_that_is_asked_for(tmp_path):
    path = servecast.trace(tmp_path / "trace.parquet", CHAT)
    logged = servecast.replay(path, tmp_path / "runs")
    assert [arrival for arrival, _ in arrivals(logged)] == [0, 10**6, 5 * 10**9, 6 * 10**9, 7 * 10**9]
    notes = json.loads((logged / "run.json").read_text())["unmodelled"]
    assert any("2 requests follow another one" in note for note in notes)
    followed = servecast.replay(path, tmp_path / "runs", load__sessions="follow")
    rows = arrivals(followed)
    assert [rows[0][0], rows[1][0], rows[4][0]] == [0, 10**6, 7 * 10**9]
    assert rows[2][0] == rows[0][1] + 1_500_000
    assert rows[3][0] == rows[2][1]
    notes = json.loads((followed / "run.json").read_text())["unmodelled"]
    assert not any("follow another one" in note for note in notes)


def test_a_turn_whose_former_one_is_left_out_arrives_when_logged(tmp_path):
    path = servecast.trace(tmp_path / "trace.parquet", CHAT)
    folder = servecast.replay(path, tmp_path / "runs", "--where", "arrival_us > 0", load__sessions="follow")
    rows = arrivals(folder)
    assert [rows[0][0], rows[1][0], rows[3][0]] == [10**6, 5 * 10**9, 7 * 10**9]
    assert rows[2][0] == rows[1][1]


FAULTS = {
    "names no request of the trace": {"after_request_id": "elsewhere"},
    "names the request itself": {"after_request_id": "trace:2"},
    "names a request further down": {"after_request_id": "trace:3"},
    "without think_us": {"think_us": None},
    "think_us is below 0": {"think_us": -1},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_turn_that_cannot_wait_is_an_error(tmp_path, fault):
    table = builders.trace(CHAT).table()
    records = table.to_pylist()
    records[2] |= FAULTS[fault]
    path = tmp_path / "trace.parquet"
    pq.write_table(table.from_pylist(records, schema=table.schema), path)
    result = servecast.run("replay", path, "-o", tmp_path / "runs", *servecast.settings(load__sessions="follow"))
    assert result.exit_code != 0
    assert f"trace.parquet: row 3: {'after_request_id ' if 'think_us is' not in fault else ''}{fault}" in result.output
    assert servecast.run("replay", path, "-o", tmp_path / "runs", *servecast.settings()).exit_code == 0


def test_an_id_of_several_rows_cannot_be_waited_for(tmp_path):
    table = builders.trace(CHAT).table()
    records = table.to_pylist()
    records[1]["request_id"] = "trace:0"
    path = tmp_path / "trace.parquet"
    pq.write_table(table.from_pylist(records, schema=table.schema), path)
    result = servecast.run("replay", path, "-o", tmp_path / "runs", *servecast.settings(load__sessions="follow"))
    assert "row 3: after_request_id names a request that several rows have as their id" in result.output


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["load.kind=closed"], "load.kind = closed: needs load.concurrency"),
        (["load.concurrency=4"], "load.concurrency = 4: needs load.kind = closed"),
        (["load.kind=closed", "load.concurrency=4", "load.rate_scale=2"], "load.rate_scale = 2: scales logged"),
        (["load.kind=closed", "load.concurrency=4", "load.sessions=follow"], "load.sessions = follow: needs load.kind"),
        (["load.kind=closed", "load.concurrency=0"], "load.concurrency = 0: must be at least 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides, words):
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        config.load(overrides=overrides)
