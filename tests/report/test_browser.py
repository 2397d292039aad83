"""The page in a real browser: charts drawn, nothing asked of the network, nothing said on the console."""

import re
import subprocess
from pathlib import Path

import pytest

from pipeline.report import blocks, contents, page
from tests.report import samples

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium at /usr/bin/chromium"),
]

# Asks for one point of the first chart as a mouse would, so that its tooltip shows.
HOVER = """<script>
const wait = setInterval(() => {
  if (document.documentElement.dataset.charts !== "drawn") return;
  clearInterval(wait);
  const point = document.querySelector(".chart .mark-symbol path");
  const at = point.getBoundingClientRect();
  for (const type of ["pointermove", "pointerover", "mousemove", "mouseover"])
    point.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: at.x + 2, clientY: at.y + 2}));
  const page = document.documentElement;
  page.dataset.overflow = page.scrollWidth - page.clientWidth;
}, 50);
</script>"""


def browse(tmp_path, html, width=1100):
    """Return the page's DOM after its scripts ran, and what the browser wrote to its console."""
    path = tmp_path / "report.html"
    head, end, tail = html.rpartition("</body>")
    path.write_text(head + HOVER + end + tail, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", "--virtual-time-budget=30000",
        "--enable-logging=stderr", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("width", [1100, 500])
def test_every_chart_is_drawn_without_a_word(tmp_path, width):
    report = contents.collect(samples.run(), blocks.load())
    dom, console = browse(tmp_path, page.html(report), width)
    assert console == []
    assert 'data-charts="drawn"' in dom
    charts = list(report.figures())
    drawn = re.findall(r'<svg[^>]*class="marks"', dom)
    assert len(drawn) == len(charts)
    for part, _ in charts:
        place = dom.index(f'id="{part.id}"')
        svg = dom[place : dom.index("</svg>", place)]
        assert re.search(r'class="mark-(line|rect) role-mark', svg), part.id
    assert 'data-overflow="0"' in dom, "the page is as wide as its window"
    tooltip = dom[dom.index('id="vg-tooltip-element"') :]
    assert "share at or below" in tooltip[:600]
