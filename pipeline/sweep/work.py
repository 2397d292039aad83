"""Work: what one process does for one point, wherever that process runs."""

import contextlib
import fcntl
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import kernel
from pipeline.config import Config
from pipeline.engines import DEFAULT, POLICIES
from pipeline.errors import ServecastError
from pipeline.query import session
from pipeline.replay import driver
from pipeline.replay.manifest import TraceFile
from pipeline.replay.prepare import prepare

EXIT_INPUT, EXIT_FAULT = 2, 3


@dataclass(frozen=True, slots=True)
class Job:
    """A run to make: its place among the jobs, its id and its settings."""

    index: int
    run_id: str
    config: Config


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: figures of the finished run, or why there is none and whose fault it is."""

    figures: dict[str, Any] | None
    reason: str | None = None
    exit_code: int = 0
    made: bool = False  # it had to be run, else it was there


def make(job: Job, share: Callable[[float], None], *, trace: TraceFile, root: Path, where: str | None) -> Outcome:
    """Replay a job into its run folder, unless it is there already, and return its figures or why it failed.

    share : told which share of the trace has been replayed
    """
    try:
        warm(job.config.engine.policy)
        run, made = driver.replay(trace, job.config, root, where=where, report=lambda seen: share(seen.share))
        return Outcome(figures(run), made=made)
    except Exception as error:
        return failure(error)


def figures(run: Path) -> dict[str, Any]:
    """Return the row of `sweep_points` of a finished run, with one thread: the same bits on every machine."""
    connection = session.open([run], threads=1, keep=True)
    (row,) = session.answer_rows(connection, "sweep_points")
    return row


def failure(error: Exception) -> Outcome:
    """Return an error as an outcome; the text of an unforeseen one may quote a log, so only its place is shown."""
    if isinstance(error, ServecastError):
        return Outcome(None, str(error), error.exit_code)
    if isinstance(error, MemoryError):
        return Outcome(None, "out of memory; fewer runs at once need less (--jobs)", EXIT_INPUT)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return Outcome(None, f"{error.filename}: {error.strerror}", EXIT_INPUT)
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "unknown" if frame is None else f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
    return Outcome(None, f"internal fault: {type(error).__name__} at {place}", EXIT_FAULT)


def is_compiled(policy: str = DEFAULT) -> bool:
    """Return whether the engine of a policy has been compiled on this machine."""
    return (kernel.CACHE_FOLDER / f"compiled-{policy}").is_file()


def warm(policy: str = DEFAULT) -> None:
    """Compile an engine into numba's cache unless it is there; of several processes one does it, the others wait."""
    if is_compiled(policy):
        return
    with _alone(kernel.CACHE_FOLDER):
        if is_compiled(policy):
            return
        with tempfile.TemporaryDirectory(prefix="servecast-") as name:
            log = Path(name) / "one.jsonl"
            log.write_text(json.dumps({"timestamp": 0, "input_length": 8, "output_length": 2, "hash_ids": [1]}) + "\n")
            driver.replay(prepare([log], Path(name)), Config(engine=POLICIES[policy]()), Path(name))
        with contextlib.suppress(OSError):
            (kernel.CACHE_FOLDER / f"compiled-{policy}").touch()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; where it cannot be locked, go on without: work is then done twice, not wrong."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / "lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
