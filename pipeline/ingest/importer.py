"""One import: files in, a trace and its rejects out."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from pipeline.errors import TraceError
from pipeline.ingest import formats, options, prefix, privacy, records, ticks, write
from pipeline.ingest.sources import Source, file_digest, open_all, sample
from pipeline.ingest.summary import NOT_STATED, IngestSummary
from pipeline.schema import REJECTS, TRACE


@dataclass(frozen=True, slots=True)
class Imported:
    """The tables of an import before they are written.

    rows    : trace rows in order, with file, source_row and clock_us beside the columns of the trace
    rejects : rows of the rejects table
    """

    rows: pl.DataFrame
    rejects: pl.DataFrame
    records: int
    format: str
    reason: str
    time_zone: str
    notes: list[str]

    @property
    def trace(self) -> pl.DataFrame:
        """Exactly the columns of the trace."""
        return records.trace(self.rows)


def ingest(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    spread_ticks: int | None = None,
    privacy_key: Path | None = None,
    keep_ids: bool = False,
    out: Path,
) -> IngestSummary:
    """Read logs of one format into a trace at `out` and its rejects beside it; return what was found.

    format       : name of a format; detected from the content if None
    read_options : what the files do not state, as the format's OPTIONS name it
    spread_ticks : seed that spreads arrivals inside the ticks of a coarse clock; literal times if None
    privacy_key  : file with the key of pseudonyms; a key that is thrown away if None
    keep_ids     : leave ids and tenants as logged
    Raises TraceError on input that cannot be used or output that cannot be written; then nothing is half written.
    """
    out = Path(out)
    if any(out.resolve() == Path(path).resolve() for path in paths):
        raise TraceError(f"{out}: is an input as well; write the trace elsewhere")
    found = load(
        paths,
        format=format,
        read_options=read_options,
        spread_ticks=spread_ticks,
        privacy_key=privacy_key,
        keep_ids=keep_ids,
    )
    trace, beside = found.trace, rejects_path(out)
    if trace.is_empty():
        write.write_all([(beside, found.rejects, REJECTS)])
        reasons = ", ".join(f"{name} {number:,}" for name, number in _tally(found.rejects["reason"]).items())
        raise TraceError(f"{paths[0]}: none of {found.records:,} records can be used ({reasons}); see {beside}")
    write.write_all([(beside, found.rejects, REJECTS), (out, trace, TRACE)])
    return _summary(found, trace, out, beside)


def rejects_path(trace: Path) -> Path:
    """Return where the rejects of a trace are: `x.rejects.parquet` beside `x.parquet`."""
    stem = trace.name.removesuffix(".parquet")
    return trace.with_name(f"{stem}.rejects.parquet")


def digest(paths: Sequence[Path], options: Mapping[str, Any] | None = None) -> str:
    """Return a SHA-256 in hex of the files' bytes, in order, and of the options; names and dates do not count.

    options : whatever decides how the files are read, as JSON values; None values do not count
    """
    stated = {key: value for key, value in (options or {}).items() if value is not None}
    content = {"files": [file_digest(path) for path in paths], "options": stated}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    spread_ticks: int | None = None,
    privacy_key: Path | None = None,
    keep_ids: bool = False,
) -> Imported:
    """Do all of an import but the writing; arguments as for `ingest`."""
    hidden = privacy.choose(privacy_key, keep_ids)
    sources = open_all(paths)
    sources, notes = _without_copies(sources)
    module, reason = _format(sources, "columns" if format is None and "map" in (read_options or {}) else format)
    chosen = options.resolve(module.NAME, module.OPTIONS, read_options)
    read = _read(module, sources, chosen)
    physical, read = len(read), _settled(module, read)
    relative = bool(read["relative"].any())
    if relative and len(sources) > 1:
        raise TraceError(
            f"{len(sources)} files of {module.NAME} with a relative clock: each counts from an instant of its own, "
            "so they cannot be put in one order; import them one by one"
        )
    rows = records.valid(read)
    notes += [note for source in sources for note in source.notes] + _order_notes(read)
    rows = module.complete(records.unknown_usage(rows), chosen) if len(rows) else records.unknown_usage(rows)
    if spread_ticks is not None:
        rows, width_us = ticks.spread(rows, spread_ticks)
        notes.append(f"Arrivals were spread inside ticks of {width_us / 1000:,.3f} ms by seed {spread_ticks}.")
    rows = _timed(rows, relative)
    if len(rows):
        rows = prefix.extend(_with_prefix_columns(rows))
    if module.PRIVATE:
        rows = privacy.applied(rows, hidden)
        notes.append(hidden.note)
    rejected = records.rejects(read, sources, module.LOCATOR)
    return Imported(rows, rejected, physical, module.NAME, reason, _time_zone(read, relative, chosen), notes)


def _without_copies(sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    """Leave out files whose bytes an earlier one has: the same delivery twice."""
    if len(sources) == 1:
        return list(sources), []
    first: dict[str, Source] = {}
    notes = []
    for source in sources:
        known = first.setdefault(file_digest(source.path), source)
        if known is not source:
            notes.append(f"{source.name} has the same bytes as {known.name} and is read once.")
    return list(first.values()), notes


def _format(sources: Sequence[Source], named: str | None) -> tuple[ModuleType, str]:
    """Return the one format of all files; TraceError if there are several."""
    if named is not None:
        module = formats.by_name(named)
        for source in sources:
            sample(source)
        return module, "named by the caller"
    found: dict[str, tuple[Source, str]] = {}
    for source in sources:
        name, reason = formats.detect(sample(source))
        found.setdefault(name, (source, reason))
    if len(found) > 1:
        each = "; ".join(f"{source.name} is {name} ({reason})" for name, (source, reason) in found.items())
        raise TraceError(f"{len(found)} formats in one import: {each}; import them one by one")
    name, (_, reason) = next(iter(found.items()))
    return formats.FORMATS[name], reason


def _read(module: ModuleType, sources: Sequence[Source], chosen: Mapping[str, str]) -> pl.DataFrame:
    """Return the records of all files, in input order."""
    frames = []
    for source in sources:
        for frame in module.read(source, chosen):
            number = pl.lit(source.number, pl.Int32).alias("file")
            blank = [pl.lit(value).alias(name) for name, value in _CLOCK.items() if name not in frame.columns]
            frames.append(frame.with_columns(number, *blank))
    read = pl.concat(frames)
    return read.with_columns(pl.lit(True).alias("relative")) if module.RELATIVE_CLOCK else read


def _settled(module: ModuleType, read: pl.DataFrame) -> pl.DataFrame:
    """Put parts of records together and mark copies."""
    settle = getattr(module, "settle", None)
    return records.repeated(settle(read) if settle else read)


_CLOCK = {"relative": False, "naive": False}


def _timed(rows: pl.DataFrame, relative: bool) -> pl.DataFrame:
    """Add arrival_us and, on an absolute clock, arrival_time; flag a relative one."""
    offset = (pl.col("clock_us") - pl.col("clock_us").min()).alias("arrival_us")
    if relative:
        return rows.with_columns(offset, pl.lit(True).alias("flag:relative_clock"))
    stamp = pl.from_epoch("clock_us", time_unit="us").dt.replace_time_zone("UTC").alias("arrival_time")
    return rows.with_columns(offset, stamp)


def _with_prefix_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the columns that prefix identity looks at where the format has none of them."""
    names = ("parent_request_id", "session_id", "turn", "prefix_hashes", "prefix_tokens", "prefix_block_tokens")
    return rows.with_columns(pl.lit(None, records.TYPES[n]).alias(n) for n in names if n not in rows.columns)


def _order_notes(read: pl.DataFrame) -> list[str]:
    sound = read.filter(pl.col("fault").is_null())
    back = sound.select((pl.col("clock_us").diff() < 0).over("file").sum()).item()
    return [f"{back:,} records came earlier than the one before them; all were sorted by arrival."] if back else []


def _time_zone(read: pl.DataFrame, relative: bool, chosen: Mapping[str, str]) -> str:
    if relative:
        return "relative clock, no time of day"
    naive = int(read["naive"].sum())
    return f"{chosen['naive_timestamps_are']} assumed: stamps state no offset" if naive else "offsets as logged"


def _tally(values: pl.Series) -> dict[str, int]:
    counts = values.drop_nulls().alias("value").value_counts()
    return dict(counts.sort("count", "value", descending=[True, False]).iter_rows())


def _summary(found: Imported, trace: pl.DataFrame, out: Path, beside: Path) -> IngestSummary:
    runs = trace.filter("replayable")
    total = max(len(runs), 1)
    reused = prefix.reuse(runs)
    known = runs["prefix_hashes"].null_count() < len(runs)
    prompt = max(reused["prompt_tokens"], 1)
    stamp = trace["arrival_time"][0]
    extended = (pl.col("prefix_tokens") > pl.col("input_tokens")).sum()
    return IngestSummary(
        records=found.records,
        valid=len(trace),
        rejected=_tally(found.rejects["reason"]),
        flagged=_tally(trace["flags"].explode()),
        statuses=_tally(trace["status"]),
        replayable=len(runs),
        models={name: n / total for name, n in _tally(runs["model"].fill_null(NOT_STATED)).items()},
        tenants=trace["tenant"].drop_nulls().n_unique(),
        span_us=trace["arrival_us"][-1],
        first_arrival=None if stamp is None else stamp.isoformat(),
        time_zone=found.time_zone,
        input_tokens=int(runs["input_tokens"].cast(pl.Int64).sum()),
        output_tokens=int(runs["output_tokens"].cast(pl.Int64).sum()),
        prefix_kinds={name: n / total for name, n in _tally(runs["prefix_kind"].fill_null("none")).items()},
        prefix_extended=trace.select(extended).item(),
        reuse_share=reused["listed_tokens"] / prompt if known else None,
        reuse_share_full_blocks=reused["full_tokens"] / prompt if known else None,
        format=found.format,
        reason=found.reason,
        trace=out,
        rejects=beside,
        notes=found.notes,
    )
