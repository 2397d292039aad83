"""Fields of JSON records: found under either spelling, read as counts, times, durations and names.

Logs write numbers as text, objects as text and names in either case; every reader here takes all of them. A value
that cannot be what its field says raises `Rejected`; the message names the field, never the value.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from pipeline.ingest.records import MAX_TOKENS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?\s?(Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?"
)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")
_NAME = re.compile(r"[A-Za-z][\w.\-]{0,79}")
_LAST_US = 253_402_300_800_000_000  # year 10000
_HTTP = {429: "throttled", 400: "rejected", 408: "timeout", 499: "cancelled"}


class Rejected(Exception):  # noqa: N818 - says what became of the record
    """A record that cannot become a request: one of REJECT_REASONS and a detail free of values."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@lru_cache(maxsize=1024)
def _spellings(name: str) -> tuple[str, str]:
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    head, *rest = name.split("_")
    return snake, head + "".join(part[:1].upper() + part[1:] for part in rest)


def get(record: Any, *path: str) -> Any:
    """Return the value at a path of names, each as given, in snake_case or in camelCase; None where it is absent.

    An object that is written as JSON text is read on the way.
    """
    for name in path:
        record = parsed(record)
        if not isinstance(record, Mapping):
            return None
        if name in record:
            record = record[name]
        else:
            snake, camel = _spellings(name)
            record = record[snake] if snake in record else record.get(camel)
    return record


def first(record: Any, *names: str) -> Any:
    """Return the first of several fields that is stated; None if none is."""
    return next((value for value in (get(record, name) for name in names) if value not in (None, "")), None)


def parsed(value: Any) -> Any:
    """Return JSON text that holds an object or a list as that value, anything else unchanged."""
    for _ in range(3):
        if not (isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"')):
            break
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            break
    return value


def count(value: Any, name: str) -> int | None:
    """Return a token count; None where it is not stated. Rejected if it is no whole number, above all sense or < 0."""
    number = integer(value, name)
    if number is not None and number > MAX_TOKENS:
        raise Rejected("bad_row", f"{name} is above {MAX_TOKENS:,} tokens")
    if number is not None and number < 0:
        raise Rejected("negative_tokens", f"{name} is below 0")
    return number


def integer(value: Any, name: str) -> int | None:
    """Return a whole number, None where it is not stated; Rejected if it is none."""
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    number = _decimal(value)
    if number is None or number != number.to_integral_value() or abs(number) >= 2**63:
        raise Rejected("bad_row", f"{name} is no whole number")
    return int(number)


def small(value: Any, bits: int = 32) -> int | None:
    """Return a whole number that fits the bits; None for anything else: fields that nothing depends on."""
    number = _decimal(value)
    if number is None or number != number.to_integral_value() or abs(number) >= 2 ** (bits - 1):
        return None
    return int(number)


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    text = value.strip() if isinstance(value, str) else repr(value)
    if len(text) > 40 or not _NUMBER.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number.adjusted() < 30 else None


def duration_us(value: Any, digits: int) -> int | None:
    """Return a duration in floored microseconds; None where it is no number.

    digits : decimal places from the unit to the microsecond, 6 for seconds, 3 for milliseconds
    """
    number = _decimal(value)
    if number is None:
        return None
    us = int(number.scaleb(digits).to_integral_value("ROUND_FLOOR"))
    return us if abs(us) < _LAST_US else None


def epoch_us(value: Any) -> tuple[int, bool] | None:
    """Return microseconds since 1970 and whether the value was finer than seconds; None where it is no time.

    The unit shows in the size: 1e11 seconds are the year 5138, 1e11 milliseconds are 1973.
    """
    number = _decimal(value)
    if number is None or number <= 0:
        return None
    digits = next((digits for bound, digits in ((11, 6), (14, 3), (17, 0)) if number < Decimal(10) ** bound), -3)
    us = int(number.scaleb(digits).to_integral_value("ROUND_FLOOR"))
    return (us, digits != 6) if us < _LAST_US else None


def stamp_us(value: Any, zone: str) -> tuple[int, bool] | None:
    """Return microseconds since 1970 UTC and whether the stamp was without offset; None where it is no time.

    zone : time zone of stamps without offset; a time that it never showed is none, of one shown twice the earlier
    """
    if not isinstance(value, str):
        return (found[0], False) if (found := epoch_us(value)) else None
    match = _ISO.fullmatch(value.strip())
    if match is None:
        return (found[0], False) if (found := epoch_us(value)) else None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=UTC)
    except ValueError:
        return None
    if offset is None:
        there = local.replace(tzinfo=ZoneInfo(zone))
        utc = there.astimezone(UTC)
        if utc.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC) != local:
            return None
    else:
        utc = local - _offset(offset)
    whole = utc - EPOCH
    return (whole.days * 86_400 + whole.seconds) * 1_000_000 + int((fraction or "")[:6].ljust(6, "0")), offset is None


def _offset(text: str) -> timedelta:
    if text[0] not in "+-":
        return timedelta()
    digits = text[1:].replace(":", "").ljust(4, "0")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -size if text[0] == "-" else size


def arrival_us(value: Any, name: str, zone: str) -> tuple[int, bool]:
    """Return a stamp that must be there, as `stamp_us`; Rejected with missing_arrival or bad_timestamp if it is not."""
    if value is None or value == "":
        raise Rejected("missing_arrival", f"{name} is absent")
    found = stamp_us(value, zone)
    if found is None:
        raise Rejected("bad_timestamp", f"{name} is no time")
    return found


def text(value: Any) -> str | None:
    """Return an id or a label as text, None where it is empty or something else than text or a number."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return str(value).strip()[:512] or None


def name(value: Any) -> str | None:
    """Return the name of an error or of a reason to stop; None for sentences, which may quote a prompt."""
    found = text(value)
    return found if found is not None and (_NAME.fullmatch(found) or found.isdecimal()) else None


def truth(value: Any) -> bool | None:
    """Return a Boolean that may be written as text; None where it is neither true nor false."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


def http_status(code: int | None) -> str:
    """Return the status that an HTTP code means; 2xx is ok, no code an error without one."""
    if code is not None and 200 <= code < 300:
        return "ok"
    return _HTTP.get(code or 0, "error")


def difference_us(end: int | None, start: int, flags: set[str]) -> int | None:
    """Return end - start, None where there is no end or it lies before the start, which is flagged."""
    if end is None:
        return None
    if end < start:
        flags.add("negative_duration")
        return None
    return end - start


def not_a_measurement(ttft_us: int | None, e2e_us: int | None, stream: bool | None) -> bool:
    """Tell whether a time to first token is only the total time of a call that is not known to stream."""
    return ttft_us is not None and ttft_us == e2e_us and stream is not True


def cached_input(
    plain: int | None, read: int | None, write: int | None, *, inclusive: bool, total_is_plain: bool, flags: set[str]
) -> int | None:
    """Return the whole prompt from a count that holds cached tokens or not, repaired where the counts give it away.

    total_is_plain : a stated total is reached by input and output alone
    """
    cached = (read or 0) + (write or 0)
    if plain is None or cached == 0:
        return plain
    if inclusive and cached > plain:
        flags.add("cache_exclusive_fixed")
        return plain + cached
    if not inclusive and total_is_plain:
        flags.add("cache_inclusive_kept")
        return plain
    return plain if inclusive else plain + cached
