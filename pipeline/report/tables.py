"""Tables of the report: rows of an answer in, text cells out, the same for page, Markdown and terminal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeline.report import words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import NAMES, NOT_OBSERVED, Heading, Nothing, Table

MOST_ROWS = 40  # of a table; the rest is counted in a note

METRICS = ("ttft", "tpot", "itl", "itl_request_mean", "e2e", "queue")

MEANING = {
    "ttft": "arrival to first token",
    "tpot": "(E2E - TTFT) / (tokens - 1)",
    "itl": "gap between tokens, all gaps pooled",
    "itl_request_mean": "mean gap of a request",
    "e2e": "arrival to last token",
    "queue": "arrival to start of the first step",
}


def latency(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return percentiles by metric."""
    known = {r["metric"]: r for r in rows if r["samples"]}
    if not known:
        return Nothing("No request got an answer, so there are no latencies.")
    columns = ("p50", "p90", "p95", "p99", "max", "mean")
    body = [
        [
            NAMES[m],
            *(words.milliseconds(known[m][f"{c}_ms"]) for c in columns),
            words.count(known[m]["samples"]),
            MEANING[m],
        ]
        for m in METRICS
        if m in known
    ]
    heads = (Heading("metric", False), *map(Heading, columns), Heading("samples"), Heading("meaning", False))
    return Table(heads, body)


def observed_error(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return what log and replay say by metric, and the error of the replay."""
    if not rows:
        return Nothing(NOT_OBSERVED)
    figures = ("mean", "p50", "p95", "p99")
    sides = [
        (f"{side}_{of}_ms", f"{of}, {name}")
        for of in figures
        for side, name in (("observed", "log"), ("predicted", "replay"))
    ]
    columns: list[tuple[str, str, Callable[[Any], str]]] = [("metric", "metric", NAMES.__getitem__)]
    for place, (column, heading) in enumerate(sides):
        columns.append((heading, column, words.milliseconds))
        if place % 2:
            columns.append(("error", f"{figures[place // 2]}_error_share", words.change))
    columns += [("by request", "request_error_share", words.share), ("requests", "requests", words.count)]
    table = _table(rows, *columns)
    return replace(table, headings=(Heading("metric", False), *table.headings[1:]))


def steady_latency(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return percentiles by metric of the steady state."""
    if not run.one("steady_state")["settled"]:
        return Nothing("The number of running requests never settles, so no part of the run is a steady state.")
    return latency(run, rows)


def traffic(column: str) -> Callable[[Run, list[Row]], Table | Nothing]:
    """Return the table of traffic and service by tenant, class or model."""

    def build(run: Run, rows: list[Row]) -> Table | Nothing:
        if not rows or all(r[column] is None for r in rows):
            return Nothing(f"The trace names no {column}.")
        return _table(
            sorted(rows, key=lambda r: (-r["requests"], r[column] or "")),
            (column, column, _label),
            ("requests", "requests", words.count),
            ("answered in full", "completed", words.count),
            ("share of tokens", "token_share", words.share),
            ("cache hits", "hit_share", words.share),
            ("TTFT p95", "ttft_p95_ms", words.milliseconds),
            ("TPOT p95", "tpot_p95_ms", words.milliseconds),
            ("E2E p95", "e2e_p95_ms", words.milliseconds),
            ("within SLO", "slo_share", words.share),
        )

    return build


def slo(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return limits, requests within them and what was missed, by class."""
    if not rows:
        return Nothing("No request was replayed, so there is nothing to hold against the SLO.")
    return _table(
        sorted(rows, key=lambda r: (-r["requests"], r["class"] or "")),
        ("class", "class", _label),
        ("TTFT limit", "ttft_slo_ms", words.milliseconds),
        ("TPOT limit", "tpot_slo_ms", words.milliseconds),
        ("E2E limit", "e2e_slo_ms", words.milliseconds),
        ("requests", "requests", words.count),
        ("within SLO", "slo_share", words.share),
        ("TTFT missed", "ttft_missed", words.count),
        ("TPOT missed", "tpot_missed", words.count),
        ("E2E missed", "e2e_missed", words.count),
        ("no full answer", "unanswered", words.count),
        ("goodput, requests/s", "goodput_rps", words.number),
    )


def status(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return requests by status in the log and outcome of the replay."""
    if not rows:
        return Nothing("The trace holds no request.")
    return _table(
        rows,
        ("status in the log", "log_status", _label),
        ("outcome", "outcome", _outcome),
        ("requests", "requests", words.count),
        ("share", "request_share", words.share),
        ("prompt tokens", "input_tokens", words.count),
        ("tokens generated", "output_tokens", words.count),
    )


def unfinished(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return the first requests that got no full answer."""
    if not rows:
        return Nothing("No replayed request was left without its full answer.")
    return _table(
        rows,
        ("request", "request_id", _label),
        ("tenant", "tenant", _label),
        ("class", "class", _label),
        ("outcome", "outcome", _outcome),
        ("arrival", "arrival_s", words.seconds),
        ("stay", "stay_s", words.seconds),
        ("prompt tokens", "input_tokens", words.count),
        ("tokens generated", "output_tokens", words.count),
        ("preemptions", "preemptions", words.count),
    )


def _table(rows: list[Row], *columns: tuple[str, str, Callable[[Any], str]]) -> Table:
    """Return the rows as text: heading of each column, its name in the answer, and how it is written."""
    headings = tuple(Heading(text, write not in (_label, _outcome)) for text, _, write in columns)
    cells = [[write(row[name]) for _, name, write in columns] for row in rows[:MOST_ROWS]]
    more = len(rows) - MOST_ROWS
    return Table(headings, cells, f"{words.count(more)} more rows are left out here." if more > 0 else "")


def _label(value: str | None) -> str:
    return "(none)" if value is None else value


def _outcome(value: str) -> str:
    return value.replace("_", " ")


def listing(*lines: tuple[str, str, Callable[[Any], str]]) -> Callable[[Run, list[Row]], Table | Nothing]:
    """Return a table that sets out one row of an answer line by line: column, what it means, how it is written."""

    def build(run: Run, rows: list[Row]) -> Table | Nothing:
        if not rows:
            return Nothing("There is nothing to show: no request ran.")
        body = [[text, write(rows[0][column])] for column, text, write in lines]
        return Table((Heading("figure", False), Heading("value")), body)

    return build


def _rate(noun: str) -> Callable[[float | None], str]:
    return lambda value: words.UNKNOWN if value is None else f"{words.number(value)} {noun}/s"


TABLES: dict[str, Callable[[Run, list[Row]], Table | Nothing]] = {
    "latency": latency,
    "observed_error": observed_error,
    "steady_latency": steady_latency,
    "steady": listing(
        ("from_s", "warm-up ends, from the start of the trace", words.seconds),
        ("before_requests", "requests that arrived before", words.count),
        ("to_s", "last arrival", words.seconds),
        ("after_s", "from there to the last event", words.seconds),
        ("requests", "requests that arrived between", words.count),
        ("running_mean", "requests running, mean over steps", words.number),
        ("output_tokens_per_s", "tokens generated, by the time they were made", _rate("tokens")),
    ),
    "slo": slo,
    "status": status,
    "unfinished": unfinished,
    "by_tenant": traffic("tenant"),
    "by_class": traffic("class"),
    "by_model": traffic("model"),
    "throughput": listing(
        ("offered_rps", "offered", _rate("requests")),
        ("completed_rps", "answered in full", _rate("requests")),
        ("goodput_rps", "goodput: within the SLO", _rate("requests")),
        ("input_tokens_per_s", "prompt tokens", _rate("tokens")),
        ("computed_tokens_per_s", "tokens put through the model", _rate("tokens")),
        ("output_tokens_per_s", "tokens generated", _rate("tokens")),
        ("goodput_output_tokens_per_s", "tokens generated within the SLO", _rate("tokens")),
        ("duration_s", "first arrival to last event", words.seconds),
    ),
    "kv_memory": listing(
        ("usable_blocks", "KV blocks that requests can use", words.count),
        ("mean_share", "in use, mean over time", words.share),
        ("p95_share", "in use, not exceeded 95 % of the time", words.share),
        ("peak_share", "in use, peak", words.share),
        ("above_90_share", "time with more than 90 % in use", words.share),
        ("cached_mean_share", "holding cached prefixes, mean over time", words.share),
        ("evicted_blocks", "cached blocks given away to new content", words.count),
    ),
    "queue": listing(
        ("waiting_share", "time with someone waiting", words.share),
        ("mean_requests", "requests waiting, mean over time", words.number),
        ("p95_requests", "requests waiting, not exceeded 95 % of the time", words.count),
        ("peak_requests", "requests waiting, peak", words.count),
        ("wait_p50_ms", "queue time, median", words.milliseconds),
        ("wait_p95_ms", "queue time, 95th percentile", words.milliseconds),
        ("wait_max_ms", "queue time, longest", words.milliseconds),
    ),
    "steps": listing(
        ("steps", "steps", words.count),
        ("busy_share", "time in which a step ran", words.share),
        ("step_p50_ms", "duration, median", words.milliseconds),
        ("step_p95_ms", "duration, 95th percentile", words.milliseconds),
        ("step_max_ms", "duration, longest", words.milliseconds),
        ("batch_time_mean", "requests in a step, mean over step time", words.number),
        ("batch_max", "requests in a step, most", words.count),
        ("tokens_mean", "tokens in a step, mean", words.number),
        ("prefill_step_share", "steps with prefill", words.share),
    ),
    "preemptions": listing(
        ("preemptions", "preemptions", words.count),
        ("requests_preempted", "requests preempted at least once", words.count),
        ("preempted_share", "the same, share of requests that ran", words.share),
        ("computed_tokens", "tokens put through the model", words.count),
        ("recomputed_tokens", "of these computed again after a preemption", words.count),
        ("recomputed_share", "the same, share", words.share),
    ),
    "prefix_cache": listing(
        ("prompt_tokens", "prompt tokens of requests that ran", words.count),
        ("hit_tokens", "found in the prefix cache", words.count),
        ("hit_share", "the same, share", words.share),
        ("estimated_us_per_token", "estimate: step time of one more prefill token, µs", words.number),
        ("estimated_saved_s", "estimate: step time saved", words.seconds),
        ("estimated_saved_share", "estimate: the same, share of step time without a cache", words.share),
    ),
}
