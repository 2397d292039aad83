"""Every recorded case of other engines than today's vLLM, whose tests are tests/test_twin.py and tests/kernel."""

from pathlib import Path

import pytest

from tests import policy_cases, shared

CASES = Path(__file__).parents[1] / "cases"
KEPT = sorted(path.parent for path in CASES.glob("*/*/config.json") if path.parents[1].name != "vllm")
ELSEWHERE = ("orca_static", "sarathi", "tgi", "trtllm", "vllm_v0")  # made of published traces: only where those are


def label(folder):
    return f"{folder.parent.name}/{folder.name}"


@pytest.mark.parametrize("folder", KEPT, ids=label)
def test_twin_decides_as_recorded(folder):
    assert policy_cases.disagreements(folder, "twin") == {}


@pytest.mark.parametrize("engine", ELSEWHERE)
def test_twin_decides_as_recorded_on_published_traces(engine):
    for folder in sorted(shared.path("oracle", engine).glob("*az*")):
        assert policy_cases.disagreements(folder, "twin") == {}, folder.name
