"""The summary that `servecast replay` prints: at most 25 lines of 80 columns."""

import io
import textwrap
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from pipeline.report import headline, words
from pipeline.report.run import Run
from pipeline.report.tables import METRICS

WIDTH = 80
MOST_WARNINGS = 3

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "queue": "queue time"}


def show(run: Run, console: Console) -> None:
    """Print the summary: with emphasis on a terminal, as plain lines elsewhere."""
    for text, style in _styled(run):
        console.print(Text(_printable(text), style=style), soft_wrap=True)


def plain(run: Run) -> str:
    """Return the summary as one text without colours, with a newline at its end."""
    out = io.StringIO()
    show(run, Console(file=out, width=WIDTH, color_system=None, force_terminal=False))
    return out.getvalue()


def _printable(text: str) -> str:
    """Return the text without the control characters that a file name or a filter may hold."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _styled(run: Run) -> Iterator[tuple[str, str]]:
    for line in _wrap(headline.sentence(run)):
        yield line, "bold"
    for line in _wrap(f"{headline.verdict(run)} {headline.what_binds(run)}"):
        yield line, ""
    yield from ((line, "") for line in _wrap(headline.certainty(run)))
    yield from ((line, "") for line in _percentiles(run))
    yield from ((line, "") for line in _facts(run))
    warnings = run.manifest.get("warnings") or []
    most_lines = 2 if len(warnings) <= MOST_WARNINGS else 1
    for text in warnings[:MOST_WARNINGS]:
        yield from ((line, "yellow") for line in _wrap(f"warning: {text}", indent=9, most_lines=most_lines))
    if len(warnings) > MOST_WARNINGS:
        yield f"{words.plural(len(warnings) - MOST_WARNINGS, 'more warning')}: see run.json", "yellow"
    yield f"run        {run.folder}", ""


def _percentiles(run: Run) -> Iterator[str]:
    rows = {r["metric"]: r for r in run.answer("latency") if r["samples"]}
    if not rows:
        return
    yield f"{'':11}" + "".join(f"{name:>12}" for name in ("p50", "p90", "p95", "p99"))
    for metric in METRICS:
        if metric in rows and metric in _NAMES:
            values = (words.milliseconds(rows[metric][f"{p}_ms"]) for p in ("p50", "p90", "p95", "p99"))
            yield f"{_NAMES[metric]:11}" + "".join(f"{value:>12}" for value in values)


def _facts(run: Run) -> Iterator[str]:
    row, through, memory = run.one("headline"), run.one("throughput"), run.one("kv_memory")
    say: Callable[[float | None], str] = words.number
    yield (
        f"throughput {say(row['completed_rps'])} requests/s, {say(row['output_tokens_per_s'])} tokens/s out; "
        f"goodput {say(through['goodput_rps'])} requests/s"
    )
    yield (
        f"KV memory  mean {words.share(memory['mean_share'])}, p95 {words.share(memory['p95_share'])}, peak "
        f"{words.share(memory['peak_share'])}; above 90 % for {words.share(memory['above_90_share'])} of time"
    )
    hits = words.share(row["hit_share"])
    yield f"cache      {hits} of prompt tokens found; {words.plural(row['preemptions'] or 0, 'preemption')}"
    yield from _observed(run)
    outcomes = run.manifest["counts"]["outcomes"]
    replayed = {name.replace("_", " "): n for name, n in outcomes.items() if n and name != "not_replayed"}
    ended = ", ".join(f"{words.count(n)} {name}" for name, n in replayed.items())
    yield from _wrap(f"requests   {ended or 'none'}", indent=11)
    rejected = run.manifest["trace"].get("rejected_records")
    unread = "" if rejected is None else f"{words.count(rejected)} unreadable, "
    yield f"records    {unread}{words.count(outcomes.get('not_replayed') or 0)} not replayed"


def _observed(run: Run) -> Iterator[str]:
    """Return how far the replay is from the times of the log, if it states any."""
    told = [
        f"{_NAMES[r['metric']]} {words.change(r['mean_error_share'])} (p95 {words.change(r['p95_error_share'])})"
        for r in run.answer("observed_error")
        if r["metric"] != "tpot"
    ]
    if told:
        yield from _wrap(f"observed   mean {', '.join(told)} against the log", indent=11)


def _wrap(text: str, indent: int = 0, most_lines: int | None = None) -> list[str]:
    """Return the text in lines that part no number from its unit."""
    lines = textwrap.wrap(
        words.together(text),
        WIDTH,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        max_lines=most_lines,
        placeholder=" ...",
    )
    return [line.replace("\u00a0", " ") for line in lines]
