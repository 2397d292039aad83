"""Tables of the report: rows of an answer in, text cells out, the same for page, Markdown and terminal."""

from collections.abc import Callable
from typing import Any

from pipeline.report import words
from pipeline.report.run import Row, Run
from pipeline.report.shapes import NAMES, Heading, Nothing, Table

MOST_ROWS = 40  # of a table by tenant, class or model; the rest is counted in a note

METRICS = ("ttft", "tpot", "itl", "itl_request_mean", "e2e", "queue")

MEANING = {
    "ttft": "arrival to first token",
    "tpot": "(E2E - TTFT) / (tokens - 1), per request",
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
    columns = ("mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")
    body = [
        [NAMES[m], MEANING[m], words.count(known[m]["samples"]), *(words.milliseconds(known[m][c]) for c in columns)]
        for m in METRICS
        if m in known
    ]
    heads = (Heading("metric", False), Heading("meaning", False), Heading("samples"))
    return Table(heads + tuple(Heading(c.removesuffix("_ms")) for c in columns), body)


def traffic(column: str) -> Callable[[Run, list[Row]], Table | Nothing]:
    """Return the table of traffic and service by tenant, class or model."""

    def build(run: Run, rows: list[Row]) -> Table | Nothing:
        if not rows or all(r[column] is None for r in rows):
            return Nothing(f"The trace names no {column}.")
        ordered = sorted(rows, key=lambda r: (-r["requests"], r[column] or ""))
        heads = (
            Heading(column, False), Heading("requests"), Heading("answered in full"), Heading("share of tokens"),
            Heading("cache hits"), Heading("TTFT p95"), Heading("TPOT p95"), Heading("E2E p95"), Heading("within SLO"),
        )  # fmt: skip
        body = [
            [
                r[column] if r[column] is not None else "(none)", words.count(r["requests"]), words.count(r["completed"]),
                words.share(r["token_share"]), words.share(r["hit_share"]), words.milliseconds(r["ttft_p95_ms"]),
                words.milliseconds(r["tpot_p95_ms"]), words.milliseconds(r["e2e_p95_ms"]), words.share(r["slo_share"]),
            ]
            for r in ordered[:MOST_ROWS]
        ]  # fmt: skip
        more = len(ordered) - MOST_ROWS
        return Table(
            heads, body, f"{words.count(more)} more with fewer requests are left out here." if more > 0 else ""
        )

    return build


def slo(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return limits, requests within them and what was missed, by class."""
    if not rows:
        return Nothing("No request was replayed, so there is nothing to hold against the SLO.")
    heads = (
        Heading("class", False), Heading("TTFT limit"), Heading("TPOT limit"), Heading("E2E limit"), Heading("requests"),
        Heading("within SLO"), Heading("TTFT missed"), Heading("TPOT missed"), Heading("E2E missed"),
        Heading("no full answer"), Heading("goodput, requests/s"),
    )  # fmt: skip
    body = [
        [
            r["class"] if r["class"] is not None else "(none)",
            *(words.milliseconds(r[f"{m}_slo_ms"]) for m in ("ttft", "tpot", "e2e")),
            words.count(r["requests"]), words.share(r["slo_share"]),
            *(words.count(r[f"{m}_missed"]) for m in ("ttft", "tpot", "e2e")),
            words.count(r["unanswered"]), words.number(r["goodput_rps"]),
        ]
        for r in rows[:MOST_ROWS]
    ]  # fmt: skip
    more = len(rows) - MOST_ROWS
    return Table(heads, body, f"{words.count(more)} more classes are left out here." if more > 0 else "")


def status(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return requests by status in the log and outcome of the replay."""
    if not rows:
        return Nothing("The trace holds no request.")
    heads = (
        Heading("status in the log", False), Heading("outcome", False), Heading("requests"), Heading("share"),
        Heading("prompt tokens"), Heading("tokens generated"),
    )  # fmt: skip
    body = [
        [
            r["log_status"], r["outcome"].replace("_", " "), words.count(r["requests"]), words.share(r["request_share"]),
            words.count(r["input_tokens"]), words.count(r["output_tokens"]),
        ]
        for r in rows
    ]  # fmt: skip
    return Table(heads, body)


def unfinished(run: Run, rows: list[Row]) -> Table | Nothing:
    """Return the first requests that got no full answer."""
    if not rows:
        return Nothing("Every replayed request got its full answer.")
    heads = (
        Heading("request", False), Heading("tenant", False), Heading("class", False), Heading("outcome", False),
        Heading("arrival"), Heading("stay"), Heading("prompt tokens"), Heading("tokens generated"), Heading("preemptions"),
    )  # fmt: skip
    body = [
        [
            r["request_id"], _or_dash(r["tenant"]), _or_dash(r["class"]), r["outcome"].replace("_", " "),
            words.seconds(r["arrival_s"]), words.seconds(r["stay_s"]), words.count(r["input_tokens"]),
            words.count(r["output_tokens"]), words.count(r["preemptions"]),
        ]
        for r in rows
    ]  # fmt: skip
    return Table(heads, body)


def listing(*lines: tuple[str, str, Callable[[Any], str]]) -> Callable[[Run, list[Row]], Table | Nothing]:
    """Return a table that sets out one row of an answer line by line: column, what it means, how it is written."""

    def build(run: Run, rows: list[Row]) -> Table | Nothing:
        if not rows:
            return Nothing("There is nothing to show: no request was replayed.")
        body = [[text, write(rows[0][column])] for column, text, write in lines]
        return Table((Heading("figure", False), Heading("value")), body)

    return build


def _or_dash(value: str | None) -> str:
    return words.UNKNOWN if value is None else value


def _rate(noun: str) -> Callable[[float | None], str]:
    return lambda value: words.UNKNOWN if value is None else f"{words.number(value)} {noun}/s"


TABLES: dict[str, Callable[[Run, list[Row]], Table | Nothing]] = {
    "latency": latency,
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
