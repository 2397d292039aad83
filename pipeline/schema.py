"""Every table that crosses a file boundary: type, unit and one sentence per column.

Replay and queries meet only at these files. `arrow_schema` puts the sentences into the Parquet
metadata, so a reader of a file needs no other page.
"""

from dataclasses import dataclass

import pyarrow as pa

TRACE_VERSION = "trace/1"
RUN_VERSION = "run/2"
PURCHASE_VERSION = "purchase/1"

REQUEST_STATUSES = ("ok", "error", "throttled", "rejected", "cancelled", "timeout", "unknown")
OUTCOMES = (
    "finished",
    "max_model_len",
    "rejected",
    "timed_out",
    "cancelled",
    "queue_full",
    "never_finished",
    "not_replayed",
)
CAPACITY_CLASSES = ("on_demand", "provisioned", "spillover")
PREFIX_KINDS = ("token_blocks", "text_blocks", "given_hashes", "session", "cached_count")
REJECT_REASONS = (
    "bad_json",
    "bad_row",
    "missing_arrival",
    "bad_timestamp",
    "negative_tokens",
    "not_generation",
    "duplicate",
    "superseded",
    "duplicate_layer",
    "orphan_part",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a stored table."""

    name: str
    type: pa.DataType
    doc: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One stored table: its version, what a row is, and its columns."""

    name: str
    version: str
    grain: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """Return the column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


_LABEL = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

_C = Column

TRACE = Table(
    "trace",
    TRACE_VERSION,
    "one row per request, by arrival, then by place in the input",
    (
        _C("request_id", pa.string(), "id in the source; `<source>:<n>` where it has none"),
        _C("logical_id", pa.string(), "what joins the attempts of one call", True),
        _C("attempt", pa.int16(), "0 for the first attempt of a logical call, by arrival"),
        _C("arrival_time", _TIME, "when the request reached the logging point; null for relative clocks", True),
        _C("arrival_us", pa.int64(), "microseconds from the earliest valid record of the import"),
        _C("input_tokens", pa.int32(), "whole prompt in tokens, cached part included; null = unknown", True),
        _C("output_tokens", pa.int32(), "all generated tokens, reasoning included; null = unknown", True),
        _C("cached_tokens", pa.int32(), "part of input_tokens read from a prefix cache; null = not reported", True),
        _C("cache_write_tokens", pa.int32(), "part of input_tokens written to a provider's cache", True),
        _C("reasoning_tokens", pa.int32(), "part of output_tokens", True),
        _C("max_tokens", pa.int32(), "the request's own limit on generated tokens", True),
        _C("model", _LABEL, "model as served", True),
        _C("deployment", _LABEL, "endpoint, group or service it was asked of", True),
        _C("tenant", _LABEL, "team, subscription, role or project", True),
        _C("class", _LABEL, "kind of traffic, from the log or by the rule in traces/README.md", True),
        _C("session_id", pa.string(), "conversation", True),
        _C("turn", pa.int32(), "place in the conversation, from 1", True),
        _C("parent_request_id", pa.string(), "request that this one follows", True),
        _C("after_request_id", pa.string(), "closed loop: starts after this request ended", True),
        _C("think_us", pa.int64(), "closed loop: microseconds from that end to this start", True),
        _C("priority", pa.int32(), "lower is more urgent", True),
        _C("n", pa.int16(), "samples asked for"),
        _C("service_tier", _LABEL, "raw value of the source", True),
        _C("capacity_class", _LABEL, "on_demand, provisioned or spillover", True),
        _C("stream", pa.bool_(), "tokens were streamed; null where the log cannot tell", True),
        _C("status", _LABEL, "ok, error, throttled, rejected, cancelled, timeout or unknown"),
        _C("http_status", pa.int16(), "as logged", True),
        _C("error_type", pa.string(), "as logged", True),
        _C("finish_reason", pa.string(), "as logged", True),
        _C("served_from", _LABEL, "engine or response_cache"),
        _C("obs_ttft_us", pa.int64(), "observed time to first token, microseconds", True),
        _C("obs_e2e_us", pa.int64(), "observed total time, microseconds", True),
        _C("obs_queue_us", pa.int64(), "observed time in queue, microseconds", True),
        _C(
            "replayable",
            pa.bool_(),
            "status ok, unknown or cancelled, served by the engine, input_tokens > 0 and output_tokens > 0",
        ),
        _C("flags", pa.list_(pa.string()), "what was repaired or assumed, sorted"),
        _C("prefix_hashes", pa.list_(pa.uint64()), "chained block hashes: prompt first, then generated tokens", True),
        _C("prefix_block_tokens", pa.int32(), "tokens per hashed block", True),
        _C("prefix_tokens", pa.int32(), "leading tokens that prefix_hashes cover, generated ones included", True),
        _C("prefix_kind", pa.string(), "token_blocks, text_blocks, given_hashes, session or cached_count", True),
    ),
)

REJECTS = Table(
    "rejects",
    TRACE_VERSION,
    "one row per record that could not become a request, in input order",
    (
        _C("source_file", pa.string(), "file name of the record, without folders"),
        _C("source_row", pa.int64(), "line, row or element number in that file, from 1"),
        _C("locator", pa.string(), "the same place in the words of the source format, as `line 7`"),
        _C("reason", pa.string(), "one of the reasons in traces/README.md"),
        _C("detail", pa.string(), "column and what was wrong with it; never text of a prompt", True),
    ),
)

REQUESTS = Table(
    "requests",
    RUN_VERSION,
    "one row per trace row, in trace order",
    (
        _C("request", pa.int64(), "row number in the trace, from 0"),
        _C("request_id", pa.string(), "id in the trace"),
        _C("arrival_time", _TIME, "logged arrival; null for relative clocks", True),
        _C("tenant", _LABEL, "as in the trace", True),
        _C("model", _LABEL, "as in the trace", True),
        _C("deployment", _LABEL, "as in the trace", True),
        _C("class", _LABEL, "as in the trace", True),
        _C("session_id", pa.string(), "as in the trace", True),
        _C("turn", pa.int32(), "as in the trace", True),
        _C("log_status", _LABEL, "status in the log"),
        _C("obs_ttft_us", pa.int64(), "observed time to first token, microseconds", True),
        _C("obs_e2e_us", pa.int64(), "observed total time, microseconds", True),
        _C("outcome", _LABEL, "what the replay made of it: " + ", ".join(OUTCOMES)),
        _C("arrival_ns", pa.int64(), "replayed arrival, nanoseconds from the start of the trace"),
        _C("first_scheduled_ns", pa.int64(), "start of the first step that ran it", True),
        _C("first_token_ns", pa.int64(), "end of the step that sampled its first token", True),
        _C("finish_ns", pa.int64(), "when it left: end of its last step, or when its client left", True),
        _C("first_token_step", pa.int64(), "step of its replica that sampled its first token", True),
        _C("finish_step", pa.int64(), "step of its replica that sampled its last token", True),
        _C("input_tokens", pa.int32(), "prompt tokens", True),
        _C("output_tokens", pa.int32(), "tokens generated in the replay; null if not replayed", True),
        _C("cached_tokens", pa.int32(), "prompt tokens found in the prefix cache at first admission", True),
        _C("resumed_cached_tokens", pa.int64(), "tokens found in the cache at resumptions, summed", True),
        _C("computed_tokens", pa.int64(), "tokens put through the model for it, recomputation included", True),
        _C("preemptions", pa.int32(), "times it was preempted", True),
        _C("replica", pa.int16(), "replica that served it", True),
    ),
)

STEPS = Table(
    "steps",
    RUN_VERSION,
    "one row per engine step, numbered per replica",
    (
        _C("step", pa.int64(), "number of the step in its replica, from 0"),
        _C("scheduled_ns", pa.int64(), "when the scheduler decided it"),
        _C("start_ns", pa.int64(), "when it began to run"),
        _C("duration_ns", pa.int64(), "how long it ran"),
        _C("running", pa.int32(), "requests running after the decision"),
        _C("waiting", pa.int32(), "requests waiting after the decision"),
        _C("scheduled", pa.int32(), "requests that got tokens in the step"),
        _C("sampled", pa.int32(), "requests that sampled a token in the step"),
        _C("prefill_tokens", pa.int32(), "tokens of prefill chunks"),
        _C("decode_tokens", pa.int32(), "decoding requests, one token each"),
        _C("context_tokens", pa.int64(), "sum over scheduled requests of tokens in KV after the step"),
        _C("decode_context_tokens", pa.int64(), "the same over decoding requests alone"),
        _C("prefill_area", pa.float64(), "sum over prefill chunks of c * (p + c / 2): c new tokens after p in KV"),
        _C("held_tokens", pa.int64(), "tokens in KV of all running requests after the step, shared ones once for each"),
        _C("admitted", pa.int32(), "requests started for the first time"),
        _C("resumed", pa.int32(), "preempted requests started again"),
        _C("preempted", pa.int32(), "requests preempted"),
        _C("hit_tokens", pa.int32(), "tokens found in the prefix cache by the started requests"),
        _C("free_blocks", pa.int32(), "KV blocks used by no request, after the decision"),
        _C("cached_blocks", pa.int32(), "distinct block contents in the prefix cache, after the decision"),
        _C("evicted_blocks", pa.int32(), "cached blocks handed out for new content in the decision"),
    ),
)

GAPS = Table(
    "gaps",
    RUN_VERSION,
    "one row per token gap that is not one step of its replica",
    (
        _C("request", pa.int64(), "row number in the trace"),
        _C("replica", pa.int16(), "replica that served it"),
        _C("step", pa.int64(), "step that sampled the token after the gap"),
        _C("previous_step", pa.int64(), "step that sampled the token before the gap"),
        _C("gap_ns", pa.int64(), "time between the ends of the two steps"),
    ),
)

DECISIONS = Table(
    "decisions",
    RUN_VERSION,
    "one row per step and request, in the order of the decision; only with --decisions",
    (
        _C("step", pa.int64(), "step of the replica"),
        _C("replica", pa.int16(), "replica that decided"),
        _C("position", pa.int32(), "place in the step; for a preemption, its place among the preempted"),
        _C("request", pa.int64(), "row number in the trace"),
        _C(
            "event",
            pa.int8(),
            "0 running, 1 first admission, 2 resumption, 3 preempted (its KV is lost), "
            "4 swapped out, 5 swapped in, 6 dropped as it can never fit",
        ),
        _C("scheduled_tokens", pa.int32(), "tokens given in the step; 0 if preempted"),
        _C("computed_tokens", pa.int32(), "tokens in KV before the step; if preempted, the tokens lost"),
        _C("is_prefill", pa.bool_(), "the tokens belong to a prompt or to a recomputation"),
        _C("samples", pa.bool_(), "the step samples a token for it"),
        _C("hit_tokens", pa.int32(), "tokens found in the prefix cache (events 1 and 2)"),
    ),
)

PURCHASE_MINUTES = Table(
    "purchase_minutes",
    PURCHASE_VERSION,
    "one row per minute of the log, empty ones included",
    (
        _C("minute", pa.int64(), "minutes since the first request"),
        _C("requests", pa.int64(), "requests that arrived"),
        _C("weighted_tokens", pa.float64(), "what they count against capacity, in plain input tokens"),
        _C("units", pa.float64(), "units that would have served just this minute"),
        _C("raw_tokens", pa.int64(), "their input and output tokens"),
        _C("payg_usd", pa.float64(), "their pay-as-you-go price, USD"),
        _C("served_units", pa.float64(), "what the chosen purchase served, in units; null if none saves money", True),
    ),
)

PURCHASE_SIZES = Table(
    "purchase_sizes",
    PURCHASE_VERSION,
    "one row per number of units that was replayed through the admission rule",
    (
        _C("units", pa.int64(), "units bought"),
        _C("accepted", pa.int64(), "requests that the units served"),
        _C("spilled", pa.int64(), "requests that went to pay-as-you-go"),
        _C("refused", pa.int64(), "requests whose clients gave up"),
        _C("throttled", pa.int64(), "refusals (429), every attempt counted"),
        _C(
            "delay_s",
            pa.float64(),
            "time lost to refusals, seconds: waits before retries, and the detour of what spills",
        ),
        _C("spilled_weighted_tokens", pa.float64(), "weighted tokens that the units did not serve"),
        _C("spilled_raw_tokens", pa.int64(), "input and output tokens that the units did not serve"),
        _C("spilled_usd", pa.float64(), "pay-as-you-go price of what spilled or was refused for good in the log, USD"),
        _C("used_mean", pa.float64(), "served over bought, mean over minutes; null without units", True),
        _C("used_p95", pa.float64(), "the same, 95th percentile", True),
        _C("used_max", pa.float64(), "the same, highest minute", True),
    ),
)

PURCHASE_TERMS = Table(
    "purchase_terms",
    PURCHASE_VERSION,
    "one row per term at which units are sold",
    (
        _C("term", pa.string(), "name of the term"),
        _C("months", pa.float64(), "commitment in months; 0: by the hour"),
        _C("usd_per_unit_month", pa.float64(), "price of a unit for a month, USD"),
        _C("base_units", pa.int64(), "units bought at this or a longer term where terms are layered"),
        _C("cancellation", pa.string(), "what ending it early costs"),
        _C("source", pa.string(), "who published the price"),
        _C("as_of", pa.string(), "date of the price", True),
        _C("withheld", pa.string(), "why the term is not recommended, whatever it costs", True),
    ),
)

PURCHASE_SENSITIVITIES = Table(
    "purchase_sensitivities",
    PURCHASE_VERSION,
    "one row per changed assumption",
    (
        _C("place", pa.int64(), "place in the table, from 1"),
        _C("parameter", pa.string(), "what is changed; rule: an admission rule that is not published"),
        _C("change", pa.string(), "the change in words"),
        _C("factor", pa.float64(), "by how much it is multiplied", True),
        _C("units", pa.int64(), "units that are best then; for a rule, the units replayed"),
        _C("term", pa.string(), "term that is best then", True),
        _C("usd_per_month", pa.float64(), "cost of a month then, USD"),
        _C("payg_usd_per_month", pa.float64(), "pay-as-you-go price of a month then, USD"),
        _C("spilled_share", pa.float64(), "share of weighted tokens that spill; for rules", True),
        _C("flips_at", pa.float64(), "factor nearest to 1 where buying begins or stops to pay", True),
    ),
)

PURCHASE_DAYS = Table(
    "purchase_days",
    PURCHASE_VERSION,
    "one row per whole day of the log, from its first request on",
    (
        _C("day", pa.int64(), "days since the first request"),
        _C("payg_usd", pa.float64(), "pay-as-you-go price of the day, USD"),
        _C("saved_usd", pa.float64(), "saved by the recommended purchase, else by the cheapest one, USD"),
    ),
)

PURCHASE_HOURS = Table(
    "purchase_hours",
    PURCHASE_VERSION,
    "one row per hour of the day in the log, where units are sold by the hour",
    (
        _C("hour", pa.int64(), "hour of the day, UTC; of the log where it has no dates"),
        _C("units", pa.int64(), "units worth having by the hour above the recommended ones"),
        _C("saved_usd_month", pa.float64(), "what they save in a month, USD"),
    ),
)

PURCHASE_OWN = Table(
    "purchase_own",
    PURCHASE_VERSION,
    "one row per number of own replicas that was replayed",
    (
        _C("replicas", pa.int64(), "replicas of the configured deployment"),
        _C("gpus", pa.int64(), "accelerators of these replicas"),
        _C("slo_share", pa.float64(), "share of requests within the SLO", True),
        _C("keeps_slo", pa.bool_(), "whether that is enough"),
    ),
)

PURCHASE_TABLES = (
    PURCHASE_MINUTES,
    PURCHASE_SIZES,
    PURCHASE_TERMS,
    PURCHASE_SENSITIVITIES,
    PURCHASE_DAYS,
    PURCHASE_HOURS,
    PURCHASE_OWN,
)
TABLES = {table.name: table for table in (TRACE, REJECTS, REQUESTS, STEPS, GAPS, DECISIONS, *PURCHASE_TABLES)}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table, with version, grain and column sentences as metadata."""
    fields = [pa.field(c.name, c.type, c.nullable, {"doc": c.doc}) for c in table.columns]
    return pa.schema(fields, {"servecast": table.version, "table": table.name, "grain": table.grain})
