"""Purchase folders as rows: what `purchase.json` says, and where its tables lie."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import schema
from pipeline.errors import RunError

FILE = "purchase.json"
# Column of `purchases`, its type, and where in purchase.json it stands.
COLUMNS = (
    ("purchase_id", "VARCHAR", "purchase_id"),
    ("trace_path", "VARCHAR", "trace.path"),
    ("trace_digest", "VARCHAR", "trace.digest"),
    ("trace_where", "VARCHAR", "trace.where"),
    ("provider", "VARCHAR", "offer.provider"),
    ("product", "VARCHAR", "offer.product"),
    ("model", "VARCHAR", "offer.model"),
    ("deployment_type", "VARCHAR", "offer.deployment_type"),
    ("region", "VARCHAR", "offer.region"),
    ("unit", "VARCHAR", "offer.unit"),
    ("tokens_per_minute", "DOUBLE", "offer.tokens_per_minute"),
    ("minimum_units", "BIGINT", "offer.minimum_units"),
    ("increment_units", "BIGINT", "offer.increment_units"),
    ("requests", "BIGINT", "figures.requests"),
    ("minutes_per_month", "DOUBLE", "figures.minutes_per_month"),
    ("months", "DOUBLE", "figures.months"),
    ("payg_usd_month", "DOUBLE", "figures.payg_usd_month"),
    ("value_usd_per_unit_month", "DOUBLE", "figures.value_usd_per_unit_month"),
    ("best_units", "BIGINT", "figures.best_units"),
    ("best_term", "VARCHAR", "figures.best_term"),
    ("best_usd_month", "DOUBLE", "figures.best_usd_month"),
    ("chosen_units", "BIGINT", "figures.chosen_units"),
    ("chosen_term", "VARCHAR", "figures.chosen_term"),
    ("habit_mean_units", "BIGINT", "figures.habit_mean_units"),
    ("habit_peak_units", "BIGINT", "figures.habit_peak_units"),
    ("saving_probability", "DOUBLE", "figures.confidence.probability"),
    ("own_replicas", "BIGINT", "own.needed"),
    ("own_gpus_per_replica", "BIGINT", "own.gpus_per_replica"),
)
GPU_COLUMNS = (
    ("purchase_id", "VARCHAR"),
    ("term", "VARCHAR"),
    ("usd_per_gpu_hour", "DOUBLE"),
    ("source", "VARCHAR"),
    ("as_of", "VARCHAR"),
)


@dataclass(frozen=True, slots=True)
class Purchase:
    """One purchase: its folder and the content of its purchase.json."""

    folder: Path
    facts: Mapping[str, Any]

    @property
    def purchase_id(self) -> str:
        """The id it was written under, whatever the folder is called."""
        return self.facts["purchase_id"]

    def file(self, table: str) -> Path:
        """Return the Parquet file of a table; RunError if it is missing."""
        path = self.folder / f"{table}.parquet"
        if not path.is_file():
            raise RunError(f"{self.folder}: {path.name} is missing; delete the folder and run `servecast ptu` again")
        return path

    def row(self) -> list[Any]:
        """Return its row of `purchases`, in the order of COLUMNS."""
        return [_at(self.facts, place) for _, _, place in COLUMNS]

    def gpu_rows(self) -> list[list[Any]]:
        """Return its rows of `purchase_gpu_terms`."""
        terms = (self.facts.get("own") or {}).get("terms") or []
        return [[self.purchase_id, *(term[name] for name, _ in GPU_COLUMNS[1:])] for term in terms]


def is_one(folder: Path) -> bool:
    """Return whether a folder holds a purchase."""
    return (folder / FILE).is_file()


def read(folder: Path) -> Purchase:
    """Read a purchase folder; RunError if it cannot be read or is of another version."""
    path = folder / FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    version = facts.get("version") if isinstance(facts, dict) else None
    if version != schema.PURCHASE_VERSION:
        raise RunError(f"{path}: version is {version!r}; this servecast reads {schema.PURCHASE_VERSION!r}")
    return Purchase(folder, facts)


def _at(facts: Mapping[str, Any], place: str) -> Any:
    value: Any = facts
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
