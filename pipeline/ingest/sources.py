"""Input files: opened by content (plain, gzip, zstd), sampled for detection, read in batches of lines.

Messages name files, sizes, line numbers and column names, never a value: a log may hold prompts.
"""

import csv
import difflib
import glob
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from pipeline.errors import TraceError

SAMPLE_BYTES = 1 << 18
BATCH_BYTES = 1 << 25
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
PARQUET = b"PAR1"
_BOM = b"\xef\xbb\xbf"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,39}")


@dataclass(frozen=True, slots=True)
class Source:
    """One input file.

    tag   : sets its record numbers apart where several files are read: `2.` for the second
    notes : what a reader has to say about the file as a whole
    """

    path: Path
    number: int = 0
    tag: str = ""
    notes: list[str] = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        """File name without folders, as rejects state it."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a file: what a format is detected from.

    head    : first bytes, decompressed
    lines   : complete lines of `head` that are not blank, decoded
    columns : cells of the first line, if it reads as CSV
    objects : JSON objects among the lines
    """

    source: Source
    head: bytes = b""
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    objects: Sequence[dict] = field(default_factory=tuple)


def open_all(paths: Sequence[Path]) -> list[Source]:
    """Return the files as sources, in the order given, those of a folder or a pattern by name.

    Of a folder, hidden files, files without bytes and those that describe others (.md, .py, expected.json) are no
    logs. TraceError if a file is missing or empty, or a folder or a pattern has none.
    """
    if not paths:
        raise TraceError("no input file named")
    paths = [file for path in paths for file in _expanded(Path(path))]
    for path in paths:
        _check(path)
    if len(paths) == 1:
        return [Source(paths[0])]
    return [Source(path, number, f"{number + 1}.") for number, path in enumerate(paths)]


def _expanded(path: Path) -> list[Path]:
    if path.is_dir():
        inside = (file for file in path.rglob("*") if not any(p[0] in "._" for p in file.relative_to(path).parts))
        found = sorted(file for file in inside if file.is_file() and _is_log(file) and file.stat().st_size > 0)
        if not found:
            raise TraceError(f"{path}: a folder without logs: no file in it has content")
        return found
    if path.exists() or not set(str(path)) & set("*?["):
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not found:
        raise TraceError(f"{path}: no file matches this pattern")
    return found


def _is_log(file: Path) -> bool:
    return file.suffix not in (".md", ".py", ".sha256", ".lock") and file.name != "expected.json"


def _check(path: Path) -> None:
    if not path.exists():
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, names, 1)
        raise TraceError(f"{path}: no such file" + (f"; did you mean {near[0]}?" if near else ""))
    if path.stat().st_size == 0:
        raise TraceError(f"{path}: is empty (0 bytes)")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of the file's bytes in hex; TraceError if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error


def blocks(source: Source, size: int = BATCH_BYTES) -> Iterator[bytes]:
    """Yield the decompressed bytes in pieces of at most `size`; TraceError on a truncated or damaged file."""
    path = source.path
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        kind = next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)
        with pa.OSFile(str(path), "rb") as raw, pa.CompressedInputStream(raw, kind) if kind else raw as stream:
            while block := stream.read(size):
                yield block
    except OSError as error:
        reason = "compressed data end too early or are damaged" if "compress" in str(error).lower() else error
        raise TraceError(f"{path}: cannot be read: {reason}") from error


def sample(source: Source) -> Sample:
    """Read the first bytes of a file and look at them as lines, CSV header and JSON objects."""
    head = b""
    for block in blocks(source, SAMPLE_BYTES):
        head += block
        if len(head) >= SAMPLE_BYTES:
            break
    if not head.strip():
        raise TraceError(f"{source.path}: is empty (nothing but blanks)")
    if b"\0" in head or head.startswith(PARQUET):
        return Sample(source, head)
    whole = len(head) < SAMPLE_BYTES
    text = head.removeprefix(_BOM).decode("utf-8", "replace")
    pieces = [line.rstrip("\r") for line in text.split("\n")]
    lines = [line for line in (pieces if whole or len(pieces) < 2 else pieces[:-1]) if line.strip()]
    columns = [cell.strip() for cell in csv_cells(lines[0])] if lines else []
    return Sample(source, head, lines, columns, [o for o in map(_json_object, lines[:50]) if o is not None])


def csv_cells(line: str) -> list[str]:
    """Return the cells of one CSV line, quotes undone; no cells if it cannot be read as CSV."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _json_object(line: str) -> dict | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def describe(sample: Sample) -> str:
    """Say what a file looks like without quoting its content: names of columns or keys, sizes, counts."""
    if sample.head.startswith(PARQUET):
        return "a Parquet file"
    if sample.objects:
        keys = [key for key in sample.objects[0] if _PLAIN_NAME.fullmatch(key)]
        return "JSON lines with the keys " + ", ".join(keys[:12])
    if not sample.lines:
        return f"binary data beginning with the bytes {sample.head[:4].hex(' ')}"
    first = sample.lines[0]
    named = len(sample.columns) > 1 and all(_PLAIN_NAME.fullmatch(name) for name in sample.columns)
    alike = len(sample.lines) > 1 and sample.lines[1].count(",") == first.count(",")
    if named and alike:
        return "CSV with the columns " + ", ".join(sample.columns[:12])
    return f"text whose first line has {len(first)} characters and {first.count(',')} commas"


def line_batches(source: Source) -> Iterator[pl.DataFrame]:
    """Yield the lines that are not blank as frames (line_number Int64 from 1, line String).

    A line that is not UTF-8 has null in `line`. Line ends are LF or CRLF; a byte order mark is dropped.
    """
    number, rest, first = 1, b"", True
    for block in blocks(source):
        block = rest + block
        if first and len(block) >= len(_BOM):
            block, first = block.removeprefix(_BOM), False
        cut = block.rfind(b"\n") + 1
        rest = block[cut:]
        if cut:
            frame = _lines(block[: cut - 1], number)
            number += block.count(b"\n", 0, cut)
            yield frame
    if rest:
        yield _lines(rest, number)


def _lines(block: bytes, first_number: int) -> pl.DataFrame:
    try:
        lines = pl.Series("line", [block.decode()]).str.split("\n").explode()
    except UnicodeDecodeError:
        lines = pl.Series("line", [_decode(line) for line in block.split(b"\n")], pl.String)
    numbers = pl.int_range(first_number, first_number + len(lines), dtype=pl.Int64, eager=True)
    frame = pl.DataFrame({"line_number": numbers, "line": lines}).with_columns(pl.col("line").str.strip_chars_end("\r"))
    return frame.filter(pl.col("line").str.strip_chars().ne("").fill_null(True))


def _decode(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
