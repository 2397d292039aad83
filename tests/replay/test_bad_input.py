"""Input that cannot be used, through the commands: exit status 2, one message that names it, nothing left behind."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import schema
from tests import builders
from tests.ingest import build
from tests.replay import servecast

LINE = "0us 32>2, 5us 40>3, 9us 50>2"
CANARY = "CANARY-91ab"


def refuse(root, *arguments) -> str:
    """Give a replay that must be refused without a trace; return its message."""
    before = sorted(root.rglob("*")) if root.exists() else []
    result = servecast.run("replay", *arguments, "-o", root)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert (sorted(root.rglob("*")) if root.exists() else []) == before
    assert CANARY not in result.stderr
    return result.stderr


def edited(path, **columns):
    """Write a trace with some columns replaced, still as the schema wants it."""
    table = builders.trace(LINE).table()
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    pq.write_table(table, path)
    return path


def test_missing_file(tmp_path):
    build.write(tmp_path / "trace.csv", build.AZURE)
    message = refuse(tmp_path / "runs", tmp_path / "trase.csv")
    assert message == f"servecast: {tmp_path}/trase.csv: no such file; did you mean trace.csv?\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "log: is empty (0 bytes)"),
        (b" \n\n", "log: is empty (nothing but blanks)"),
        (build.AZURE.split("\n")[0].encode(), "log: has a header and no rows"),
        (b"a,b\n1,2\n", "CSV with the columns a, b. Looked for: azure_llm_trace"),
        (b"PAR1 and then nothing", "is no whole Parquet file"),
        (f"{CANARY} is what a user wrote".encode(), "text whose first line has"),
    ],
)
def test_files_of_no_use(tmp_path, content, message):
    path = build.write(tmp_path / "log", content)
    assert message in refuse(tmp_path / "runs", path)
    ingested = servecast.run("ingest", path, "-o", tmp_path / "out" / "t.parquet")
    assert (ingested.exit_code, ingested.stdout) == (2, "")
    assert message in ingested.stderr
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_no_trace(tmp_path):
    (tmp_path / "logs").mkdir()
    assert "logs: a folder without logs: no file in it has content" in refuse(tmp_path / "runs", tmp_path / "logs")


def test_wrong_columns(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"arrival_us": [0], "input_token": [5], "output_tokens": [5]}).write_parquet(path)
    assert "column input_token is unknown; did you mean input_tokens?" in refuse(tmp_path / "runs", path)
    pl.DataFrame({"arrival_us": [0], "output_tokens": [5]}).write_parquet(path)
    assert "columns missing: input_tokens" in refuse(tmp_path / "runs", path)


def test_records_that_cannot_be_used_are_set_aside_and_the_rest_is_replayed(tmp_path):
    """NaN, negative and absurd counts are rejected, stamps out of order sorted, a repeated record left out."""
    path = tmp_path / "t.parquet"
    pl.DataFrame(
        {
            "request_id": ["a", "b", "c", "d", "e", "a", "f"],
            "arrival_us": [900, 100, 200, 300, 400, 900, 500],
            "input_tokens": [32.0, float("nan"), -5.0, 20_000_000.0, 33.0, 32.0, 600.0],
            "output_tokens": [2, 2, 2, 2, 3, 2, 2],
        }
    ).write_parquet(path)
    result = servecast.run("replay", path, "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 0, result.output
    assert "7 read, 3 valid, 4 rejected" in result.stdout
    (folder,) = [p for p in (tmp_path / "runs").iterdir() if p.name != "traces"]
    rows = servecast.requests(folder).select("request_id", "arrival_ns", "input_tokens", "outcome").rows()
    assert rows == [
        ("e", 0, 33, "finished"),
        ("f", 100_000, 600, "rejected"),
        ("a", 500_000, 32, "finished"),
    ]
    assert servecast.facts(folder)["trace"]["rejected_records"] == 4
    (rejects,) = (tmp_path / "runs").rglob("trace.rejects.parquet")
    reasons = pl.read_parquet(rejects).select("source_row", "reason").rows()
    assert reasons == [(2, "bad_row"), (3, "negative_tokens"), (4, "bad_row"), (6, "duplicate")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arrival_us": [0, 9, 5]}, "row 3: arrival_us is below that of the row before"),
        ({"arrival_us": [-7, 0, 5]}, "row 1: arrival_us is below 0"),
        ({"arrival_us": [0, 5, 2**62]}, "row 3: arrival_us is above"),
        ({"input_tokens": [32, -40, 50]}, "row 2: input_tokens is below 1"),
        ({"output_tokens": [2, 3, 0]}, "row 3: output_tokens is below 1"),
        ({"input_tokens": [32, 40, None]}, "row 3: input_tokens is missing"),
        ({"output_tokens": [2, 2_000_000_000, 2]}, "row 2: output_tokens is above 10,000,000"),
        ({"prefix_block_tokens": [16, 0, 16]}, "row 2: prefix_block_tokens is below 1"),
        ({"prefix_block_tokens": [16, 8, 16]}, "row 2: prefix_hashes has not one entry per prefix_block_tokens"),
        ({"prefix_tokens": [34, 43, 5000]}, "row 3: prefix_tokens is above input_tokens + output_tokens"),
        ({"prefix_tokens": [34, None, 52]}, "row 2: prefix_hashes without prefix_tokens"),
        ({"prefix_hashes": [[1, 2, 3], [4, None, 5], [1, 2, 3, 4]]}, "row 2: prefix_hashes holds a null"),
    ],
)
def test_a_trace_that_ingest_would_not_write(tmp_path, columns, message):
    """It has the columns, types and metadata of a trace, so it is replayed as it stands, or not at all."""
    path = edited(tmp_path / "t.parquet", **columns)
    shown = refuse(tmp_path / "runs", path, *servecast.settings())
    assert f"t.parquet: {message}" in shown
    assert "servecast ingest" in shown
    # What a row that is not replayed states does not matter, its place in time does.
    if "arrival_us" not in columns and "prefix_hashes" not in columns:
        path = edited(tmp_path / "t.parquet", replayable=[False] * 3, **columns)
        assert set(servecast.requests(servecast.replay(path, tmp_path / "runs"))["outcome"]) == {"not_replayed"}


def test_rows_out_of_order_across_batches(tmp_path):
    """The source reads 16,384 rows at a time; the first of the second batch is earlier than the last of the first."""
    count = 16_385
    table = pa.concat_tables([builders.trace("0us 32>1 covered=0").table()] * count)
    arrivals = np.append(np.full(count - 1, 10), 9)
    place = table.schema.get_field_index("arrival_us")
    table = table.set_column(place, table.schema.field(place), pa.array(arrivals))
    pq.write_table(table, tmp_path / "t.parquet")
    message = refuse(tmp_path / "runs", tmp_path / "t.parquet", *servecast.settings())
    assert f"row {count}: arrival_us is below that of the row before" in message


def test_a_damaged_trace(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(builders.trace("0us 32>2 times=3000").table(), path, compression="none")
    data = bytearray(path.read_bytes())
    data[4:4000] = bytes(3996)
    path.write_bytes(data)
    assert "t.parquet: cannot be read to its end" in refuse(tmp_path / "runs", path, *servecast.settings())


def test_no_row_is_replayable(tmp_path):
    path = servecast.trace(tmp_path / "t.parquet", "0us 32>2 status=error, 5us 40>3 status=throttled")
    folder = servecast.replay(path, tmp_path / "runs")
    facts = servecast.facts(folder)
    assert facts["counts"] == {"outcomes": {"not_replayed": 2}, "steps": 0, "preemptions": 0, "stalled": False}
    assert "no request of the trace can be replayed" in facts["warnings"]
    assert pq.read_table(folder / "steps/replica=0/part-00000.parquet").num_rows == 0


@pytest.mark.summary
def test_the_summary_of_nothing_states_no_figures(tmp_path):
    path = servecast.trace(tmp_path / "t.parquet", "0us 32>2 status=error")
    result = servecast.run("replay", path, "-o", tmp_path / "runs", "--report", "--require-slo", "0.5")
    assert result.exit_code == 1, result.output
    assert "1 not replayed" in result.stdout
    assert "SLO missed: unknown of the requests keep it" in result.stderr


def test_no_rows(tmp_path):
    pq.write_table(builders.trace(LINE).table().slice(0, 0), tmp_path / "t.parquet")
    assert "t.parquet: has no requests" in refuse(tmp_path / "runs", tmp_path / "t.parquet", *servecast.settings())


def test_no_row_meets_the_condition(tmp_path):
    path = servecast.trace(tmp_path / "t.parquet", LINE)
    message = refuse(tmp_path / "runs", path, "--where", "input_tokens > 1000", *servecast.settings())
    assert "t.parquet: has no requests that meet input_tokens > 1000" in message


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("modle = 'm'", "column modle is unknown; did you mean model?"),
        ("model =", "is no SQL condition"),
        ("input_tokens", "is no condition on the columns of a row"),
        ("1 = 1", "is no condition on the columns of a row"),
        ("model > 5", "compares values of different kinds"),
        ("arrival_time > '2026-01-01'", "the trace has a relative clock, arrival_time is empty; use arrival_us"),
        ("", "is no SQL condition"),
    ],
)
def test_conditions_that_cannot_be_used(tmp_path, where, message):
    path = servecast.trace(tmp_path / "t.parquet", LINE)
    assert message in refuse(tmp_path / "runs", path, "--where", where, *servecast.settings())


def test_a_condition_selects(tmp_path):
    text = (
        "0us 32>2 tenant=a class=chat model=m, 5us 40>3 tenant=b class=chat model=m, "
        "9us 50>2 tenant=a class=batch model=n"
    )
    path = servecast.trace(tmp_path / "t.parquet", text)
    for where, kept in {
        "tenant = 'a'": [0, 2],
        "class = 'chat' AND model = 'm'": [0, 1],
        "arrival_us BETWEEN 5 AND 9": [1, 2],
        "tenant != 'a' OR class IN ('batch')": [1, 2],
    }.items():
        folder = servecast.replay(path, tmp_path / "runs", "--where", where)
        rows = servecast.requests(folder)
        assert rows["request_id"].to_list() == [f"trace:{row}" for row in kept]
        assert servecast.facts(folder)["trace"]["where"] == where


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "engine.max_num_seq=4"], "engine.max_num_seq: unknown setting; did you mean engine.max_num_seqs"),
        (["--set", "max_num_seqs=4"], "max_num_seqs: unknown section; did you mean engine.max_num_seqs?"),
        (["--set", "engine.block_size=0"], "engine.block_size = 0: must be at least 1"),
        (["--set", "engine.block_size"], "must be key=value"),
        (["--set", "load.timeout_s=nan"], "load.timeout_s"),
        (["--set", "load.timeout_s=1e300"], "load.timeout_s = 1e+300: must be at most"),
        (["--set", "load.rate_scale=1e-300"], "load.rate_scale = 1e-300: stretches the trace to more than"),
        (["--set", "load.rate_scale=0"], "load.rate_scale = 0: must be more than 0"),
        (["--set", "hardware.gpu=h10"], 'hardware.gpu = "h10": not in the catalogue; did you mean h100'),
        (["--set", "hardware.model=llama-9"], "Known ids:"),
        (["--set", "engine.tensor_parallel_size=3"], "does not divide the 32 attention heads"),
        (["--set", "engine.tensor_parallel_size=3"], "use one of 1, 2, 4, 8, 16 or 32"),
        (["--set", "hardware.model=llama-3.1-70b"], "does not fit on 1 x h100-80gb-sxm"),
        (
            ["--set", "hardware.model=llama-3.1-70b"],
            "What would fit: engine.tensor_parallel_size = 4, 8 or 16; or hardware.weight_dtype = w4a16; or",
        ),
        (["--engine-args", "vllm serve m --max-num-seqs many"], "--engine-args: --max-num-seqs many"),
        (["--engine-args", "ls -l"], "must be a line such as `vllm serve MODEL"),
        (["--read-option", "speed"], "speed: must be key=value"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path, options, message):
    path = servecast.trace(tmp_path / "t.parquet", LINE)
    assert message in refuse(tmp_path / "runs", path, *options)


def test_configuration_files_that_cannot_be_used(tmp_path):
    path = servecast.trace(tmp_path / "t.parquet", LINE)
    config = tmp_path / "replay.toml"
    assert "replay.toml: no such file" in refuse(tmp_path / "runs", path, "--config", config)
    config.write_text("[engine\nblock_size = 16\n")
    assert "replay.toml: not valid TOML" in refuse(tmp_path / "runs", path, "--config", config)
    config.write_text("[engin]\nblock_size = 16\n")
    assert "engin.block_size: unknown section; did you mean engine?" in refuse(
        tmp_path / "runs", path, "--config", config
    )
    config.write_bytes(b"\xff\xfe\x00")
    assert "replay.toml: cannot be read" in refuse(tmp_path / "runs", path, "--config", config)


@pytest.mark.summary
def test_arguments_that_are_not_modelled_are_named(tmp_path):
    path = servecast.trace(tmp_path / "t.parquet", LINE)
    line = (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 8 --max-model-len 512 --api-key sk-CANARY-91ab "
        '--speculative-config \'{"method": "ngram"}\' --enable-lora'
    )
    result = servecast.run("replay", path, "-o", tmp_path / "runs", "--engine-args", line)
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "runs").iterdir()
    facts = servecast.facts(folder)
    assert facts["config"]["engine"]["max_num_seqs"] == 8
    for name in ("--speculative-config is not modelled", "--enable-lora is not modelled"):
        assert name in result.stderr
        assert any(name in text for text in facts["unmodelled"])
    assert CANARY not in result.output + (folder / "run.json").read_text()


def test_several_models_are_named_and_can_be_chosen(tmp_path):
    text = "0us 32>2 model=m, 5us 40>3 model=m, 9us 50>2 model=n, 9us 50>2"
    path = servecast.trace(tmp_path / "t.parquet", text)
    facts = servecast.facts(servecast.replay(path, tmp_path / "runs"))
    assert facts["trace"]["models"] == {"m": 0.5, "(not stated)": 0.25, "n": 0.25}
    (warning,) = facts["warnings"]
    assert "3 models (m 50.0%, (not stated) 25.0%, n 25.0%); all were replayed as the configured one" in warning
    assert "--where" in warning
    chosen = servecast.facts(servecast.replay(path, tmp_path / "runs", "--where", "model = 'm'"))
    assert chosen["trace"]["models"] == {"m": 1.0}
    assert chosen["warnings"] == []


def test_the_table_of_checks_speaks_of_columns_that_exist():
    from pipeline.replay import checks

    names = {column.name for column in schema.TRACE.columns} | {"before_us"}
    for what, bad in (*checks.ARRIVALS, *checks.COUNTS):
        assert set(bad.meta.root_names()) <= names, what
