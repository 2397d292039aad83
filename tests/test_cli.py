"""The commands: what they print, how they end, and what they never show."""

import json
import re
import subprocess

import click
import pytest

from pipeline import cli, config
from tests.replay import servecast

CANARY = "CANARY-5d07"
LINE = "0us 100>20 tenant=a class=chat times=6, 50ms 30>5 tenant=b prefix=p times=3, 90ms 600>5 tenant=b"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trace, its run with a real summary, and a run that differs."""
    place = tmp_path_factory.mktemp("cli")
    trace = servecast.trace(place / "trace.parquet", LINE)
    result = servecast.run("replay", trace, "-o", place / "runs", *servecast.settings())
    assert result.exit_code == 0, result.output
    other = servecast.replay(trace, place / "runs", engine__max_num_seqs=2)
    (run,) = (path for path in (place / "runs").iterdir() if path != other)
    return {"trace": trace, "run": run, "other": other, "shown": result.stdout, "root": place}


def test_help_lists_every_command():
    result = servecast.run("--help")
    assert result.exit_code == 0
    for name in ("ingest", "replay", "report", "sql", "diff", "synth", "settings"):
        assert re.search(rf"^  {name} ", result.stdout, re.MULTILINE), name
    assert "3 internal fault" in result.stdout


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_every_command_and_option_is_explained(name):
    command = cli.main.commands[name]
    assert command.get_short_help_str()
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, f"{name} {parameter.opts}"
    assert servecast.run(name, "--help").exit_code == 0


def test_version():
    from pipeline import __version__

    assert servecast.run("--version").stdout == f"servecast, version {__version__}\n"


def test_settings_are_all_listed():
    text = servecast.run("settings").stdout
    for key, default, _ in config.describe_fields():
        assert re.search(rf"^{re.escape(key)} +{re.escape(default)}", text, re.MULTILINE), key


def test_the_summary_of_a_run(made):
    """Figures are the answers' business; here it matters that they are there, with the run's folder at the end."""
    for word in ("TTFT", "TPOT", "ITL", "E2E", "queue time", "throughput", "KV memory", "9 finished", "1 rejected"):
        assert word in made["shown"]
    assert made["shown"].rstrip().endswith(str(made["run"]))
    assert max(map(len, made["shown"].splitlines()[:-1])) <= 80


def test_a_run_made_before_says_so(made):
    result = servecast.run("replay", made["trace"], "-o", made["root"] / "runs", *servecast.settings())
    assert result.exit_code == 0
    assert result.stdout.startswith(f"This run was made before: {made['run']}\n")
    assert made["shown"].strip() in result.stdout


@pytest.mark.parametrize(("share", "status"), [("0.5", 0), ("1", 1)])
def test_a_required_slo(made, share, status):
    """Nine of ten requests can keep the SLO; the rejected one does not."""
    arguments = ["-o", made["root"] / "runs", *servecast.settings(), "--require-slo", share]
    result = servecast.run("replay", made["trace"], *arguments)
    assert result.exit_code == status, result.output
    assert ("SLO missed" in result.stderr) == (status == 1)


def test_diff_of_a_run_and_itself(made):
    result = servecast.run("diff", made["run"], made["run"])
    assert result.exit_code == 0
    assert "no differences" in result.stdout


def test_diff_of_two_runs(made):
    result = servecast.run("diff", made["run"], made["other"])
    assert result.exit_code == 1
    assert re.search(r"engine\.max_num_seqs +8 +2", result.stdout)
    assert "ttft_p95_ms" in result.stdout


def test_diff_of_what_is_no_run(made):
    result = servecast.run("diff", made["run"], made["root"])
    assert result.exit_code == 2
    assert "has no run.json" in result.stderr


def test_sql_on_a_run_and_on_two(made):
    result = servecast.run("sql", made["run"], "SELECT COUNT(*) AS n FROM requests", "--format", "csv")
    assert (result.exit_code, result.stdout) == (0, "n\n10\n")
    statement = "SELECT COUNT(DISTINCT run_id) AS runs, COUNT(*) AS n FROM requests"
    result = servecast.run("sql", made["run"], made["other"], statement, "--format", "json")
    assert json.loads(result.stdout) == [{"runs": 2, "n": 20}]


def test_sql_takes_the_newest_run(made, monkeypatch):
    monkeypatch.chdir(made["root"])
    result = servecast.run("sql", "SELECT run_id FROM runs", "--format", "csv")
    assert result.stdout.split() == ["run_id", made["other"].name]


def test_sql_into_a_file(made, tmp_path):
    result = servecast.run("sql", made["run"], "FROM latency", "--format", "csv", "-o", tmp_path / "latency.csv")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / "latency.csv").read_text().startswith("run_id,metric,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELEC 1"], 'syntax error at or near "SELEC"'),
        (["FROM latencies"], "latencies"),
        (["runs/0123456789abcdef", "FROM latency"], "runs/0123456789abcdef: is no run folder; name runs first"),
        (["runs/0123456789abcdef"], "runs/0123456789abcdef: no such run folder"),
        (["FROM latency", "--format", "xml"], "xml"),
    ],
)
def test_sql_that_cannot_be_answered(made, monkeypatch, arguments, message):
    monkeypatch.chdir(made["root"])
    result = servecast.run("sql", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_the_prompt_reads_statements_from_a_pipe(made):
    process = servecast.start("sql", made["run"], stdin=subprocess.PIPE)
    out, _ = process.communicate("SELECT 6 * 7 AS answer;\n", timeout=120)
    assert process.returncode == 0
    assert "42" in out


def test_output_into_a_pipe_that_closes(made):
    """As `servecast sql ... | head -n 1` does."""
    statement = "SELECT range AS n FROM range(2000000)"
    process = servecast.start("sql", made["run"], statement, "--format", "csv")
    assert process.stdout.readline() == "n\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(timeout=120)


def test_what_the_system_refuses_is_said_in_its_words(made, monkeypatch):
    from pipeline.query import session

    for error, message in (
        (OSError(28, "No space left on device", "/tmp/x"), "servecast: /tmp/x: No space left on device\n"),
        (OSError("Too many open files (os error 24)"), "servecast: Too many open files\n"),
    ):
        monkeypatch.setattr(session, "open", lambda *_, error=error: (_ for _ in ()).throw(error))
        result = servecast.run("sql", made["run"], "SELECT 1")
        assert (result.exit_code, result.stderr) == (2, message)


def test_a_report_of_two_runs(made, tmp_path):
    result = servecast.run("report", made["run"], made["other"], "-o", tmp_path)
    assert result.exit_code == 0, result.output
    names = [f"{made[run].name}/report.{kind}" for run in ("run", "other") for kind in ("html", "md")]
    assert result.stdout.split() == [str(tmp_path / name) for name in ("index.html", "index.md", *names)]
    for run in ("run", "other"):
        assert made[run].name in (tmp_path / made[run].name / "report.html").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written(made, tmp_path):
    (tmp_path / "out").write_text("")
    result = servecast.run("report", made["run"], "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert str(tmp_path / "out") in result.stderr
    assert "internal fault" not in result.stderr


def test_a_report_of_what_is_no_run(tmp_path):
    result = servecast.run("report", tmp_path / "nothing")
    assert result.exit_code == 2
    assert "nothing: no such run folder" in result.stderr


def test_ingest_writes_where_it_is_told_and_shows_what_it_found(made, tmp_path):
    result = servecast.run("ingest", made["trace"], "-o", tmp_path / "out.parquet")
    assert result.exit_code == 0, result.output
    assert "10 read, 10 valid, 0 rejected" in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"out.parquet", "out.rejects.parquet"}


def test_synth_gives_the_same_bytes(tmp_path):
    for name in "ab":
        result = servecast.run(
            "synth", tmp_path / f"{name}.parquet", "--requests", "50", "--seed", "5", "--mix", "chat=1"
        )
        assert result.exit_code == 0, result.output
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"],
        ["replay", "x", "--nothing"],
        ["nothing"],
        ["replay", "x", "--require-slo", "2"],
        ["synth", "x", "--seed", "-1"],
    ],
)
def test_wrong_arguments(arguments):
    result = servecast.run(*arguments)
    assert result.exit_code == 2
    assert "Usage: servecast" in result.stderr


def test_an_internal_fault_shows_no_text_of_a_log(made, tmp_path, monkeypatch):
    from pipeline.ingest import importer

    def fail(*_, **__):
        raise ValueError(f"cannot parse {CANARY}: what a user wrote")

    monkeypatch.setattr(importer, "load", fail)
    result = servecast.run("ingest", made["trace"], "-o", tmp_path / "t.parquet")
    assert result.exit_code == 3
    assert CANARY not in result.output
    assert re.fullmatch(
        r"servecast: internal fault: ValueError at test_cli\.py:\d+; SERVECAST_DEBUG=1 shows all\n", result.stderr
    )
    monkeypatch.setenv("SERVECAST_DEBUG", "1")
    assert isinstance(servecast.run("ingest", made["trace"], "-o", tmp_path / "t.parquet").exception, ValueError)


def test_a_replay_that_stops_for_no_reason_is_an_internal_fault(made, tmp_path, monkeypatch):
    from pipeline.replay import state

    monkeypatch.setattr(state.State, "run", lambda self: 99)
    result = servecast.run("replay", made["trace"], "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 3
    assert "the engine stopped for reason 99" in result.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_out_of_memory_is_said_in_words(made, tmp_path, monkeypatch):
    from pipeline.replay import driver

    def no_room(*_, **__):
        raise MemoryError

    monkeypatch.setattr(driver, "State", no_room)
    result = servecast.run("replay", made["trace"], "-o", tmp_path / "runs", *servecast.settings())
    assert result.exit_code == 2
    assert "servecast: out of memory" in result.stderr
