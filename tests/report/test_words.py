import pytest

from pipeline.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.42, "0.42 ms"),
        (3.25, "3.25 ms"),
        (32.04, "32 ms"),
        (380, "380 ms"),
        (1000, "1 s"),
        (1384, "1.38 s"),
        (125_000, "125 s"),
    ],
)
def test_milliseconds(value, text):
    assert words.milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (5.5, "5.5"), (24.0, "24"), (1160.4, "1,160"), (0.0421, "0.042"), (0.00002, "2.0e-05")],
)
def test_number(value, text):
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 1, "–"),
        (0.0, 1, "0 %"),
        (1.0, 1, "100 %"),
        (0.987, 1, "98.7 %"),
        (0.71, 0, "71 %"),
        (0.5, 0, "50 %"),
        (0.99996, 1, "> 99.9 %"),
        (0.999, 0, "> 99 %"),
        (0.0001, 1, "< 0.1 %"),
    ],
)
def test_share_never_rounds_to_everything_or_nothing(value, digits, text):
    assert words.share(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (2.5, "2.5 s"),
        (119, "119 s"),
        (3_500, "58 min 20 s"),
        (12_000, "3 h 20 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
    ],
)
def test_seconds(value, text):
    assert words.seconds(value) == text


def test_plural():
    assert [words.plural(n, "request") for n in (0, 1, 10_000)] == ["0 requests", "1 request", "10,000 requests"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.032, "+3.2 %"), (-0.121, "-12 %"), (2.0, "+200 %"), (0.0004, "0 %"), (-0.0006, "-0.1 %"), (None, "–")],
)
def test_change(value, text):
    assert words.change(value) == text
