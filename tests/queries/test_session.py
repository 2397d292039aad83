import json
import re
import shutil

import numpy as np
import pytest

from pipeline.errors import QueryError, RunError
from pipeline.query import catalog, session
from tests.queries import fake_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two made-up runs: one of 600 requests on one replica, one of 200 on two, in several step files."""
    home = tmp_path_factory.mktemp("runs")
    one = fake_run.write(home / "one", count=600, seed=1, num_gpu_blocks=501, timeout_s=2.0)
    two = fake_run.write(home / "two", count=200, seed=2, replicas=2, part_rows=300)
    return one, two


@pytest.fixture(scope="module")
def runs(folders):
    return session.open(folders, keep=True)


def test_answers_cover_all_runs_or_one(runs):
    assert session.answer(runs, "headline")["run_id"].to_list() == ["0000000000000001", "0000000000000002"]
    both = session.answer(runs, "latency")
    one = session.answer(runs, "latency", run="0000000000000002")
    assert one.rows() == both.filter(both["run_id"] == "0000000000000002").rows()


RUN_ANSWERS = [q.name for q in catalog.load().values() if q.kind == "answer" and "run" in {p.name for p in q.params}]


@pytest.mark.parametrize("name", RUN_ANSWERS)
def test_an_answer_about_one_run_does_not_depend_on_other_runs(runs, folders, name):
    alone = session.answer(session_of(folders[1]), name)
    together = session.answer(runs, name, run="0000000000000002")
    assert alone.rows() == together.rows()
    assert alone.schema == together.schema


_alone: dict = {}


def session_of(folder):
    """Open a run once for all tests of this file."""
    if folder not in _alone:
        _alone[folder] = session.open([folder], keep=True)
    return _alone[folder]


def test_percentiles_agree_with_numpy(runs, folders):
    requests = session.frame(runs, "FROM requests WHERE run_id = '0000000000000001' AND outcome <> 'not_replayed'")
    ttft_ms = (requests["first_token_ns"] - requests["arrival_ns"]).drop_nulls().to_numpy() / 1e6 + 20
    rows = session.answer(runs, "latency", run="0000000000000001").to_dicts()
    (row,) = [row for row in rows if row["metric"] == "ttft"]
    expected = np.quantile(ttft_ms, [0.5, 0.9, 0.95, 0.99])
    np.testing.assert_allclose([row["p50_ms"], row["p90_ms"], row["p95_ms"], row["p99_ms"]], expected, rtol=1e-12)
    assert row["samples"] == len(ttft_ms)


def test_all_token_gaps_are_in_the_pool(runs):
    statement = "SELECT SUM(output_tokens - 1) AS gaps, SUM(preemptions) AS n FROM requests WHERE output_tokens > 0"
    (row,) = session.frame(runs, statement).to_dicts()
    samples = [found["samples"] for found in session.answer(runs, "latency").to_dicts() if found["metric"] == "itl"]
    assert len(samples) == 2
    assert sum(samples) == row["gaps"]
    assert row["n"] > 0, "the made-up runs must have preemption gaps"


def test_series_add_up_to_the_totals(runs):
    (total,) = session.answer(runs, "throughput", run="0000000000000001").to_dicts()
    series = session.answer(runs, "load_over_time", run="0000000000000001", points=50)
    assert 25 < len(series) <= 51
    width_s = series["width_s"][0]
    assert series["arrivals_per_s"].sum() * width_s == pytest.approx(total["requests"])
    assert series["completed_per_s"].sum() * width_s == pytest.approx(total["completed"])
    (headline,) = session.answer(runs, "headline", run="0000000000000001").to_dicts()
    users = series["users_mean"].sum() * width_s / headline["duration_s"]
    assert users == pytest.approx(headline["users_mean"])
    assert series["users_max"].max() == headline["users_peak"]
    engine = session.answer(runs, "engine_over_time", run="0000000000000001", points=50)
    assert engine["kv_mean_share"].sum() * width_s / headline["duration_s"] == pytest.approx(headline["kv_mean_share"])
    assert engine["kv_max_share"].max() == headline["kv_peak_share"]
    assert engine["output_tokens_per_s"].sum() * width_s == pytest.approx(
        total["output_tokens_per_s"] * total["duration_s"]
    )


def test_settings_are_tables(runs):
    assert session.frame(runs, "SELECT class, ttft_ms, tpot_ms FROM slo WHERE run_id LIKE '%1'").rows() == [
        (None, 1000.0, 50.0),
        ("batch", 10_000.0, None),
    ]
    key = "SELECT value FROM run_config WHERE run_id LIKE '%1' AND key = "
    assert session.frame(runs, key + "'load.timeout_s'").rows() == [("2.0",)]
    assert session.frame(runs, key + "'slo.batch.ttft_ms'").rows() == [("10000.0",)]
    assert session.frame(runs, key + "'engine.policy'").rows() == [("vllm",)]
    assert session.frame(runs, "SELECT num_gpu_blocks, time_zone FROM runs LIMIT 1").rows() == [(501, "Europe/Berlin")]


def test_without_runs_every_answer_is_empty():
    connection = session.open()
    for name in session.answers():
        assert session.answer(connection, name).is_empty()
    assert session.failed_checks(connection) == {}


def test_tiny_runs_answer_everything(tmp_path):
    """Nothing in the trace, one request, and one that was rejected, so that nothing ran."""
    none = fake_run.write(tmp_path / "none", count=0, seed=10)
    one = fake_run.write(tmp_path / "one", count=1, seed=11)
    rows = [{"request": 0, "request_id": "r", "log_status": "ok", "outcome": "rejected", "arrival_ns": 0}]
    fake_run.write_tables(tmp_path / "idle", rows, {}, [], 10)
    fake_run.write_manifest(tmp_path / "idle", "a", fake_run.CONFIG, ["rejected"], {})
    connection = session.open([none, one, tmp_path / "idle"], keep=True)
    for name in session.answers():
        session.answer(connection, name)
    assert session.answer(connection, "headline")["requests"].to_list() == [0, 1, 1]
    (row,) = session.answer_rows(connection, "headline", run="a")
    assert (row["requests"], row["slo_share"], row["ttft_p95_ms"], row["kv_peak_share"]) == (1, 0.0, None, None)
    assert session.failed_checks(connection) == {}


def test_objects_are_there_when_a_statement_names_them():
    connection = session.open()
    views = "SELECT name FROM stored.loaded WHERE part = 'call'"
    session.run(connection, "FROM preemptions")
    assert connection.execute(views).fetchall() == [("preemptions",)]
    session.run(connection, "FROM kv_memory(run := 'a')")
    assert connection.execute(views).fetchall() == [("preemptions",)]
    with pytest.raises(QueryError, match='"latency"'):
        session.run(connection, "FROM latenzy")
    listed = {name for (name,) in session.rows(connection, "SHOW TABLES")}
    assert listed == {query.name for query in catalog.load().values() if query.is_view}


def test_the_quote_in_a_path_is_no_sql(tmp_path):
    folder = fake_run.write(tmp_path / "it's", count=5)
    assert len(session.answer(session.open([folder]), "headline")) == 1


def test_a_run_folder_that_cannot_be_read_is_named(tmp_path, folders):
    with pytest.raises(RunError, match="nowhere: no such run folder"):
        session.open([tmp_path / "nowhere"])
    unfinished = shutil.copytree(folders[1], tmp_path / "unfinished")
    (unfinished / "run.json").unlink()
    with pytest.raises(RunError, match=r"unfinished: has no run\.json"):
        session.open([unfinished])
    cut = shutil.copytree(folders[1], tmp_path / "cut")
    (cut / "gaps.parquet").unlink()
    with pytest.raises(RunError, match=r"cut: gaps\.parquet is missing"):
        session.open([cut])
    (cut / "gaps.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"gaps of .*cut cannot be read"):
        session.open([cut])
    (cut / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json: cannot be read"):
        session.open([cut])
    manifest = json.loads((folders[1] / "run.json").read_text()) | {"version": "run/9"}
    (cut / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match="version is 'run/9'; this servecast reads 'run/2'"):
        session.open([cut])


def test_a_run_is_loaded_once(folders):
    with pytest.raises(RunError, match="is the same run as"):
        session.open([folders[0], folders[0]])


def test_wrong_sql_is_an_error_with_its_place(runs):
    with pytest.raises(QueryError, match=re.compile(r'"p94_ms" not found.*LINE 2:\s+p94_ms', re.DOTALL)):
        session.frame(runs, "SELECT run_id,\n  p94_ms\nFROM latency")
    with pytest.raises(QueryError, match=re.compile(r"syntax error.*LINE 1", re.DOTALL)):
        session.frame(runs, "SELEC 1")
    with pytest.raises(QueryError, match="Could not convert"):
        session.frame(runs, "SELECT gpu::INTEGER FROM runs")
    with pytest.raises(QueryError, match="has no result"):
        session.frame(runs, "-- nothing")


def test_an_unknown_answer_or_parameter_is_an_error(runs):
    with pytest.raises(QueryError, match=r"no answer is named latencies; there are .*latency"):
        session.answer(runs, "latencies")
    with pytest.raises(QueryError, match="answer latency has no parameter point; it takes run"):
        session.answer(runs, "latency", point=3)
