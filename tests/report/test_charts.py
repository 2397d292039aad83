import copy
import json
import struct
from datetime import UTC, datetime

import pytest

from pipeline.report import drawing, theme
from pipeline.report.charts import CHARTS
from pipeline.report.shapes import Figure, Nothing
from tests.report import samples

ANSWER_OF = {
    "latency_curves": "latency_cdf",
    "observed_curves": "observed_cdf",
    "ttft_by_minute": "latency_by_minute",
    "tpot_by_minute": "latency_by_minute",
    "arrivals": "load_over_time",
    "users": "load_over_time",
    "slo_share": "load_over_time",
    "hit_share": "load_over_time",
    "output_tokens": "engine_over_time",
    "prefill_tokens": "engine_over_time",
    "batch": "engine_over_time",
    "queue": "engine_over_time",
    "kv_memory": "engine_over_time",
    "batch_size": "batch_size_histogram",
    "step_time": "step_time_histogram",
}


def draw(name, run=None, rows=None) -> Figure | Nothing:
    run = run or samples.run()
    return CHARTS[name](run, run.answer(ANSWER_OF[name]) if rows is None else rows)


def test_the_table_above_names_every_chart():
    assert set(ANSWER_OF) == set(CHARTS)


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_with_units_alternative_and_few_points(name):
    figure = draw(name)
    assert isinstance(figure, Figure)
    assert figure.spec["description"] == figure.alt
    assert any(c.isdigit() for c in figure.alt), "the text alternative has a figure"
    assert sum(map(len, figure.spec["datasets"].values())) < 2_000
    encoding = figure.spec["layer"][0]["encoding"]
    assert encoding["x"]["title"]
    assert encoding["y"]["title"]


@pytest.mark.parametrize("name", CHARTS)
def test_no_rows_are_said_in_words(name):
    drawn = draw(name, rows=[])
    assert isinstance(drawn, Nothing)
    assert drawn.reason.endswith(".")


@pytest.mark.parametrize("name", [n for n, a in ANSWER_OF.items() if "over_time" in a or "minute" in a])
@pytest.mark.parametrize("clock", [True, False])
def test_a_single_interval_can_be_seen(name, clock):
    one = samples.run(samples.answers(points=2, clock=clock))
    rows = one.answer(ANSWER_OF[name])
    rows = [r for r in rows if r["start_s"] == 0]
    figure = draw(name, one, rows)
    lines = [layer["mark"] for layer in figure.spec["layer"] if layer["mark"]["type"] == "line"]
    assert lines[0]["point"]["filled"]


def test_series_differ_in_colour_and_in_dash():
    line = next(layer for layer in draw("arrivals").spec["layer"] if layer["mark"]["type"] == "line")
    for channel in ("color", "strokeDash"):
        scale = line["encoding"][channel]["scale"]
        assert scale["domain"] == ["arriving", "answered in full"]
        assert scale["range"][0] != scale["range"][1]


@pytest.mark.parametrize(
    ("name", "labels"), [("latency_curves", ["TTFT SLO 1 s", "TPOT SLO 50 ms"]), ("kv_memory", ["all blocks, 100 %"])]
)
def test_limits_are_lines_with_names(name, labels):
    spec = draw(name).spec
    named = [row["l"] for table in spec["datasets"].values() for row in table if "l" in row]
    assert named == labels
    assert any(layer["mark"]["type"] == "rule" for layer in spec["layer"])


def test_no_slo_no_line():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["config"]["slo"] = {"ttft_ms": None, "tpot_ms": None, "e2e_ms": None}
    spec = draw("latency_curves", samples.run(manifest=manifest)).spec
    assert not any(layer["mark"]["type"] == "rule" for layer in spec["layer"])


def test_wall_clock_is_drawn_as_it_stands_in_the_answer():
    """09:00 in the zone of the report is 09:00 on the axis, wherever the reader's browser is."""
    spec = draw("users").spec
    x = spec["layer"][0]["encoding"]["x"]
    assert x["title"] == "time of day (Europe/Zurich)"
    assert x["scale"] == {"type": "utc"}
    first = spec["datasets"]["rows0"][0]["x"]
    assert datetime.fromtimestamp(first / 1000, tz=UTC).replace(tzinfo=None) == samples.START


@pytest.mark.parametrize(
    ("span_s", "title", "last"),
    [
        (90, "seconds since the start", 45),
        (3_640, "minutes since the start", 30.3333),
        (40_000, "hours since the start", 5.55556),
    ],
)
def test_relative_clocks_take_a_fitting_unit(span_s, title, last):
    rows = samples.answers(points=2, clock=False)["load_over_time"]
    rows = [r | {"start_s": i * span_s / 2, "width_s": span_s / 2} for i, r in enumerate(rows)]
    spec = draw("arrivals", rows=rows).spec
    assert spec["layer"][0]["encoding"]["x"]["title"] == title
    assert spec["datasets"]["rows0"][1]["x"] == pytest.approx(last)


def test_a_queue_that_was_always_empty_is_said_in_words():
    rows = [r | {"waiting_max": 0} for r in samples.answers()["engine_over_time"]]
    assert "No request ever waited" in draw("queue", rows=rows).reason


def test_hit_share_says_why_there_is_none():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["trace"]["with_prefix"] = 0
    rows = [r | {"hit_share": 0.0} for r in samples.answers()["load_over_time"]]
    assert (
        "does not tell which prompts share a prefix" in draw("hit_share", samples.run(manifest=manifest), rows).reason
    )
    manifest["config"]["engine"]["enable_prefix_caching"] = False
    assert draw("hit_share", samples.run(manifest=manifest), rows).reason == "Prefix caching is off in this run."


def test_replicas_are_lines_of_their_own_without_a_band():
    rows = [r | {"replica": n} for n in (0, 1) for r in samples.answers()["engine_over_time"]]
    spec = draw("batch", rows=rows).spec
    assert not any(layer["mark"]["type"] == "area" for layer in spec["layer"])
    line = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    assert line["encoding"]["detail"]["field"] == "r"


def test_wide_spreads_are_logarithmic_and_say_so():
    rows = [r | {"p95_ms": 90_000.0} for r in samples.answers()["latency_by_minute"]]
    y = draw("ttft_by_minute", rows=rows).spec["layer"][0]["encoding"]["y"]
    assert y["scale"]["type"] == "log"
    assert y["title"] == "TTFT (logarithmic scale)"


def test_image_has_colours_of_its_own_and_double_size():
    figure = draw("arrivals")
    assert "var(--" in json.dumps(figure.spec)
    assert "var(--" not in json.dumps(theme.for_image(figure.spec))
    png = drawing.to_png(figure)
    width, height = struct.unpack(">II", png[16:24])
    assert width >= 2 * drawing.IMAGE_WIDTH
    assert height >= 2 * drawing.HEIGHT


def test_light_and_dark_name_the_same_colours():
    assert theme.LIGHT.keys() == theme.DARK.keys()
    used = {
        word
        for word in json.dumps([draw(n).spec for n in ("kv_memory", "batch_size")]).split('"')
        if word.startswith("var(")
    }
    assert {name[4:-1] for name in used} <= theme.LIGHT.keys()


@pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK])
def test_text_and_lines_stand_out_from_the_paper(colours):
    """WCAG 2.2: 4.5 for text, 3 for graphics."""
    paper = _luminance(colours["--paper"])
    for name, colour in colours.items():
        least = {"--chart-text": 4.5, "--limit": 4.5}.get(name, 3.0)
        if name in ("--paper", "--chart-grid"):  # the grid is decoration
            continue
        light, dark = sorted((paper, _luminance(colour)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= least, name


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_log_and_replay_have_one_colour_and_two_kinds_of_line():
    scale = {c: draw("observed_curves").spec["layer"][0]["encoding"][c]["scale"] for c in ("color", "strokeDash")}
    assert scale["color"]["domain"][:3] == ["TTFT, log", "TTFT, replay", "TPOT, log"]
    assert scale["color"]["range"][0] == scale["color"]["range"][1] != scale["color"]["range"][2]
    assert scale["strokeDash"]["range"][0] != scale["strokeDash"]["range"][1]
