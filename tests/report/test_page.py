import copy
from html.parser import HTMLParser

import pytest

from pipeline.report import blocks, contents, markdown, page
from tests.report import samples

NASTY = "</script><script>alert(1)</script>|\n# *x* `y`"


class Reader(HTMLParser):
    """Collects what the tests look at."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.headings, self.links, self.loads = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.headings.append(int(tag[1]))
        if tag == "a":
            self.links.append(attrs["href"])
        elif "src" in attrs or "href" in attrs:
            self.loads.append((tag, attrs))


@pytest.fixture(scope="module")
def report():
    return contents.collect(samples.run(), blocks.load())


@pytest.fixture(scope="module")
def html(report):
    return page.html(report)


def nasty():
    """Return the contents of a run whose labels and texts hold markup."""
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["warnings"] = [NASTY]
    manifest["unmodelled"] = [NASTY]
    manifest["trace"] |= {"path": NASTY, "where": NASTY}
    rows = samples.answers()
    for name, column in (
        ("traffic_by_tenant", "tenant"),
        ("unfinished_requests", "request_id"),
        ("slo_attainment", "class"),
    ):
        rows[name] = [row | {column: NASTY} for row in rows[name]]
    return contents.collect(samples.run(rows, manifest), blocks.load())


def test_markup_in_labels_is_shown_not_run():
    text = page.html(nasty())
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 6
    scripts = [attrs for tag, attrs in Reader(text).tags if tag == "script"]
    assert len(scripts) == 3
    index = page.index([(nasty(), "a/report.html"), (nasty(), "b/report.html")])
    assert "<script" not in index


def test_markup_in_labels_does_not_break_markdown():
    text = markdown.text(nasty())
    assert "<script" not in text.replace("\\<", "")
    row = next(line for line in text.splitlines() if line.startswith("| \\</script") and "4,000" in line)
    assert row.replace("\\|", "").count("|") == 10


def test_nothing_is_loaded_and_every_link_leads_inside(html):
    seen = Reader(html)
    assert seen.loads == []
    assert {link[0] for link in seen.links} == {"#"}
    assert {link[1:] for link in seen.links} <= set(seen.ids)
    assert "default-src 'none'" in html


def test_the_page_is_small_and_holds_the_chart_library_once(html):
    assert len(html.encode()) < 3_000_000
    assert html.count("window.vegaEmbed=") == 1


def test_structure_for_assistive_technology(html):
    seen = Reader(html)
    assert ("html", {"lang": "en"}) in seen.tags
    assert len(seen.ids) == len(set(seen.ids))
    assert seen.headings[0] == 1
    assert seen.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(seen.headings, seen.headings[1:], strict=False))
    charts = [attrs for _, attrs in seen.tags if attrs.get("class") == "chart"]
    assert len(charts) == 15
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in charts)
    scrolled = [attrs for _, attrs in seen.tags if "scroll" in attrs.get("class", "").split()]
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolled)


def test_every_block_names_query_run_and_config(report, html):
    parts = [part for chapter in report.chapters for part in chapter.parts]
    for part in parts:
        assert f"query <code>{part.query}</code> · run <code>0123456789abcdef</code>" in html
    assert html.count("config <code>c0ffee00c0ffee00</code>") == len(parts) + 1
    assert "latency_by_minute(minutes := 1)" in html


def test_headline_counts_warnings_and_what_is_left_out_are_there(report, html):
    for text in (report.headline, report.verdict, report.binds, report.records, "beam search"):
        assert text in html.replace("\u00a0", " ")
    assert "p95 TTFT 380\u00a0ms" in html
    assert html.index('id="settings"') < html.index('id="leftout"') < html.index('id="warnings"')
    assert "engine.max_num_seqs" in html


def test_the_same_run_gives_the_same_bytes(report, html):
    again = contents.collect(samples.run(), blocks.load())
    assert page.html(again) == html
    assert markdown.text(again) == markdown.text(report)


def test_a_run_in_which_nothing_happened_has_sentences_in_place_of_charts():
    rows = {name: [] for name in samples.answers()}
    report = contents.collect(samples.run(rows | {"headline": [samples.BUSY | {"requests": 0}]}), blocks.load())
    assert {part.kind for chapter in report.chapters for part in chapter.parts} == {"nothing"}
    text = page.html(report)
    assert "No request was replayed." in text
    assert "<script" not in text
    assert "None" not in text.replace("<p>None.</p>", "")


def test_ten_thousand_tenants_do_not_fill_the_page():
    many = contents.collect(samples.run(samples.answers(tenants=10_000)), blocks.load())
    assert "9,960 more rows are left out here." in page.html(many)


def test_index_sets_runs_side_by_side(report):
    text = page.index([(report, "a/report.html"), (report, "b/report.html")])
    seen = Reader(text)
    assert seen.links == ["a/report.html", "b/report.html"] * 2
    assert text.replace("\u00a0", " ").count("98.7 %") == 4
    plain = markdown.index([(report, "a/report.md"), (report, "b/report.md")])
    assert "| [0123456789abcdef](a/report.md) | bank.csv |" in plain


def test_markdown_holds_tables_and_images(report):
    text = markdown.text(report)
    assert text.startswith("# Replay report: bank.csv\n\nllama-3.1-8b on NVIDIA H100 80GB SXM")
    assert "| TTFT | 120 ms | 288 ms | 384 ms | 720 ms | 1.68 s | 144 ms | 9,850 | arrival to first token |" in text
    for part, figure in report.figures():
        assert f"![{markdown.escape(figure.alt)}]({part.image})" in text
