"""Sessions to requests: the rows of all sessions that start in one slice of one class.

Every draw of a slice and class comes from a random stream of its own, so a slice can be made alone.
"""

import numpy as np
import numpy.typing as npt

from pipeline.ingest.synth import traffic as kinds
from pipeline.ingest.synth.prefix import BLOCK_TOKENS
from pipeline.ingest.synth.traffic import CLASSES, NO_LIMIT, Traffic

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE = -1
STATUSES = ("ok", "cancelled", "throttled", "error", "timeout", "rejected", "unknown")
OK, CANCELLED, THROTTLED, ERROR, TIMEOUT, REJECTED, UNKNOWN = range(7)
HTTP_STATUS = (200, 499, 429, 500, 408, 400, NONE)
ERROR_TYPE = (None, "client_disconnected", "rate_limit_exceeded", "internal_error", "timeout", "content_filter", None)
FINISH_REASONS = ("stop", "length", "tool_calls")

# Share of requests that fail first; those that are never repeated end a session, so they meet last turns only.
FAILURES = ((THROTTLED, 0.006), (ERROR, 0.003), (TIMEOUT, 0.002), (REJECTED, 0.003), (UNKNOWN, 0.002))
RETRYABLE = (THROTTLED, ERROR, TIMEOUT)
RETRIED = 0.6  # share of failures of a last turn that are tried once more
FIRST_TOKEN_US = 300_000
TIMEOUT_US = 60_000_000

ROW = np.dtype(
    [
        ("arrival_us", np.int64),
        ("key", np.int64),  # session, turn and attempt in one number; orders equal arrivals
        ("parent_key", np.int64),  # key of the turn before, NONE for a first turn
        ("parent", np.int64),  # number of that request in the trace, NONE until it is written
        ("session", np.int64),
        ("think_us", np.int64),
        ("input_tokens", np.int32),
        ("output_tokens", np.int32),
        ("reasoning_tokens", np.int32),
        ("max_tokens", np.int32),
        ("prefix_tokens", np.int32),
        ("turn", np.int16),
        ("attempt", np.int16),
        ("tenant", np.int16),
        ("application", np.int16),
        ("document", np.int16),
        ("companion", np.int16),
        ("system_blocks", np.int16),
        ("document_blocks", np.int16),
        ("companion_blocks", np.int16),
        ("klass", np.int8),
        ("status", np.int8),
        ("finish", np.int8),
        ("retried", np.bool_),
    ]
)


def rows_per_session(traffic: Traffic) -> float:
    """Return the mean number of rows a session gives, failed attempts that are repeated included."""
    turns = traffic.turns_per_session()
    retryable = sum(share for status, share in FAILURES if status in RETRYABLE)
    return turns + retryable * (turns - 1 + RETRIED)


def make(
    class_index: int, starts_us: Ints, first_session: int, n_tenants: int, rng: np.random.Generator
) -> npt.NDArray[np.void]:
    """Return ROW[n], every attempt of every turn of the sessions that start at `starts_us`, unsorted."""
    traffic = CLASSES[class_index]
    heads = _heads(traffic, class_index, starts_us, first_session, n_tenants, rng)
    turns = np.minimum(rng.geometric(traffic.end_probability, len(heads)), traffic.most_turns)
    rows = np.repeat(heads, turns)
    rows["turn"] = np.arange(len(rows)) - np.repeat(np.cumsum(turns) - turns, turns) + 1
    rows, carried = _tokens(rows, traffic, rng)
    last = np.append(rows["turn"][1:] == 1, True)[: len(rows)]
    failed = _failures(last, rng)
    again = np.isin(failed, RETRYABLE) & (~last | (rng.random(len(rows)) < RETRIED))
    _cover(rows, carried, last)
    retry_us = _times(rows, failed, again, traffic, rng)
    return _attempts(rows, failed, again, retry_us, last, traffic)


def _heads(
    traffic: Traffic, class_index: int, starts_us: Ints, first_session: int, n_tenants: int, rng: np.random.Generator
) -> npt.NDArray[np.void]:
    """Return one row per session with what all its turns have in common."""
    n = len(starts_us)
    heads = np.zeros(n, ROW)
    heads["arrival_us"] = starts_us
    heads["session"] = first_session + np.arange(n)
    heads["klass"] = class_index
    heads["tenant"] = kinds.pick_weighted(rng, kinds.tenant_weights(class_index, n_tenants), n)
    heads["application"] = NONE if traffic.one_system_prompt else heads["tenant"]
    heads["system_blocks"] = np.array(traffic.system_blocks)[heads["tenant"] % len(traffic.system_blocks)]
    heads["document"] = heads["companion"] = NONE
    for shared, item in zip(traffic.shared, ("document", "companion"), strict=False):
        heads[item] = kinds.pick_popular(rng, shared.items, n)
        # The size belongs to the item, not to the request: a fixed scatter over the catalogue.
        scatter = heads["document"] * 7 + heads["companion"] * 5 + heads["tenant"] * 3
        heads[f"{item}_blocks"] = shared.low_blocks + scatter % (shared.high_blocks - shared.low_blocks + 1)
    shares = np.array([share for share, _ in traffic.limits])
    heads["max_tokens"] = np.array([limit for _, limit in traffic.limits])[kinds.pick_weighted(rng, shares, n)]
    return heads


def _tokens(
    rows: npt.NDArray[np.void], traffic: Traffic, rng: np.random.Generator
) -> tuple[npt.NDArray[np.void], Ints]:
    """Fill in token counts; return the turns that fit the context and what each adds to the next prompt."""
    n = len(rows)
    new = np.where(rows["turn"] == 1, traffic.first.draw(rng, n), traffic.later.draw(rng, n))
    answer = traffic.answer.draw(rng, n)
    limit = np.where(rows["max_tokens"] == NO_LIMIT, answer, rows["max_tokens"])
    cut, answer = answer > limit, np.minimum(answer, limit)
    leaves = rng.random(n) < traffic.cancelled
    answer = np.where(leaves, np.maximum(1, (answer * rng.random(n)).astype(np.int64)), answer)
    rows["status"] = np.where(leaves, CANCELLED, OK)
    rows["finish"] = np.where(leaves, NONE, np.where(cut, FINISH_REASONS.index("length"), FINISH_REASONS.index("stop")))
    reasoning = np.full(n, NONE)
    carried = answer
    if traffic.reasoning_share:
        share = rng.beta(20 * traffic.reasoning_share, 20 * (1 - traffic.reasoning_share), n)
        reasoning = (answer * share).astype(np.int64)
        carried = answer - reasoning
    grown = new + np.where(rows["turn"] == 1, _shared_tokens(rows), np.roll(carried, 1))
    prompt = _running_sum(grown, rows["turn"])
    rows["input_tokens"], rows["output_tokens"], rows["reasoning_tokens"] = prompt, answer, reasoning
    fits = _running_sum((prompt + answer > traffic.context_tokens).astype(np.int64), rows["turn"]) == 0
    return rows[fits], carried[fits]


def _shared_tokens(rows: npt.NDArray[np.void]) -> Ints:
    blocks = rows["system_blocks"].astype(np.int64) + rows["document_blocks"] + rows["companion_blocks"]
    return blocks * BLOCK_TOKENS


def _running_sum(values: Ints, turn: npt.NDArray) -> Ints:
    """Return the sum from the first turn of its session to each row."""
    if len(values) == 0:
        return values
    sums = np.cumsum(values)
    first = np.flatnonzero(turn == 1)
    lengths = np.diff(np.append(first, len(values)))
    return sums - np.repeat(sums[first] - values[first], lengths)


def _failures(last: Bools, rng: np.random.Generator) -> Ints:
    """Return the status of the attempt that fails, OK where none does."""
    u = rng.random(len(last))
    failed = np.full(len(last), OK)
    edge = 0.0
    for status, share in FAILURES:
        hit = (u >= edge) & (u < edge + share)
        failed[hit if status in RETRYABLE else hit & last] = status
        edge += share
    return failed


def _cover(rows: npt.NDArray[np.void], carried: Ints, last: Bools) -> None:
    """Fill in `prefix_tokens`: the leading tokens that some other request may also have."""
    prompt, answer = rows["input_tokens"], rows["output_tokens"]
    continued = prompt + np.where(carried == answer, answer, 0)
    before = np.where(rows["turn"] == 1, _shared_tokens(rows), np.roll(continued, 1))
    rows["prefix_tokens"] = np.where(last, before, continued)


def _times(rows: npt.NDArray[np.void], failed: Ints, again: Bools, traffic: Traffic, rng: np.random.Generator) -> Ints:
    """Move each turn's arrival to its first attempt; return how long after that its retry comes."""
    n = len(rows)
    think = np.exp(np.log(traffic.think_median_s * 1e6) + traffic.think_sigma * rng.standard_normal(n))
    think = np.where(rows["turn"] == 1, 0, np.rint(np.minimum(think, 3.6e9)).astype(np.int64))
    pause = np.rint(np.exp(np.log(3e6) + 0.7 * rng.standard_normal(n))).astype(np.int64)
    retry_us = np.where(again, pause + np.where(failed == TIMEOUT, TIMEOUT_US, 0), 0)
    busy = retry_us + FIRST_TOKEN_US + rows["output_tokens"].astype(np.int64) * traffic.token_us
    rows["arrival_us"] += _running_sum(np.where(rows["turn"] == 1, 0, np.roll(busy, 1) + think), rows["turn"])
    rows["think_us"] = np.where(rows["turn"] == 1, NONE, think)
    return retry_us


def _attempts(
    rows: npt.NDArray[np.void], failed: Ints, again: Bools, retry_us: Ints, last: Bools, traffic: Traffic
) -> npt.NDArray[np.void]:
    """Add the failed attempts, number all attempts and link every turn to the one before."""
    if not traffic.stream and traffic.sessions:
        rows["finish"] = np.where((rows["finish"] == 0) & ~last, FINISH_REASONS.index("tool_calls"), rows["finish"])
    rows["retried"] = again
    tries = rows[again]
    rows["attempt"] = again
    rows["arrival_us"] += retry_us
    rows["think_us"] += np.where(rows["turn"] == 1, 0, retry_us)
    for part, status in ((tries, failed[again]), (rows, np.where(again, OK, failed))):
        bad = status != OK
        part["status"] = np.where(bad, status, part["status"])
        part["input_tokens"] = np.where(status == THROTTLED, NONE, part["input_tokens"])
        for column in ("output_tokens", "reasoning_tokens", "finish"):
            part[column] = np.where(bad, NONE, part[column])
        part["prefix_tokens"] = np.where(bad, 0, part["prefix_tokens"])
    rows["key"] = (rows["session"] * 64 + rows["turn"]) * 2 + rows["attempt"]
    tries["key"] = (tries["session"] * 64 + tries["turn"]) * 2
    rows["parent_key"] = np.where(rows["turn"] == 1, NONE, np.roll(rows["key"], 1))
    tries["parent_key"] = rows["parent_key"][again]
    both = np.concatenate((tries, rows))
    both["parent"] = NONE
    return both
