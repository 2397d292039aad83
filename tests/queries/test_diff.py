import io

import pytest
from rich.console import Console

from pipeline.errors import RunError
from pipeline.query import diff
from tests.queries import fake_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    return (
        fake_run.write(home / "a", count=150, seed=1),
        fake_run.write(home / "copy", count=150, seed=1),
        fake_run.write(home / "b", count=150, seed=3, timeout_s=0.4, queue_limit=None),
    )


def shown(difference: diff.Difference) -> str:
    stream = io.StringIO()
    diff.show(difference, Console(file=stream, width=80))
    return stream.getvalue()


def test_a_copy_of_a_run_has_no_differences(folders):
    difference = diff.diff(folders[0], folders[1])
    assert difference.is_none
    assert difference.settings == []
    assert shown(difference).splitlines()[-1] == "no differences"


def test_settings_and_figures_that_differ(folders):
    difference = diff.diff(folders[0], folders[2])
    assert not difference.is_none
    assert difference.settings == [("load.queue_limit", "20", None), ("load.timeout_s", "6.0", "0.4")]
    figures = {name: rest for name, *rest in difference.figures}
    a, b, less, ratio = figures["slo_share"]
    assert less == pytest.approx(b - a)
    assert ratio == pytest.approx(b / a)
    assert less < 0
    assert figures["preemptions"][3] is None, "nothing divided by nothing is unknown"
    text = shown(difference)
    assert max(map(len, text.splitlines())) <= 80
    assert "load.timeout_s" in text
    assert "e2e_p95_ms" in text


def test_a_folder_that_is_no_run(tmp_path, folders):
    with pytest.raises(RunError, match="no such run folder"):
        diff.diff(folders[0], tmp_path / "nowhere")
