"""`servecast validate` in a terminal: each comparison with its rows and limits, at most 80 columns wide."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.validate import checks
from pipeline.validate.checks import Check, Table

WIDTH = 80


def lines(tables: Sequence[Table], found: Sequence[Check]) -> Iterator[str]:
    """Yield every table; rows that nothing is predicted for are counted by reason, not listed."""
    for table in tables:
        rows = [check for check in found if check.table == table.name]
        if not rows:
            continue
        yield table.title
        yield from _wrap(table.about, "  ")
        if any(row.observed is not None or row.predicted is not None for row in rows):
            yield f"    {'':14} {'observed':>10} {'predicted':>10} {'error':>10}"
        yield from _rows([row for row in rows if row.error_pct is not None or row.predicted is not None])
        yield from _left_out([row for row in rows if row.error_pct is None and row.predicted is None])
        for verdict in checks.verdicts(table, rows):
            yield _verdict(verdict)
        yield ""
    yield from textwrap.wrap(
        "judged: counts for the limits. fitted: a parameter was read off this row, so it proves nothing. explained: "
        "the row contradicts itself. estimate: no kernel table, the roofline stands in. predicted: nothing observed. "
        "Which rows parameters were fitted to: pipeline/hardware/data/README.md.",
        WIDTH,
    )


def _rows(rows: Sequence[Check]) -> Iterator[str]:
    """Yield the rows, a heading for each run, and a note once where it stays the same."""
    before = ("", "")
    for row in rows:
        remark = "; ".join(text for text in ("" if row.standing == "judged" else row.standing, row.note) if text)
        if (row.run, remark) != before:
            yield from _wrap(f"{row.run}{f' ({remark})' if remark else ''}", "  ")
        before = (row.run, remark)
        error = "" if row.error_pct is None else f"{row.error_pct:+.2f} %"
        yield f"    {row.metric:14} {_value(row.observed):>10} {_value(row.predicted):>10} {error:>10}  {row.unit}"


def _left_out(rows: Sequence[Check]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(f"{row.standing}: {row.note}", []).append(row.run)
    for reason, runs in reasons.items():
        text = f"{len(runs)} {reason} ({', '.join(dict.fromkeys(runs))})"
        yield from _wrap(text, "  ")


def _verdict(verdict: checks.Verdict) -> str:
    limit = verdict.limit
    if verdict.value_pct is None:
        return f"  = {limit.of}: nothing judged"
    word = "kept" if verdict.kept else "NOT KEPT"
    rows = "row" if verdict.rows == 1 else "rows"
    return f"  = {limit.of}: {verdict.value_pct:.2f} % ({verdict.rows} {rows}; limit {limit.most_pct:g} %, {word})"


def as_dicts(tables: Sequence[Table], found: Sequence[Check]) -> dict[str, Any]:
    """Return rows and verdicts as plain values for --json."""
    return {
        table.name: {
            "title": table.title,
            "rows": [
                {name: getattr(row, name) for name in Check.__dataclass_fields__}
                for row in found
                if row.table == table.name
            ],
            "limits": [
                {
                    "of": verdict.limit.of,
                    "statistic": verdict.limit.statistic,
                    "most_pct": verdict.limit.most_pct,
                    "value_pct": verdict.value_pct,
                    "rows": verdict.rows,
                    "kept": verdict.kept,
                }
                for verdict in checks.verdicts(table, [row for row in found if row.table == table.name])
            ],
        }
        for table in tables
    }


def _value(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _wrap(text: str, indent: str) -> list[str]:
    more = indent + "  "
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=more, break_on_hyphens=False)
