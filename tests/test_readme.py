"""What the front page shows is what the program does: its questions, settings and commands, run on the sample."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pipeline import cli, config, engine_args
from pipeline.resources import folder
from pipeline.sweep import grid

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def shell_commands() -> list[list[str]]:
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory) -> tuple[Path, str]:
    """A run of the sample with default settings, and what the command printed."""
    out = tmp_path_factory.mktemp("runs")
    result = CliRunner().invoke(cli.main, ["replay", str(folder("traces") / "sample.parquet"), "-o", str(out)])
    assert result.exit_code == 0, result.output
    [run] = [path.parent for path in out.glob("*/run.json")]
    return run, result.stdout


def test_there_are_five_questions():
    assert len(blocks("sql")) == 5


@pytest.mark.parametrize("number", range(len(blocks("sql"))))
def test_a_question_returns_what_the_page_shows(replayed, number):
    shown = PAGE.split(blocks("sql")[number])[1].split("```text\n")[1].split("```")[0].splitlines()
    result = CliRunner().invoke(cli.main, ["sql", str(replayed[0]), blocks("sql")[number]])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert len(rows) > 1
    for line in shown:
        assert line == "..." or line.split() in rows, f"README shows {line!r}, the program prints:\n{result.stdout}"


def test_the_summary_is_what_replay_prints(replayed):
    [shown] = [block for block in blocks("text") if block.startswith("At ")]
    *printed, run = replayed[1].strip().splitlines()
    assert shown.splitlines()[:-1] == printed, "paste the summary of `make replay` into README.md anew"
    assert run.startswith("run ")


def test_the_settings_file_has_every_section_and_loads(tmp_path):
    _, text = blocks("toml")
    path = tmp_path / "replay.toml"
    path.write_text(text)
    loaded = config.load(path)
    assert set(tomllib.loads(text)) == {name.split(".")[0] for name, _, _ in config.describe_fields()}
    assert loaded.slo.targets("documents").ttft_ms == 3000
    assert loaded.slo.targets("batch").ttft_ms is None


def test_the_grid_makes_the_points_that_the_page_speaks_of(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(blocks("toml")[0])
    found = grid.load(path)
    assert len(found.points) == 6
    assert all(point.config for point in found.points)


def test_the_engine_line_is_understood():
    [line] = [words[words.index("--engine-args") + 1] for words in shell_commands() if "--engine-args" in words]
    parsed = engine_args.parse(line)
    assert parsed.settings["engine"] == {"max_num_seqs": 128, "max_model_len": 32768}
    assert ["--enable-lora" in text for text in parsed.unmodelled] == [True]


def test_commands_and_options_exist():
    seen = 0
    for words in shell_commands():
        where = [i for i, word in enumerate(words[:-1]) if Path(word).name == "servecast" and words[i + 1] != "&&"]
        for place in where:
            verb, *rest = words[place + 1 :]
            command = cli.main.commands[verb]
            if isinstance(command, click.Group) and rest and rest[0] in command.commands:
                command = command.commands[rest[0]]
            known = {name for parameter in command.params for name in parameter.opts}
            known |= set(command.get_help_option_names(click.Context(command)))
            assert {word for word in rest if word.startswith("-")} <= known
            seen += 1
    assert seen > 5


def test_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = {words[1] for words in shell_commands() if words[:1] == ["make"] and len(words) > 1}
    targets |= set(re.findall(r"`make ([a-z]+)`", PAGE))
    assert targets >= {"replay", "test", "lint", "sql"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
