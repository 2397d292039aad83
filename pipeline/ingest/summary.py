"""What an import found, as a record and as a short table."""

import io
from dataclasses import dataclass, field
from pathlib import Path

NOT_STATED = "(not stated)"
_MEANING = {
    "token_blocks": "token_blocks: cache hits as the engine would find them",
    "given_hashes": "given_hashes: cache hits as the log's blocks allow",
    "text_blocks": "text_blocks: cache hits are an estimate, text has no token borders",
    "none": "none: no cache hits, so latency is an upper bound and capacity a lower one",
}


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """Figures of one import.

    records        : lines, rows or events that were read
    valid          : rows of the trace; `records` = `valid` + rejected
    rejected       : reason -> records
    flagged        : flag -> rows
    statuses       : status -> rows
    replayable     : rows that a replay runs
    models         : model -> share of replayable rows
    tenants        : distinct tenants
    span_us        : from the first to the last arrival
    first_arrival  : ISO 8601, UTC; None on a relative clock
    time_zone      : what was assumed about the clock, in words
    input_tokens, output_tokens : sums over replayable rows
    prefix_kinds   : kind of prefix identity -> share of replayable rows
    prefix_extended : rows whose hashes reach over generated tokens
    reuse_share, reuse_share_full_blocks : share of the prompt tokens that an infinite cache would have held, with
                     partial last blocks and without; None where no row has prefix identity
    format, reason : how the input was read, and why
    notes          : what a person should know, whole sentences
    trace, rejects : paths written
    """

    records: int
    valid: int
    rejected: dict[str, int]
    flagged: dict[str, int]
    statuses: dict[str, int]
    replayable: int
    models: dict[str, float]
    tenants: int
    span_us: int
    first_arrival: str | None
    time_zone: str
    input_tokens: int
    output_tokens: int
    prefix_kinds: dict[str, float]
    prefix_extended: int
    reuse_share: float | None
    reuse_share_full_blocks: float | None
    format: str
    reason: str
    trace: Path
    rejects: Path
    notes: list[str] = field(default_factory=list)

    def lines(self, width: int = 80) -> list[str]:
        """Return the summary as a table of at most `width` columns."""
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for label, text in self._rows():
            table.add_row(label, text)
        page = io.StringIO()
        console = Console(file=page, width=width, color_system=None, highlight=False, markup=False, emoji=False)
        console.print(table)
        return [line.rstrip() for line in page.getvalue().splitlines()]

    def _rows(self) -> list[tuple[str, str]]:
        rejected = sum(self.rejected.values())
        rows = [
            ("format", f"{self.format} ({self.reason})"),
            ("records", f"{self.records:,} read, {self.valid:,} valid, {rejected:,} rejected"),
            ("rejected", _counts(self.rejected)),
            ("replayable", f"{self.replayable:,} of {self.valid:,} ({_counts(self.statuses)})"),
            ("flags", _counts(self.flagged)),
            ("time", self._time()),
            ("tokens", f"{self.input_tokens:,} in, {self.output_tokens:,} out (replayable)"),
            ("models", _shares(self.models) if set(self.models) != {NOT_STATED} else ""),
            ("tenants", f"{self.tenants:,}" if self.tenants else ""),
            ("prefix", _shares(self.prefix_kinds)),
            ("reuse", self._reuse()),
            ("bounds", "; ".join(_MEANING[kind] for kind in self.prefix_kinds if kind in _MEANING)),
            *(("note", note) for note in self.notes),
            ("trace", str(self.trace)),
            ("rejects", str(self.rejects) if rejected else ""),
        ]
        return [(label, text) for label, text in rows if text]

    def _time(self) -> str:
        seconds = self.span_us / 1e6
        start = f" from {self.first_arrival}" if self.first_arrival else ""
        return f"{seconds:,.1f} s{start}; {self.time_zone}"

    def _reuse(self) -> str:
        if self.reuse_share is None:
            return "none known: the replay finds no shared prefix, so a cache would do better than it shows"
        full = f"{self.reuse_share_full_blocks:.1%} in full blocks"
        text = f"{self.reuse_share:.1%} of prompt tokens under an infinite cache, {full}"
        return text + (f"; {self.prefix_extended:,} answers known from a later turn" if self.prefix_extended else "")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
