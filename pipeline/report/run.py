"""One run as the report sees it: what run.json says, and the answers of the queries about it."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import RunError

Row = dict[str, Any]
Ask = Callable[[str, dict[str, Any]], list[Row]]

MOST_POINTS = 240  # of a time series: about one for every three pixels of a wide chart


@dataclass(frozen=True)
class Run:
    """A run folder opened for reading: `manifest` is run.json, `answer` asks the queries."""

    folder: Path
    manifest: dict[str, Any]
    ask: Ask
    _known: dict[str, list[Row]] = field(default_factory=dict, repr=False)

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.manifest["run_id"]

    @property
    def digest(self) -> str:
        """Digest of the configuration."""
        return self.manifest["config_digest"]

    @property
    def short_digest(self) -> str:
        """First digits of that digest, enough to tell settings apart under a figure."""
        return self.digest[:16]

    @property
    def config(self) -> dict[str, Any]:
        """Resolved configuration by section."""
        return self.manifest["config"]

    @property
    def time_zone(self) -> str:
        """Name of the time zone of the report."""
        return self.config.get("report", {}).get("time_zone") or "UTC"

    @property
    def bands(self) -> Row | None:
        """Content of bands.json, how sure the headlines are; None where nobody asked."""
        try:
            return json.loads((self.folder / "bands.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def limit_ms(self, metric: str) -> float | None:
        """Return the SLO of `ttft`, `tpot` or `e2e` where no class has its own, milliseconds; None is no limit."""
        return self.config.get("slo", {}).get(f"{metric}_ms")

    def answer(self, name: str, **params: Any) -> list[Row]:
        """Return the rows of an answer about this run; each question is asked once."""
        key = json.dumps([name, params], sort_keys=True)
        if key not in self._known:
            self._known[key] = self.ask(name, params)
        return self._known[key]

    def one(self, name: str) -> Row:
        """Return the only row of an answer, a row of unknowns if it has none; RunError if there are several."""
        rows = self.answer(name)
        if len(rows) > 1:
            raise RunError(f"{self.folder}: the answer {name} has {len(rows)} rows, expected 1")
        return rows[0] if rows else defaultdict(lambda: None)


def open_runs(folders: Sequence[Path]) -> list[Run]:
    """Open run folders, each once; RunError for one that is missing, unfinished or of another version."""
    from pipeline.query import runs, session

    found = {known.run_id: known for known in (runs.read(folder) for folder in folders)}

    def opened(known: runs.Run) -> Run:
        connection = session.open([known.folder], keep=True)
        return Run(
            known.folder,
            dict(known.facts),
            lambda name, params: session.answer_rows(connection, name, **params),
        )

    return [opened(known) for known in found.values()]
