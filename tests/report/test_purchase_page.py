"""The page of a purchase: every block filled or with its reason, drawn in a browser, the same bytes twice."""

import re
from pathlib import Path

import pytest

from pipeline import report
from pipeline.report import page, purchase
from tests.replay import servecast
from tests.report.test_browser import CHROMIUM, browse

# Two days, a call a minute: 20 units by day, 10 by night; at 150 a month the day's units pay as well.
LINE = ", ".join(
    f"{60 * minute}s {59_996 if 480 <= minute % 1440 < 1200 else 29_996}>1 covered=0" for minute in range(2 * 1440)
)
BUYS = ("--model", "gpt-4.1", "--set", "prices.usd_per_unit_month=120")


@pytest.fixture(scope="module", params=[BUYS, ("--model", "gpt-4.1")], ids=["bought", "nothing"])
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("purchase")
    trace = servecast.trace(place / "trace.parquet", LINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        result = servecast.run("ptu", trace, *request.param, "-o", "runs")
    assert result.exit_code == 0, result.output
    (made,) = (place / "runs" / "purchases").iterdir()
    return made


def test_the_page_begins_with_the_recommendation(folder, tmp_path):
    written = report.write_purchase(folder, tmp_path)
    text = (tmp_path / "report.md").read_text()
    advice = purchase.open_purchase(folder).manifest["recommendation"]
    assert advice in text
    assert "MSDOC-SIZING-2026-09-23" in text
    assert {path.suffix for path in written} == {".html", ".md", ".png"}
    again = report.write_purchase(folder, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


@pytest.mark.browser
@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="needs Chromium at /usr/bin/chromium")
@pytest.mark.parametrize("width", [1100, 500])
def test_every_chart_is_drawn(folder, tmp_path, width):
    found = purchase.collect(folder)
    dom, console = browse(tmp_path, page.html(found), width)
    assert console == []
    assert 'data-charts="drawn"' in dom
    assert len(re.findall(r'<svg[^>]*class="marks"', dom)) == len(list(found.figures()))
    assert 'data-overflow="0"' in dom, "the page is as wide as its window"
