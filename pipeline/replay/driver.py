"""Driver: a trace and a config into a run folder.

The kernel runs until a buffer is full, the driver hands the buffer to the sink and calls it again, so a
replay of any length needs memory for what is alive, not for what has been.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import config as config_module
from pipeline import hardware, schema
from pipeline.config import Config
from pipeline.errors import ConfigError, ReplayError, TraceError
from pipeline.hardware import Deployment
from pipeline.kernel import layout
from pipeline.replay import checks, manifest, tables
from pipeline.replay.manifest import TraceFile
from pipeline.replay.policies.base import PolicySettings
from pipeline.replay.sink import RunFolder
from pipeline.replay.source import Source
from pipeline.replay.state import State, StepCost


@dataclass(slots=True)
class Progress:
    """How far a replay is."""

    requests_done: int
    simulated_s: float
    steps: int
    share: float  # of the trace's rows that have arrived


@dataclass(slots=True)
class _Tally:
    outcomes: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    requests: int = 0

    def add(self, rows: np.ndarray) -> None:
        names, counts = np.unique(rows["outcome"], return_counts=True)
        for code, count in zip(names.tolist(), counts.tolist(), strict=True):
            name = schema.OUTCOMES[code - 1]
            self.outcomes[name] = self.outcomes.get(name, 0) + count
        self.preemptions += int(rows["preemptions"].sum())
        self.requests += len(rows)


def replay(
    trace: TraceFile,
    config: Config,
    root: Path,
    *,
    where: str | None = None,
    decisions: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> tuple[Path, bool]:
    """Replay a trace and return its run folder, and whether it had to be run (else it was there already).

    Raises ConfigError, TraceError, RunError; nothing is left behind then, nor after an interruption.
    """
    began = time.perf_counter()
    deployment = hardware.resolve(config)
    run = manifest.run_id(trace.digest, where, deployment.config, decisions)
    found = manifest.find(root, run)
    if found is not None:
        return found, False
    source = Source(trace.path, where, deployment.config)
    state = _state(deployment, source, decisions)
    folder = RunFolder(root, run, state.replicas, decisions)
    try:
        report(Progress(0, 0.0, 0, 0.0))
        tally = _run(state, source, folder, report)
        folder.finish_tables()
        replayed = time.perf_counter()
        if source.rows == 0:
            asked = f" that meet {where}" if where else ""
            raise TraceError(f"{trace.name}: has no requests{asked}")
        content = _manifest(run, trace, deployment, source, state, tally, where, decisions)
        folder.write_text("run.json", manifest.text(content))
        folder.write_text("timing.json", manifest.text({"replay_s": round(replayed - began, 6)}))
        return folder.keep(), True
    except BaseException:
        folder.discard()
        raise


def requests(trace: TraceFile, config: Config, *, where: str | None = None, scale: float = 1.0) -> pa.Table:
    """Replay a trace and return the rows of requests.parquet; nothing is written.

    scale : every step takes so many times as long
    Raises ConfigError and TraceError as `replay` does.
    """
    deployment = hardware.resolve(config)
    source = Source(trace.path, where, deployment.config)
    state = _state(deployment, source, False, scale)
    kept = _Requests()
    _run(state, source, kept, lambda _: None)
    return pa.concat_tables(kept.tables) if kept.tables else schema.arrow_schema(schema.REQUESTS).empty_table()


def _state(deployment: Deployment, source: Source, decisions: bool, scale: float = 1.0) -> State:
    asked = replace(settings(deployment, decisions), sessions=source.former_rows is not None)
    return State(asked, cost(deployment, scale), deployment.config.fleet.replicas)


class _Requests:
    """A run folder that keeps requests in memory, and nothing else."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write(self, table: str, replica: int, build: Callable[[], Any]) -> None:
        if table == "requests":
            self.tables.append(build())


_DRAINS = {layout.STEPS_FULL: "steps", layout.GAPS_FULL: "gaps", layout.DECISIONS_FULL: "decisions"}


def _run(state: State, source: Source, folder: RunFolder | _Requests, report: Callable[[Progress], None]) -> _Tally:
    fleet, tally = state.fleet, _Tally()
    while True:
        reason = state.run()
        if reason == layout.NEED_TRACE:
            _write_requests(state, source, folder, tally)
            batch = source.next()
            if batch is None:
                state.complete()
            else:
                state.load(batch)
        elif reason in _DRAINS:
            _drain(state, folder, _DRAINS[reason], int(fleet.stopped))
        elif reason == layout.TRACE_DONE:
            break
        else:
            raise ReplayError(f"the engine stopped for reason {reason} in replica {fleet.stopped}")
        routed = source.rows_read - (int(fleet.loaded_rows) - int(fleet.next_row))
        share = max(0, routed) / max(1, source.total_rows)
        now_s = int(state.engines.now_ns.max()) / 1e9
        report(Progress(tally.requests, now_s, int(state.engines.steps.sum()), share))
    state.settle()
    _write_requests(state, source, folder, tally, everything=True)
    for replica in range(state.replicas):
        for table in ("steps", "gaps", *(("decisions",) if state.settings.decisions else ())):
            _drain(state, folder, table, replica)
    return tally


def _drain(state: State, folder: RunFolder | _Requests, table: str, replica: int) -> None:
    rows = state.drain(table, replica)
    folder.write(table, replica, lambda: tables.engine_columns(table, rows, replica))


def _write_requests(
    state: State, source: Source, folder: RunFolder | _Requests, tally: _Tally, everything: bool = False
) -> None:
    first = state.done_rows
    rows = state.take_done(everything)
    if len(rows) == 0:
        return
    tally.add(rows)
    identity = source.take_identity(len(rows))
    folder.write("requests", 0, lambda: tables.requests(rows, first, identity))


def settings(deployment: Deployment, decisions: bool) -> PolicySettings:
    """Return the engine and client settings of a deployment as the kernel takes them."""
    load = deployment.config.load
    policy = importlib.import_module(f"pipeline.replay.policies.{deployment.config.engine.policy}").Settings
    return policy(
        **policy.of(deployment),
        timeout_ns=_timeout_ns(load.timeout_s),
        queue_limit=load.queue_limit,
        concurrency=load.concurrency,
        decisions=decisions,
    )


def _timeout_ns(timeout_s: float | None) -> int | None:
    if timeout_s is None:
        return None
    most_s = checks.MOST_US // 10**6
    if timeout_s > most_s:
        raise ConfigError(f"load.timeout_s = {timeout_s:g}: must be at most {most_s} seconds, or none for never")
    return round(timeout_s * 1e9)


def cost(deployment: Deployment, scale: float = 1.0) -> StepCost:
    """Return the step time of a deployment, so many times as long, as the kernel takes it."""
    steps = deployment.step_time
    names = [name for name in layout.COST.fields or () if not name.endswith("_ns")]
    terms = {name: getattr(steps, name) * (1.0 if name == "mu" else scale) for name in names}
    return StepCost(terms, np.stack([steps.g_ns, steps.g_decode_ns]) * scale)


def _manifest(
    run: str,
    trace: TraceFile,
    deployment: Deployment,
    source: Source,
    state: State,
    tally: _Tally,
    where: str | None,
    decisions: bool,
) -> dict[str, Any]:
    replayed = max(1, source.replayed)
    first_us = source.first_us or 0
    return {
        "version": schema.RUN_VERSION,
        "run_id": run,
        "engine_version": manifest.engine_version(deployment.config),
        "config": config_module.to_dict(deployment.config),
        "config_digest": config_module.digest(deployment.config),
        "decisions": decisions,
        "trace": {
            "path": trace.name,
            "digest": trace.digest,
            "rows": source.rows,
            "replayed": source.replayed,
            "rejected_records": trace.rejected_records,
            "where": where,
            "spread_ticks": trace.spread_ticks,
            "models": {name or "(not stated)": count / replayed for name, count in sorted_items(source.models)},
            "span_us": source.last_us - first_us,
            "with_prefix": source.with_prefix,
        },
        "hardware": hardware.describe(deployment),
        "unmodelled": [
            *deployment.unmodelled,
            *_unmodelled(source, deployment.config),
            *manifest.LEFT_OUT,
        ],
        "warnings": [*deployment.warnings, *_warnings(source, where, state.stalled)],
        "counts": {
            "outcomes": {name: tally.outcomes[name] for name in schema.OUTCOMES if name in tally.outcomes},
            "steps": int(state.engines.steps.sum()),
            "preemptions": tally.preemptions,
            "stalled": state.stalled,
        },
    }


def sorted_items(counts: dict[str | None, int]) -> list[tuple[str | None, int]]:
    """Return the counts, largest first, then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0] or ""))


def _unmodelled(source: Source, config: Config) -> list[str]:
    found = []
    if source.several_samples and not config.engine.SAMPLES:
        found.append(f"{source.several_samples:,} requests ask for several samples (n > 1); one was replayed for each")
    if source.following and config.load.sessions == "logged":
        found.append(
            f"{source.following:,} requests follow another one; they do not wait for its end, which load.sessions = "
            "follow would make them do"
        )
    return found


def _warnings(source: Source, where: str | None, stalled: bool) -> list[str]:
    found = []
    if len(source.models) > 1:
        shares = ", ".join(
            f"{name or '(not stated)'} {count / source.replayed:.1%}" for name, count in sorted_items(source.models)[:5]
        )
        found.append(
            f"the trace has {len(source.models)} models ({shares}); all were replayed as the configured one"
            + ("" if where else "; choose with --where \"model = '...'\"")
        )
    if source.replayed == 0:
        found.append("no request of the trace can be replayed")
    if stalled:
        found.append(
            "the engine stalled: a request that can never get its KV blocks stood first in the queue; "
            "all behind it never finished"
        )
    return found
