"""`servecast prices`: the rate tables in a terminal, with what has aged marked."""

import datetime as dt
import json
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.capacity import rates
from pipeline.errors import ConfigError

Row = dict[str, str]
# What a terminal of 80 columns can show; --json has every column.
_SHOWN = {
    "units": ("provider", "model", "deployment_types", "tokens_per_minute", "w_cached", "w_output", "minimum_units",
              "increment_units"),
    "unit_prices": ("provider", "deployment_type", "term", "usd_per_unit_hour", "usd_per_unit_month"),
    "token_prices": ("provider", "model", "deployment_type", "tier", "usd_per_1m_input", "usd_per_1m_cached_input",
                     "usd_per_1m_output"),
    "scale_tier": ("model", "input_tokens_per_minute", "usd_per_input_unit_day", "output_tokens_per_minute",
                   "usd_per_output_unit_day"),
    "model_units": ("model", "region", "term", "usd_per_model_unit_hour"),
    "gpu_hours": ("provider", "gpu", "term", "usd_per_gpu_hour"),
    "tiers": ("provider", "tier", "unit", "overflow"),
    "sources": ("source", "where", "dated"),
}  # fmt: skip


def rows(table: str, provider: str | None, model: str | None) -> list[Row]:
    """Return the rows of a table that match; ConfigError for a table or a vendor that is not there."""
    if table not in _SHOWN:
        raise ConfigError(f"{table}: no such table of prices; there are {', '.join(_SHOWN)}")
    found = [dict(row) for row in rates.table(table)]
    for key, wanted in (("provider", provider), ("model", model)):
        if wanted is None:
            continue
        if found and key not in found[0]:
            raise ConfigError(f"--{key}: table {table} has no column {key}")
        kept = [
            r
            for r in found
            if (wanted.lower() in r[key].lower() if key == "model" else r[key].lower() == wanted.lower())
        ]
        if not kept:
            known = sorted({r[key] for r in found})
            raise ConfigError(f"--{key} {wanted}: table {table} has none; there are {', '.join(known[:12])}")
        found = kept
    return found


def as_json(found: Sequence[Row]) -> Iterator[str]:
    """Yield each row as a line of JSON; unknown values are null."""
    for row in found:
        yield json.dumps({key: value or None for key, value in row.items()}, ensure_ascii=False)


def show(table: str, found: Sequence[Row], console: Console, today: dt.date) -> None:
    """Print the rows, their sources and dates, and a warning for those that have aged."""
    names = _SHOWN[table]
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for name in names:
        grid.add_column(name.replace("_", " "), justify="right" if _is_number(found, name) else "left")
    if "as_of" in found[0]:
        grid.add_column("as of")
    old = 0
    for row in found:
        is_old = "as_of" in row and rates.aged(row["as_of"], today)
        old += is_old
        date = [f"{row['as_of'] or 'unknown'}{' !' if is_old else ''}"] if "as_of" in row else []
        grid.add_row(*(row[name] or "–" for name in names), *date)
    console.print(grid)
    if "source" in found[0] and table != "sources":
        console.print(
            Text(f"\nsources: {', '.join(sorted({row['source'] for row in found}))} (servecast prices sources)")
        )
    if old:
        console.print(
            Text(f"! {old} of {len(found)} are dated more than {rates.AGED_DAYS} days ago, or not at all: check them.")
        )


def _is_number(found: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in found if row[name]]
    return bool(values) and all(value.replace(".", "", 1).isdigit() for value in values)
