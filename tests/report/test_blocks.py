import pytest

from pipeline.errors import ConfigError
from pipeline.query import catalog
from pipeline.report import blocks
from tests.report import samples

PAGE = """
title = "T"
[[section]]
id = "one"
heading = "One"
[[section.block]]
question = "Q?"
answer = "latency"
read = "R."
{line}
"""


def load(tmp_path, line):
    path = tmp_path / "page.toml"
    path.write_text(PAGE.format(line=line))
    return blocks.load(path)


def test_every_block_of_the_page_asks_an_answer_that_exists_with_parameters_it_takes():
    answers = {name: query for name, query in catalog.load().items() if query.kind == "answer"}
    for section in blocks.load().section:
        for block in section.block:
            assert block.answer in answers
            assert set(block.params) <= {parameter.name for parameter in answers[block.answer].params}
            assert block.question.endswith("?")
            assert block.read.endswith(".")


def test_samples_have_the_columns_of_the_answers():
    for name, rows in samples.answers().items():
        documented = {column.name for column in catalog.load()[name].columns}
        assert {column for row in rows for column in row} <= documented, name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "either a chart or a table"),
        ('table = "latency"\nchart = "queue"', "either a chart or a table"),
        ('chart = "pie"', "no chart of that name; there are arrivals, "),
        ('table = "pie"', "no table of that name; there are by_class, "),
        ('table = "latency"\ncolour = "red"', "section.0.block.0.colour: Extra inputs"),
        ('table = "latency"\nparams = { minutes = "few" }', "minutes = 'few': must be a number"),
        ("table =", "Invalid value"),
        ('table = "latency"\n[[section.block]]\nquestion="Q?"\nanswer="latency"\nread="R."\ntable="latency"', "twice"),
    ],
)
def test_a_wrong_page_is_refused_with_its_place(tmp_path, line, message):
    with pytest.raises(ConfigError, match=r"page\.toml") as error:
        load(tmp_path, line)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("duration_s", "points", "minutes"),
    [(None, 12, 1), (2.0, 12, 1), (100.2, 101, 1), (3_640.0, 240, 1), (86_400.0, 240, 6), (7 * 86_400.0, 240, 42)],
)
def test_points_fit_the_length_of_the_run(tmp_path, duration_s, points, minutes):
    asked = []

    def ask(name, params):
        asked.append((name, params))
        return [samples.BUSY | {"duration_s": duration_s}] if name == "headline" else []

    run = samples.run()
    page = load(tmp_path, 'params = { points = "fit", minutes = "fit", bins = 7 }\ntable = "latency"')
    list(blocks.show(page, type(run)(run.folder, run.manifest, ask)))
    assert asked[-1] == ("latency", {"points": points, "minutes": minutes, "bins": 7})
