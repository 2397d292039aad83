"""Cluster: the same jobs as tasks of Ray, one a run, on any number of machines.

Nothing is shared but what Ray carries: the trace goes out once as bytes, a run folder comes back as a tar archive.
A task whose machine dies is run again by Ray on another one. Every machine needs this version of servecast.
"""

import contextlib
import io
import logging
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, RunError
from pipeline.replay import manifest
from pipeline.replay.manifest import TraceFile
from pipeline.sweep import work
from pipeline.sweep.local import Tell
from pipeline.sweep.work import EXIT_FAULT, Job, Outcome

RETRIES = 5  # of a task whose process or machine dies
_TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Made:
    """What a task sends back: the outcome, and the run folder as a tar archive."""

    outcome: Outcome
    archive: bytes | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach Ray: an address, or None to start it here; and how many tasks may run at once (None: as fit)."""

    address: str | None = None
    jobs: int | None = None

    def run(
        self, jobs: Sequence[Job], trace: TraceFile, root: Path, where: str | None, tell: Tell = lambda *_: None
    ) -> dict[int, Outcome]:
        """Return the outcome of every job by its index, with the run folders of finished ones under `root`.

        tell : told the outcomes so far and their number
        Raises ConfigError if Ray is not installed or cannot be reached.
        """
        with self._connected() as ray:
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(make)
            content = ray.put(trace.path.read_bytes())
            plain = replace(trace, path=Path("trace.parquet"))
            waiting, running = list(jobs), dict[Any, Job]()
            outcomes: dict[int, Outcome] = {}
            while waiting or running:
                while waiting and (self.jobs is None or len(running) < self.jobs):
                    job = waiting.pop(0)
                    running[task.remote(job, plain, content, where, manifest.PROGRAM)] = job
                done, _ = ray.wait(list(running), timeout=_TICK_S)
                for reference in done:
                    job = running.pop(reference)
                    outcomes[job.index] = _receive(ray, reference, job, root)
                tell(outcomes, float(len(outcomes)))
            return outcomes

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self.address is None:
            # Ray replaces 127.0.0.1 by an address that others can reach, unless it is told that there are no others.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError:
            raise ConfigError("Ray is not installed; it comes with: pip install 'servecast[ray]'") from None
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if self.address is None:
            options |= {"address": "local", "num_cpus": self.jobs, "include_dashboard": False}
            options |= {"_node_ip_address": "127.0.0.1"}
        else:
            options |= {"address": self.address}
        try:
            ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            at = self.address or "this machine"
            raise ConfigError(f"Ray at {at} cannot be reached: {str(error).splitlines()[0]}") from None
        try:
            yield ray
        finally:
            ray.shutdown()


def make(job: Job, trace: TraceFile, content: bytes, where: str | None, version: str) -> Made:
    """Replay a job on the machine that this is called on; runs as a task of Ray.

    content : the trace, a Parquet file
    version : what the run is to be made with
    """
    if version != manifest.PROGRAM:
        reason = f"a machine of the cluster has {manifest.PROGRAM}; must be {version}, as here"
        return Made(Outcome(None, reason, work.EXIT_INPUT), None)
    with tempfile.TemporaryDirectory(prefix="servecast-") as name:
        root = Path(name)
        try:
            (root / trace.path).write_bytes(content)
        except OSError as error:
            return Made(work.failure(error), None)
        here = replace(trace, path=root / trace.path)
        outcome = work.make(job, lambda _: None, trace=here, root=root / "runs", where=where)
        return Made(outcome, None if outcome.figures is None else _pack(root / "runs" / job.run_id))


def _receive(ray: Any, reference: Any, job: Job, root: Path) -> Outcome:
    try:
        made: Made = ray.get(reference)
        if made.archive is not None:
            _unpack(made.archive, root, job.run_id)
    except ray.exceptions.RayError as error:
        lost = f"lost with its machine {RETRIES + 1} times" if _is_loss(ray, error) else type(error).__name__
        return Outcome(None, f"its task on the cluster failed: {lost}", EXIT_FAULT)
    except RunError as error:
        return work.failure(error)
    return made.outcome


def _is_loss(ray: Any, error: Exception) -> bool:
    kinds = ("WorkerCrashedError", "NodeDiedError", "ObjectLostError", "OutOfMemoryError")
    return isinstance(error, tuple(getattr(ray.exceptions, kind) for kind in kinds if hasattr(ray.exceptions, kind)))


def _pack(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder), recursive=False)
    return out.getvalue()


def _unpack(content: bytes, root: Path, run_id: str) -> None:
    """Put a run folder under `root`, whole or not at all; if another process was first, its result stays."""
    part = root / f".{run_id}.{os.getpid()}.partial"
    try:
        part.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(part, filter="data")
        os.rename(part, root / run_id)
    except OSError as error:
        if manifest.find(root, run_id) is None:
            raise RunError(f"{root / run_id}: cannot be written: {error.strerror}; nothing was kept") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
