"""What a recording starts from: requests whose prompts are segments of token streams, and engine settings.

Token identity is that of the recorded cases. A prompt is a list of segments (stream, start, length): tokens
(stream, start), (stream, start + 1), ... The i-th token that request r generates is (2**40 + r, i). Two tokens
are equal if and only if stream and offset are.

A trace/1 file names content by chained hashes of blocks of `prefix_block_tokens` tokens. Each hash becomes a
stream of its own: the token at offset o of a block with hash h is (number of h, o). Tokens beyond
`prefix_tokens` belong to the request alone. An engine block [s, e) with e <= prefix_tokens is then equal in
two requests if and only if both have the same hash for the trace block that holds token e-1, and the same
offset of e in it: the identity of trace/1, at every engine block size. This holds because the hashes are
chained; a hash that follows two different ones is an error here. Hashes may also cover what a request
generates; its own tokens (2**40 + r, i) are then the content of those hashes, and a later prompt with the same
hashes is made of them. Where a request generates what is already the content of a hash (a second call with
the same conversation), the layout of a case cannot say so: its tokens count as its own, and the note says in
how many requests.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests import oracle
from tests.cases import FILES, GENERATED, merged

Segment = tuple[int, int, int]  # stream, start, length

STEP_TIME = ("a_ns", "b_ns", "c_ns")
TRACE_COLUMNS = (
    "arrival_us",
    "input_tokens",
    "output_tokens",
    "priority",
    "replayable",
    "after_request_id",
    "prefix_hashes",
    "prefix_block_tokens",
    "prefix_tokens",
)


class InputError(Exception):
    """A trace, a case or the engine settings cannot be recorded."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Requests in order of arrival, and settings under the names of a case's config.json."""

    settings: dict[str, Any]
    arrival_ns: list[int]
    max_tokens: list[int]
    priority: list[int]
    prompts: list[list[Segment]]
    note: str = ""

    def prompt_len(self, request: int) -> int:
        return sum(length for _, _, length in self.prompts[request])


def read_settings(path: Path) -> dict[str, Any]:
    """Return the engine settings of a JSON file: an object of settings, or a config.json with them in `engine`.

    Settings left out have the defaults of `oracle.Engine`; block_size, num_gpu_blocks, max_model_len,
    max_num_batched_tokens, max_num_seqs and the step time a_ns, b_ns, c_ns must be there. Raises InputError.
    """
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if isinstance(given, dict) and isinstance(given.get("engine"), dict):
        given = given["engine"]
    return _complete(path, given)


def _complete(path: Path, given: Any) -> dict[str, Any]:
    """Return the settings with what is left out, in the order in which they are given."""
    if not isinstance(given, dict):
        raise InputError(f"{path}: holds a {type(given).__name__}: must be an object of engine settings")
    defaults = {field.name: field.default for field in fields(oracle.Engine)} | dict.fromkeys(STEP_TIME, MISSING)
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise InputError(f"{path}: unknown setting {unknown[0]!r}: known are {', '.join(sorted(defaults))}")
    missing = [name for name, default in defaults.items() if default is MISSING and name not in given]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} not given")
    settings = given | {name: default for name, default in defaults.items() if name not in given}
    if settings["max_steps"] is None:
        del settings["max_steps"]  # as in recorded cases
    return settings


def from_case(folder: Path) -> Iterator[tuple[int | None, Inputs]]:
    """Yield (number in the bundle or None, inputs) of a recorded case or bundle; InputError where it is neither."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise InputError(f"{folder}: no {', '.join(missing)}: not a recorded case")
    try:
        config = json.loads((folder / "config.json").read_text())
        requests = pq.read_table(folder / "requests.parquet")
        if "cases" not in config:
            yield None, _recorded(folder, config, requests)
            return
        for entry in config["cases"]:
            yield entry["case"], _recorded(folder, entry, requests.filter(pc.equal(requests["case"], entry["case"])))
    except (KeyError, TypeError, ValueError) as error:  # pyarrow's and json's errors are ValueErrors
        raise InputError(f"{folder}: {type(error).__name__}: {error}") from error


def _recorded(folder: Path, config: dict[str, Any], requests: pa.Table) -> Inputs:
    requests = requests.sort_by("req")
    columns = [requests[name].to_pylist() for name in ("seg_stream", "seg_start", "seg_len")]
    return Inputs(
        settings=_complete(folder / "config.json", config["engine"]),
        arrival_ns=requests["arrival_ns"].to_pylist(),
        max_tokens=requests["max_tokens"].to_pylist(),
        priority=requests["priority"].to_pylist(),
        prompts=[list(zip(*row, strict=True)) for row in zip(*columns, strict=True)],
        note=config.get("note", ""),
    )


def from_trace(path: Path, settings: dict[str, Any], first: int | None = None) -> Inputs:
    """Return the replayable requests of a trace/1 file, or the first so many of them.

    All arrive when the trace says and generate their logged number of output tokens. Raises InputError if the file
    is no trace, has nothing to replay, or hashes that are not chained.
    """
    try:
        table = pq.read_table(path, columns=list(TRACE_COLUMNS))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a trace/1 file: {error}") from error
    rows = len(table)
    table = table.filter(table["replayable"])
    left_out = rows - len(table)
    if first is not None:
        table = table.slice(0, first)
    if len(table) == 0:
        raise InputError(f"{path}: no replayable request")
    prompts, told = _Streams(path).prompts(table)
    note = f"{path.name}: {len(prompts)} requests"
    if left_out:
        note += f"; {left_out} of {rows} rows are not replayable"
    followers = len(table) - table["after_request_id"].null_count
    if followers:
        note += f"; {followers} requests follow another one and arrive when the trace says"
    if told:
        note += f"; generated tokens of {told} requests count as their own although the trace names their content"
    return Inputs(
        settings=settings,
        arrival_ns=[1000 * us for us in table["arrival_us"].to_pylist()],
        max_tokens=table["output_tokens"].to_pylist(),
        priority=pc.fill_null(table["priority"], 0).to_pylist(),
        prompts=prompts,
        note=note,
    )


class _Streams:
    """Turns the block hashes of a trace into token streams, request by request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers: dict[int, int] = {}  # hash -> its stream
        self.parents: dict[int, int | None] = {}  # hash -> the hash before it
        self.contents: dict[int, list[Segment]] = {}  # hash -> the tokens of its block that are known so far

    def prompts(self, table: pa.Table) -> tuple[list[list[Segment]], int]:
        """Return the prompt of every row, and in how many rows generated tokens had to count as their own."""
        prompts, told = [], 0
        columns = (
            table["input_tokens"].to_pylist(),
            table["output_tokens"].to_pylist(),
            table["prefix_hashes"].to_pylist(),
            pc.fill_null(table["prefix_block_tokens"], 1).to_pylist(),
            pc.fill_null(table["prefix_tokens"], 0).to_pylist(),
        )
        own = 2 * GENERATED  # streams of tokens that nobody shares
        for request, (asked, generated, hashes, block_tokens, covered) in enumerate(zip(*columns, strict=True)):
            covered = min(covered, asked + generated) if hashes else 0
            prompt: list[Segment] = []
            repeats = False
            for at, begin in enumerate(range(0, covered, block_tokens)):
                self.follow(hashes, at, request)
                end = min(begin + block_tokens, covered)
                tokens, repeated = self.block(hashes[at], request, begin, end, asked)
                prompt += tokens
                repeats = repeats or repeated
            told += repeats
            prompt += [(own + request, 0, max(asked - covered, 0))]
            prompts.append(merged(prompt))
        return prompts, told

    def follow(self, hashes: list[int], at: int, request: int) -> None:
        """Check that a hash always follows the same one."""
        parent = hashes[at - 1] if at else None
        if self.parents.setdefault(hashes[at], parent) != parent:
            raise InputError(
                f"{self.path}: prefix_hashes of replayable row {request} are not chained: hash {hashes[at]} at place "
                f"{at} follows another one than in an earlier row"
            )

    def block(self, name: int, request: int, begin: int, end: int, asked: int) -> tuple[list[Segment], bool]:
        """Return the prompt tokens of block [begin, end), whose hash is `name`, and make its tokens known.

        `asked` tokens are the prompt, those behind are generated. The second result tells whether the request
        generates tokens that the block had before.
        """
        content = self.contents.setdefault(name, [])
        known = sum(length for _, _, length in content)
        stream = self.numbers.setdefault(name, len(self.numbers))
        prompt_end = max(begin, min(end, asked))
        if begin + known < prompt_end:
            content.append((stream, known, prompt_end - begin - known))
            known = prompt_end - begin
        repeated = prompt_end < begin + known and prompt_end < end
        if begin + known < end:
            place = begin + known - asked
            content.append((GENERATED + request, place, end - begin - known))
        return _head(content, prompt_end - begin), repeated


def _head(segments: list[Segment], tokens: int) -> list[Segment]:
    """Return the first so many tokens of these segments."""
    head = []
    for stream, start, length in segments:
        if tokens <= 0:
            break
        head.append((stream, start, min(length, tokens)))
        tokens -= length
    return head


def arrays(prompts: list[list[Segment]]) -> dict[str, pa.Array]:
    """Return prompts as the three list columns of a case."""
    offsets = np.append(0, np.cumsum([len(prompt) for prompt in prompts])).astype(np.int32)
    flat = np.array([segment for prompt in prompts for segment in prompt], dtype=np.int64).reshape(-1, 3)
    types = {"seg_stream": pa.int64(), "seg_start": pa.int32(), "seg_len": pa.int32()}
    return {
        name: pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat[:, place]).cast(type))
        for place, (name, type) in enumerate(types.items())
    }
