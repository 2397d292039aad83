"""Recordings as files: config.json and the three tables of a case, and the comparison of two of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.recording import inputs
from tests.recording.real import Recording

TABLES = ("requests", "steps", "schedule")
_LISTS = {"seg_stream": pa.int64(), "seg_start": pa.int32(), "seg_len": pa.int32()}
REQUESTS = pa.schema(
    [
        ("req", pa.int32()),
        ("arrival_ns", pa.int64()),
        ("max_tokens", pa.int32()),
        ("priority", pa.int32()),
        *((name, pa.list_(type)) for name, type in _LISTS.items()),
        ("prompt_len", pa.int32()),
        ("out_status", pa.string()),
        ("out_first_sched_step", pa.int32()),
        ("out_first_sched_ns", pa.int64()),
        ("out_first_token_ns", pa.int64()),
        ("out_finish_step", pa.int32()),
        ("out_finish_ns", pa.int64()),
        ("out_n_output", pa.int32()),
        ("out_n_preempt", pa.int32()),
        ("out_cached_tokens", pa.int32()),
        ("out_cached_tokens_resume", pa.int32()),
        ("out_computed_tokens", pa.int64()),
    ]
)
STEPS = pa.schema(
    [
        ("step", pa.int32()),
        ("t_sched_ns", pa.int64()),
        ("t_start_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("n_running", pa.int32()),
        ("n_waiting", pa.int32()),
        ("n_sched", pa.int32()),
        ("n_tokens", pa.int32()),
        ("prefill_tokens", pa.int32()),
        ("decode_tokens", pa.int32()),
        ("ctx_tokens", pa.int64()),
        ("n_admitted", pa.int32()),
        ("n_resumed", pa.int32()),
        ("n_preempted", pa.int32()),
        ("hit_tokens", pa.int32()),
        ("free_blocks", pa.int32()),
        ("cached_blocks", pa.int32()),
        ("evicted_blocks", pa.int32()),
        ("new_blocks", pa.int32()),
        ("new_blocks_crc", pa.uint32()),
    ]
)
SCHEDULE = pa.schema(
    [
        ("step", pa.int32()),
        ("pos", pa.int32()),
        ("req", pa.int32()),
        ("n_sched", pa.int32()),
        ("n_computed", pa.int32()),
        ("event", pa.int8()),
        ("is_prefill", pa.bool_()),
        ("samples", pa.bool_()),
        ("hit_tokens", pa.int32()),
    ]
)


def write_case(folder: Path, recording: Recording, version: str) -> None:
    """Write one recording as a case folder, which is made if need be."""
    config = {
        "oracle": "vllm",
        "vllm_version": version,
        "note": recording.inputs.note,
        "engine": recording.inputs.settings,
        "summary": summary(recording),
    }
    _write(folder, config, tables(recording))


def write_bundle(folder: Path, recordings: list[tuple[int, Recording]], version: str) -> None:
    """Write numbered recordings into one folder, the number of each as column `case`."""
    entries: list[dict[str, Any]] = [
        {"case": number, "engine": recording.inputs.settings, "summary": summary(recording)}
        for number, recording in recordings
    ]
    names = ("steps", "preemptions", "hit_tokens", "evicted_blocks", "requests", "stalled", "finished", "sched_seqs")
    total = {name: sum(int(entry["summary"][name]) for entry in entries) for name in names}
    parts = [(number, tables(recording)) for number, recording in recordings]
    whole = {name: pa.concat_tables([_numbered(part[name], number) for number, part in parts]) for name in TABLES}
    _write(folder, {"oracle": "vllm", "vllm_version": version, "cases": entries, "summary": total}, whole)


def summary(recording: Recording) -> dict[str, Any]:
    """Return the totals that config.json states."""
    steps = recording.steps
    return {
        "steps": len(steps),
        "tokens": sum(step["n_tokens"] for step in steps),
        "sched_seqs": sum(step["n_sched"] for step in steps),
        "finished": sum(status in ("length", "max_model_len") for status in recording.requests["out_status"]),
        "stalled": recording.stalled,
        "preemptions": sum(step["n_preempted"] for step in steps),
        "hit_tokens": sum(step["hit_tokens"] for step in steps),
        "evicted_blocks": sum(step["evicted_blocks"] for step in steps),
        "requests": len(recording.inputs.arrival_ns),
    }


def tables(recording: Recording) -> dict[str, pa.Table]:
    """Return the three tables of a recording, in the order in which cases store them."""
    given = recording.inputs
    rows = len(given.arrival_ns)
    requests = {
        "req": np.arange(rows),
        "arrival_ns": given.arrival_ns,
        "max_tokens": given.max_tokens,
        "priority": given.priority,
        **inputs.arrays(given.prompts),
        "prompt_len": [given.prompt_len(row) for row in range(rows)],
        **recording.requests,
    }
    return {
        "requests": pa.table({field.name: pa.array(requests[field.name], field.type) for field in REQUESTS}, REQUESTS),
        "steps": pa.Table.from_pylist(recording.steps, STEPS),
        "schedule": pa.Table.from_pylist(recording.schedule, SCHEDULE).sort_by(
            [("req", "ascending"), ("step", "ascending")]
        ),
    }


def differences(old: Path, new: Path) -> list[str]:
    """Return where two cases or bundles differ: one line per table, and one for the totals; none if they are equal."""
    found = []
    for name in TABLES:
        one, two = (pq.read_table(folder / f"{name}.parquet") for folder in (old, new))
        if one.schema.names != two.schema.names or one.schema.types != two.schema.types:
            found.append(f"{name}: columns {one.schema.names} and {two.schema.names}, or their types")
        elif not one.equals(two):
            found.append(f"{name}: {_first_difference(one, two)}")
    one, two = (_totals(json.loads((folder / "config.json").read_text())) for folder in (old, new))
    if one != two:
        found.append(f"config.json: {one} and {two}" if len(one) == 1 else "config.json: settings or totals")
    return found


def _totals(config: dict[str, Any]) -> list[Any]:
    """Return what two recordings of the same inputs have in common: all but the version and the note."""
    return [[entry["engine"], entry["summary"]] for entry in config.get("cases", [config])]


def _first_difference(one: pa.Table, two: pa.Table) -> str:
    common = min(len(one), len(two))
    firsts = []
    for name in one.column_names:
        left, right = one[name].to_pylist(), two[name].to_pylist()
        row = next((row for row in range(common) if left[row] != right[row]), None)
        if row is not None:
            firsts.append((row, name, left[row], right[row]))
    if not firsts:
        return f"{len(one)} and {len(two)} rows"
    row, name, left, right = min(firsts, key=lambda first: first[0])
    at = {key: one[key][row].as_py() for key in ("case", "step", "req") if key in one.column_names}
    place = ", ".join(f"{key} {value}" for key, value in at.items())
    return f"row {row} ({place}), {name}: {left} and {right}"


def _numbered(table: pa.Table, number: int) -> pa.Table:
    return table.add_column(0, pa.field("case", pa.int32()), pa.array(np.full(len(table), number, dtype=np.int32)))


def _write(folder: Path, config: dict[str, Any], parts: dict[str, pa.Table]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in parts.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd", compression_level=19)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
