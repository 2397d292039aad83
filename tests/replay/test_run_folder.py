"""What a run leaves: tables as the schema says, a manifest that agrees with them, the same bytes every time."""

import json
import shutil
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline import schema
from pipeline.query import session
from pipeline.replay import driver, state
from tests.replay import servecast
from tests.shared import CHECKOUT

LINE = (
    "0us 100>60 tenant=a class=chat prefix=s:64 times=12, 3ms 300>80 tenant=b class=docs times=6, "
    "90ms 40>5 tenant=a class=chat cancelled times=3, 200ms 600>2, 300ms 64>9 status=error, 2s 90>420 tenant=c times=4"
)
# A roomy engine, tight ones that preempt, impatient clients, a full queue, one that stalls.
RUNS = {
    "roomy": {"engine__num_gpu_blocks": 600},
    "preempting": {},
    "preempting_sync": {"engine__async_scheduling": "false"},
    "by_priority": {"engine__scheduling_policy": "priority"},
    "no_cache": {"engine__enable_prefix_caching": "false"},
    "small_blocks": {"engine__block_size": 4, "engine__num_gpu_blocks": 200},
    "impatient": {"load__timeout_s": 1.5},
    "full": {"load__queue_limit": 2, "load__rate_scale": 3},
    "stalled": {"engine__num_gpu_blocks": 32},
    "fleet": {"fleet__replicas": 3},
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return servecast.trace(tmp_path_factory.mktemp("trace") / "trace.parquet", LINE)


@pytest.fixture(scope="module")
def runs(trace, tmp_path_factory):
    """Every run of RUNS by its name, with decisions as well."""
    from pipeline import report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "show_summary", lambda run, console: console.file.write(f"run {run}\n"))
        root = tmp_path_factory.mktemp("runs")
        return {name: servecast.replay(trace, root, "--decisions", **changes) for name, changes in RUNS.items()}


@pytest.mark.parametrize("name", RUNS)
def test_tables_are_as_the_schema_says(runs, name):
    files = {
        "requests.parquet": schema.REQUESTS,
        **{f"steps/replica={r}/part-00000.parquet": schema.STEPS for r in range(3 if name == "fleet" else 1)},
        "gaps.parquet": schema.GAPS,
        "decisions.parquet": schema.DECISIONS,
    }
    assert set(servecast.content(runs[name])) == {*files, "run.json", "bands.json"}
    for file, table in files.items():
        path, wanted = runs[name] / file, schema.arrow_schema(table)
        stored = pq.read_schema(path)
        assert stored.equals(wanted), file
        assert {k: v for k, v in stored.metadata.items() if k != b"ARROW:schema"} == wanted.metadata
        rows = pq.ParquetFile(path).read()
        for column in table.columns:
            assert stored.field(column.name).metadata[b"doc"].decode() == column.doc
            assert column.nullable or rows[column.name].null_count == 0, (file, column.name)


@pytest.mark.parametrize("name", RUNS)
def test_the_manifest_agrees_with_the_tables(runs, name):
    folder = runs[name]
    facts = servecast.facts(folder)
    rows, counts = servecast.requests(folder), facts["counts"]
    assert facts["run_id"] == folder.name
    assert facts["version"] == "run/2"
    assert rows["request"].to_list() == list(range(len(rows)))
    assert facts["trace"]["rows"] == len(rows) == 27
    assert facts["trace"]["replayed"] == 26
    assert counts["outcomes"] == dict(rows["outcome"].value_counts().iter_rows())
    assert counts["preemptions"] == rows["preemptions"].sum()
    steps = pq.read_table(folder / "steps")
    assert counts["steps"] == len(steps)
    assert counts["preemptions"] == pc.sum(steps["preempted"]).as_py()
    decisions = pq.read_table(folder / "decisions.parquet")
    assert len(decisions) == pc.sum(steps["scheduled"]).as_py() + counts["preemptions"]
    assert pc.sum(decisions["scheduled_tokens"]).as_py() == rows["computed_tokens"].sum()
    resolved = facts["config"]["engine"]
    assert None not in resolved.values()
    assert facts["hardware"]["num_gpu_blocks"] == resolved["num_gpu_blocks"]
    timing = json.loads((folder / "timing.json").read_text())
    assert timing["replay_s"] > 0


def test_the_runs_are_what_they_are_meant_to_be(runs):
    counts = {name: servecast.facts(folder)["counts"] for name, folder in runs.items()}
    assert counts["roomy"]["preemptions"] == 0
    for name in ("preempting", "preempting_sync", "by_priority", "no_cache", "small_blocks"):
        assert counts[name]["preemptions"] > 0, name
    assert counts["impatient"]["outcomes"]["timed_out"] > 0
    assert counts["full"]["outcomes"]["queue_full"] > 0
    assert counts["stalled"]["stalled"] is True
    assert set(servecast.requests(runs["fleet"])["replica"].drop_nulls()) == {0, 1, 2}
    assert len(pq.read_table(runs["preempting"] / "gaps.parquet")) > 0


def test_every_check_passes_on_every_run(runs):
    assert session.failed_checks(session.open(runs.values())) == {}


def test_the_same_run_gives_the_same_bytes(trace, tmp_path):
    for changes in (RUNS["preempting"], RUNS["impatient"], RUNS["fleet"]):
        one, two = (servecast.replay(trace, tmp_path / root, "--decisions", **changes) for root in "ab")
        assert one.name == two.name
        assert servecast.content(one) == servecast.content(two)


@pytest.mark.parametrize("name", ["preempting", "fleet"])
def test_sizes_of_buffers_do_not_show(name, trace, tmp_path, runs, monkeypatch):
    """With 7 rows of steps, one of gaps, batches of 5 trace rows: the same row groups, the same bytes."""
    from pipeline.replay import source

    class Small(state.State):
        def __init__(self, *arguments):
            super().__init__(*arguments, step_rows=7, gap_rows=1, decision_rows=1, window=1)

    monkeypatch.setattr(driver, "State", Small)
    monkeypatch.setattr(source, "BATCH_ROWS", 5)
    again = servecast.replay(trace, tmp_path, "--decisions", **RUNS[name])
    assert servecast.content(again) == servecast.content(runs[name])


def test_long_tables_are_cut_into_groups_and_parts_of_fixed_size(trace, tmp_path, monkeypatch):
    from pipeline.replay import sink

    whole = servecast.replay(trace, tmp_path / "whole")
    monkeypatch.setattr(sink, "GROUP_ROWS", 64)
    monkeypatch.setattr(sink, "PART_ROWS", 192)
    cut = servecast.replay(trace, tmp_path / "cut")
    parts = sorted((cut / "steps" / "replica=0").iterdir())
    assert [path.name for path in parts] == [f"part-{n:05}.parquet" for n in range(len(parts))]
    assert len(parts) > 2
    for path in parts[:-1]:
        metadata = pq.read_metadata(path)
        assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [64, 64, 64]
    one, several = (pl.read_parquet(folder / "steps" / "replica=0" / "*.parquet") for folder in (whole, cut))
    assert one.equals(several)
    assert session.failed_checks(session.open([cut])) == {}


def test_steps_that_fill_the_last_part_leave_no_empty_one(tmp_path):
    from pipeline.replay import sink

    for rows in (0, 3, 4, 8):
        folder = tmp_path / str(rows)
        writer = sink.TableWriter(schema.GAPS, lambda part, folder=folder: folder / f"{part}.parquet", part_rows=4)
        table = pa.table({name: pa.array(range(rows)) for name in writer.schema.names}).cast(writer.schema)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sink, "GROUP_ROWS", 2)
            for start in range(0, rows, 3):
                writer.write(table.slice(start, 3))
            writer.close()
        lengths = [pq.read_metadata(folder / name).num_rows for name in sorted(p.name for p in folder.iterdir())]
        assert lengths == ([0] if rows == 0 else [min(4, rows - at) for at in range(0, rows, 4)])


def test_a_run_made_before_is_found_and_not_made_again(trace, tmp_path, monkeypatch):
    folder = servecast.replay(trace, tmp_path / "runs")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.setattr(driver, "State", None)  # nothing could run now
    renamed = shutil.copy(trace, tmp_path / "other name.parquet")
    for path in (trace, renamed):
        result = servecast.run("replay", path, "-o", tmp_path / "runs", *servecast.settings())
        assert result.exit_code == 0, result.output
        assert f"This run was made before: {folder}" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_what_makes_another_run(trace, tmp_path):
    def run_id(*more, path=trace, **changes):
        return servecast.replay(path, tmp_path / "runs", *more, **changes).name

    other = servecast.trace(tmp_path / "other.parquet", LINE.replace("100>60", "100>61"))
    ids = [
        run_id(),
        run_id(path=other),
        run_id("--where", "tenant = 'a'"),
        run_id("--decisions"),
        run_id(engine__max_num_seqs=7),
        run_id(load__timeout_s=9),
        run_id(load__rate_scale=1.5),
        run_id(slo__ttft_ms=500),
        run_id(slo__chat__ttft_ms=500),
        run_id("--engine-args", "vllm serve llama-3.1-8b --enable-lora"),
    ]
    assert len(set(ids)) == len(ids)
    assert run_id() == ids[0]


def test_the_same_settings_in_other_words_are_the_same_run(trace, tmp_path):
    config = tmp_path / "replay.toml"
    lines = "\n".join(f"{name.split('.')[1]} = {value}" for name, value in servecast.LITTLE.items())
    config.write_text(f'[hardware]\ngpu = "h100-80gb-sxm"\nmodel = "llama-3.1-8b"\n[engine]\n{lines}\n')
    line = (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --num-gpu-blocks-override 65 --max-model-len 512 "
        "--max-num-seqs 8 --max-num-batched-tokens 256"
    )
    first = servecast.replay(trace, tmp_path / "runs")
    for options in (
        ["--config", config],
        ["--engine-args", line],
        [*servecast.settings(), "--set", "hardware.gpu=H100", "--set", "hardware.weight_dtype=bfloat16"],
        [*servecast.settings(), "--set", "engine.block_size=16", "--set", "load.timeout_s=none"],
    ):
        result = servecast.run("replay", trace, "-o", tmp_path / "runs", *options)
        assert f"made before: {first}" in result.stdout, options


def test_a_log_is_read_once(tmp_path):
    from tests.ingest import build

    log = build.write(tmp_path / "log.csv", build.AZURE + "2024-05-12 00:00:01+00:00,50,6\nx,1,2\n")
    first = servecast.run("replay", log, "-o", tmp_path / "runs", *servecast.settings())
    assert first.exit_code == 0, first.output
    assert "azure_llm_trace" in first.stdout
    (trace,) = (tmp_path / "runs" / "traces").rglob("trace.parquet")
    stamp = trace.stat().st_mtime_ns
    renamed = log.rename(tmp_path / "renamed.csv")
    again = servecast.run("replay", renamed, "-o", tmp_path / "runs", *servecast.settings())
    assert "This run was made before" in again.stdout
    assert "azure_llm_trace" not in again.stdout
    assert trace.stat().st_mtime_ns == stamp
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "traces")
    facts = servecast.facts(folder)["trace"]
    assert (facts["path"], facts["rows"], facts["rejected_records"]) == ("log.csv", 2, 1)
    options = ["--read-option", "naive_timestamps_are=Europe/Berlin"]
    other = servecast.run("replay", renamed, "-o", tmp_path / "runs", *servecast.settings(), *options)
    assert other.exit_code == 0, other.output
    assert "made before" not in other.stdout


def test_a_compressed_log_spread_inside_its_ticks(tmp_path):
    import gzip

    from tests.ingest import build

    lines = build.MOONCAKE * 3 + build.MOONCAKE.replace('"timestamp": 0', '"timestamp": 3000') * 3
    log = build.write(tmp_path / "log", gzip.compress(lines.encode()))
    result = servecast.run("replay", log, "-o", tmp_path / "runs", "--spread-ticks", "7", *servecast.settings())
    assert result.exit_code == 0, result.output
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.name != "traces")
    assert servecast.facts(folder)["trace"]["spread_ticks"] == 7
    assert servecast.requests(folder)["arrival_ns"].n_unique() > 2


def test_order_of_hashes_and_threads_of_python_do_not_show(trace, tmp_path):
    """A process of its own, with another seed of str hashes, in a terminal's place."""
    folder = servecast.replay(trace, tmp_path / "a")
    import os

    environment = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": str(CHECKOUT), "TZ": "Asia/Tokyo"}
    process = servecast.start(
        "replay", trace, "-o", tmp_path / "b", *servecast.settings(), env=environment, stderr=subprocess.DEVNULL
    )
    assert servecast.finish(process)[0] == 0
    assert servecast.content(tmp_path / "b" / folder.name) == servecast.content(folder)
    assert sys.flags.hash_randomization
