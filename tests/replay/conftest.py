"""Tests of the replay command ask the queries only where they are about a summary: that takes a second or two."""

import pytest

from pipeline import report


@pytest.fixture(autouse=True)
def terse(request, monkeypatch):
    """Print the folder of a run in place of its summary, unless the test is marked `summary`."""
    if request.node.get_closest_marker("summary") is None:
        monkeypatch.setattr(report, "show_summary", lambda run, console: console.file.write(f"run {run}\n"))
