"""Numbers as people read them: three digits, a unit, and a dash for what is unknown."""

import re

UNKNOWN = "–"
_UNIT = re.compile(r"(\d) (%|ms|s|min|h|d|µs)(?!\w)")


def count(value: int | float | None) -> str:
    """Return a whole number with thousands separated, as `10,000`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def plural(value: int, noun: str) -> str:
    """Return a count with its noun, as `1 request` or `2 requests`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def number(value: float | None) -> str:
    """Return about three digits without exponent: `0.042`, `5.5`, `1,160`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return text if text != "0" or value == 0 else f"{value:.1e}"


def milliseconds(value: float | None) -> str:
    """Return a duration given in milliseconds with its unit: `0.42 ms`, `380 ms`, `1.38 s`."""
    if value is None:
        return UNKNOWN
    return f"{number(value)} ms" if value < 1000 else f"{number(value / 1000)} s"


def seconds(value: float | None) -> str:
    """Return a duration given in seconds in the two largest units that fit: `2.5 s`, `58 min 20 s`, `3 h 20 min`."""
    if value is None:
        return UNKNOWN
    if value < 120:
        return f"{number(value)} s"
    whole = round(value)
    for size, unit, smaller, small_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    raise AssertionError(value)


def share(value: float | None, digits: int = 1) -> str:
    """Return a share of 1 in percent; all but everything is never rounded to 100 %, nor all but nothing to 0 %."""
    if value is None:
        return UNKNOWN
    text = f"{100 * value:.{digits}f}"
    least = 10.0**-digits
    if 0 < value < 1 and float(text) >= 100:
        return f"> {100 - least:.{digits}f} %"
    if value > 0 and float(text) == 0:
        return f"< {least:.{digits}f} %"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + " %"


def change(value: float | None) -> str:
    """Return a relative difference in percent with its sign: `+3.2 %`, `-12 %`; less than 0.05 % is `0 %`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 5e-4:
        return "0 %"
    size = share(abs(value)) if abs(value) < 0.1 else share(abs(value), 0)
    return f"{'-' if value < 0 else '+'}{size}"


def gib(value: float | None) -> str:
    """Return a size in GiB."""
    return UNKNOWN if value is None else f"{number(value)} GiB"


def together(text: str) -> str:
    """Return the text with numbers and their units kept on one line, by spaces that do not break."""
    return _UNIT.sub("\\1\u00a0\\2", text)
