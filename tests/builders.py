"""Traces on one line: `trace("0us 100>20, 50us 30>5 prefix=a")`.

Requests are separated by commas, the words of a request by spaces:

    TIME INPUT>OUTPUT [word ...]

    TIME            arrival: a number with us, ms or s
    INPUT>OUTPUT    prompt tokens and tokens it generates
    prefix=a        the whole prompt is text `a`: requests with the same name share their leading tokens
    prefix=a:64     so are its first 64 tokens only; the rest is its own
    follows=0       a later turn: the prompt begins with prompt and output of request 0, the rest is its own
    covered=prompt  prefix hashes end with the prompt; default: they cover the generated tokens too
    covered=70      prefix hashes cover the first 70 tokens
    covered=0       no prefix hashes
    priority=1      lower is more urgent
    cancelled       the client leaves after OUTPUT tokens
    status=error    as logged; other than ok, unknown and cancelled it is not replayed
    tenant=x class=x model=x deployment=x session=x turn=2   identity columns
    after=0         waits for the end of request 0; after=0+5ms: thinks for 5 ms after that
    times=3         three such requests, each with a text of its own where no prefix names one

Rows keep the order in which they are written; arrivals must not fall.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline import schema
from tests import cases, oracle

MICROSECONDS = {"us": 1, "ms": 1_000, "s": 1_000_000}
LABELS = {"tenant": "tenant", "class": "class", "model": "model", "deployment": "deployment", "session": "session_id"}
SPREAD = 0x9E3779B97F4A7C15  # odd, so multiplying by it modulo 2**64 keeps different numbers different
OWN = 2**41  # stream of a request's own prompt tokens: OWN + row

Segment = tuple[int, int, int]  # (stream, start, tokens): two tokens are equal iff stream and offset are


@dataclass(frozen=True, slots=True)
class Row:
    """One request. `prompt` are the segments of its prompt; generated tokens are always its own."""

    arrival_us: int
    input_tokens: int
    output_tokens: int
    prompt: tuple[Segment, ...] = ()  # none: all its own
    covered_tokens: int | None = None  # leading tokens with prefix hashes; None: prompt and output
    block_tokens: int = 16  # tokens per prefix hash
    priority: int = 0
    status: str = "ok"
    labels: tuple[tuple[str, Any], ...] = ()  # further trace columns
    after: int | None = None  # row whose end it waits for
    think_us: int = 0

    @property
    def replayable(self) -> bool:
        return self.status in ("ok", "unknown", "cancelled") and self.input_tokens > 0 and self.output_tokens > 0


class Trace:
    """Requests with token identity, in the forms that engines and readers take.

    `prefix_hashes[r]` covers the first `prefix_tokens[r]` tokens of row r in blocks of `rows[r].block_tokens`,
    the last one partial where they do not divide. The values spread over all of uint64.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        arrivals = [row.arrival_us for row in rows]
        if arrivals != sorted(arrivals):
            raise ValueError(f"arrivals fall: {arrivals}")
        self.rows = tuple(rows)
        self.prefix_tokens = [_covered(row) for row in rows]
        self.prefix_hashes = _hashes(self.rows, self.prefix_tokens)

    def __repr__(self) -> str:
        return "Trace([\n    " + ",\n    ".join(map(repr, self.rows)) + ",\n])"

    @property
    def replayable(self) -> list[int]:
        """Row numbers that an engine gets to see."""
        return [number for number, row in enumerate(self.rows) if row.replayable]

    def requests(self, block_size: int) -> list[oracle.Request]:
        """Return the replayable rows as the twin takes them, for an engine with this block size."""
        return [
            oracle.Request(
                arrival_ns=1000 * row.arrival_us,
                prompt_len=row.input_tokens,
                max_tokens=row.output_tokens,
                priority=row.priority,
                key=oracle.trace_key(
                    number, block_size, self.prefix_hashes[number], row.block_tokens, self.prefix_tokens[number]
                ),
                cancel_after=row.output_tokens if row.status == "cancelled" else None,
                after=None if row.after is None else self.replayable.index(row.after),
                think_ns=1000 * row.think_us,
            )
            for number, row in enumerate(self.rows)
            if row.replayable
        ]

    def table(self) -> pa.Table:
        """Return the canonical trace, as `pipeline.schema.TRACE` describes it."""
        rows = [self._record(number, row) for number, row in enumerate(self.rows)]
        columns = []
        for column in schema.TRACE.columns:
            values = [row.get(column.name) for row in rows]
            if pa.types.is_dictionary(column.type):
                columns.append(pa.array(values, pa.string()).dictionary_encode())
            else:
                columns.append(pa.array(values, column.type))
        return pa.table(columns, schema=schema.arrow_schema(schema.TRACE))

    def _record(self, number: int, row: Row) -> dict[str, Any]:
        hashed = self.prefix_tokens[number] > 0
        return {
            "request_id": f"trace:{number}",
            "attempt": 0,
            "arrival_us": row.arrival_us,
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "priority": row.priority,
            "n": 1,
            "status": row.status,
            "served_from": "engine",
            "replayable": row.replayable,
            "flags": [],
            "prefix_hashes": self.prefix_hashes[number] if hashed else None,
            "prefix_block_tokens": row.block_tokens if hashed else None,
            "prefix_tokens": self.prefix_tokens[number] if hashed else None,
            "prefix_kind": "given_hashes" if hashed else None,
            "after_request_id": None if row.after is None else f"trace:{row.after}",
            "think_us": None if row.after is None else row.think_us,
            **dict(row.labels),
        }


def trace(text: str, block_tokens: int = 16) -> Trace:
    """Return the trace that the line describes (see the module), with prefix hashes of so many tokens each."""
    rows: list[Row] = []
    texts: dict[str, int] = {}
    for part in text.split(","):
        first, sizes, *words = part.split()
        options = dict(word.split("=", 1) if "=" in word else (word, "") for word in words)
        for _ in range(int(options.pop("times", 1))):
            rows.append(_row(rows, texts, first, sizes, dict(options), block_tokens))
    return Trace(rows)


def _row(
    rows: list[Row], texts: dict[str, int], time: str, sizes: str, options: dict[str, str], block_tokens: int
) -> Row:
    input_tokens, output_tokens = map(int, sizes.split(">"))
    status = options.pop("status", "cancelled" if "cancelled" in options else "ok")
    options.pop("cancelled", None)
    covered = options.pop("covered", None)
    former, _, think = options.pop("after", "").partition("+")
    row = Row(
        arrival_us=_microseconds(time),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        prompt=_prompt(rows, texts, input_tokens, options),
        covered_tokens=input_tokens if covered == "prompt" else None if covered is None else int(covered),
        block_tokens=block_tokens,
        priority=int(options.pop("priority", 0)),
        status=status,
        labels=_labels(options),
        after=int(former) if former else None,
        think_us=_microseconds(think) if think else 0,
    )
    if options:
        raise ValueError(f"unknown words {sorted(options)}")
    return row


def _microseconds(text: str) -> int:
    for unit in ("us", "ms", "s"):
        if text.endswith(unit) and text[: -len(unit)].isdigit():
            return int(text[: -len(unit)]) * MICROSECONDS[unit]
    raise ValueError(f"{text}: not a time such as 50us, 3ms or 2s")


def _prompt(rows: list[Row], texts: dict[str, int], tokens: int, options: dict[str, str]) -> tuple[Segment, ...]:
    row = len(rows)
    shared: tuple[Segment, ...] = ()
    if "follows" in options:
        shared = spoken(rows, int(options.pop("follows")))
    elif "prefix" in options:
        name, _, length = options.pop("prefix").partition(":")
        shared = ((texts.setdefault(name, len(texts)), 0, int(length or tokens)),)
    own = tokens - sum(length for _, _, length in shared)
    if own < 0:
        raise ValueError(f"request {row}: prompt of {tokens} tokens is shorter than what it begins with")
    return (*shared, (OWN + row, 0, own))


def spoken(rows: Sequence[Row], row: int) -> tuple[Segment, ...]:
    """Return prompt and output of a row: what its follow-up turn begins with."""
    prompt = rows[row].prompt or ((OWN + row, 0, rows[row].input_tokens),)
    return (*prompt, (cases.GENERATED + row, 0, rows[row].output_tokens))


def _labels(options: dict[str, str]) -> tuple[tuple[str, Any], ...]:
    found = {column: options.pop(word) for word, column in LABELS.items() if word in options}
    if "turn" in options:
        found["turn"] = int(options.pop("turn"))
    return tuple(found.items())


def _covered(row: Row) -> int:
    total = row.input_tokens + row.output_tokens
    return total if row.covered_tokens is None else min(row.covered_tokens, total)


def _hashes(rows: Sequence[Row], covered: Sequence[int]) -> list[list[int]]:
    """Return the prefix hashes of each row; rows hashed in blocks of another size never share one."""
    numbers: dict[tuple, int] = {}
    out = []
    for number, row in enumerate(rows):
        segments = _head(spoken(rows, number), covered[number])
        parent, hashes = 0, []
        for pieces in cases.blocks(cases.merged(segments), row.block_tokens):
            parent = numbers.setdefault((row.block_tokens, parent, pieces), len(numbers) + 1)
            hashes.append(parent * SPREAD % 2**64)
        out.append(hashes)
    return out


def _head(segments: Sequence[Segment], tokens: int) -> list[Segment]:
    """Return the segments cut to so many tokens."""
    head = []
    for stream, start, length in segments:
        head.append((stream, start, min(length, tokens)))
        tokens -= head[-1][2]
    return head
