"""Read options: what a caller states because the file does not."""

import difflib
from collections.abc import Mapping

from pipeline.errors import TraceError


def resolve(format_name: str, known: Mapping[str, str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the known options with the given values over their defaults; TraceError on an unknown one."""
    for key in given or {}:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TraceError(
                f"read option {key}: {format_name} does not take it{hint} (it takes: {', '.join(known) or 'none'})"
            )
    return {**known, **(given or {})}


def positive(options: Mapping[str, str], key: str) -> int:
    """Return an option that must be a whole number above 0; TraceError if it is not."""
    text = str(options[key])
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise TraceError(f"read option {key} = {text}: must be a whole number above 0")
    return int(text)
