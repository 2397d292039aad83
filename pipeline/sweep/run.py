"""Run: a grid and a trace into runs, one per point, and the result beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pipeline import hardware, report
from pipeline.errors import ConfigError, ServecastError
from pipeline.replay import manifest
from pipeline.replay.manifest import TraceFile
from pipeline.sweep import local, results, work
from pipeline.sweep.cluster import Cluster
from pipeline.sweep.grid import Grid
from pipeline.sweep.results import DONE, FAILED, UNUSABLE, Choice, Result
from pipeline.sweep.work import Job, Outcome

SWEEPS = "sweeps"


@dataclass(slots=True)
class Progress:
    """How far a sweep is: runs that are done or failed, of how many, and the work done as a number of runs."""

    stage: str
    runs: int
    done: int = 0
    failed: int = 0
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep that is done: its folder, its points in order, and the one to choose."""

    folder: Path
    root: Path
    grid: Grid
    results: tuple[Result, ...]
    choice: Choice
    made: int  # runs that were made now; the others were there
    files: tuple[Path, ...]
    exit_code: int  # 0: every point is done; 2: some are unusable; 3: a run failed for a fault of the program


@dataclass(slots=True)
class _Plan:
    """Jobs to do, and for each point its run or why it has none; several points may be the same run."""

    jobs: list[Job] = field(default_factory=list)
    run_ids: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)


def sweep(
    grid: Grid,
    trace: TraceFile,
    root: Path,
    *,
    where: str | None = None,
    workers: int = 1,
    cluster: Cluster | None = None,
    pages: bool = False,
    choose: Callable[[Sequence[Result], float], Choice] = results.choose,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Sweep:
    """Make the run of every point that is not there yet, and write table, page and choice to `root/sweeps/<id>/`.

    workers : processes on this machine; on a cluster only what is there already is read here
    pages   : also write the report page of every run
    choose  : takes the points and the share of requests that must keep the SLO
    Raises ConfigError if no point can be used, or the cluster cannot. A run that fails costs no other one.
    """
    plan = _plan(grid, trace, where)
    if not plan.jobs:
        raise ConfigError("\n".join(dict.fromkeys(reason for reason in plan.reasons if reason)))
    digest = results.digest(grid, trace, where)
    folder = root / SWEEPS / digest[:16]
    known = results.known_figures(folder)
    by_run = {job.run_id: Outcome(known[job.run_id]) for job in plan.jobs if _is_known(job, known, root)}
    jobs = [job for job in plan.jobs if job.run_id not in by_run]
    outcomes = _make(jobs, trace, root, where, workers, cluster, tell)
    by_run |= {job.run_id: outcomes[job.index] for job in jobs}
    found = tuple(
        _result(point.number, point.settings, run_id, reason, by_run)
        for point, run_id, reason in zip(grid.points, plan.run_ids, plan.reasons, strict=True)
    )
    choice = choose(found, grid.target_slo_share)
    facts = results.content(digest, grid, trace, where, found, choice, root)
    results.write(folder, results.table(found, grid.varied, choice), facts)
    failed = {o.exit_code for o in by_run.values()} - {0}
    if pages:
        failed |= _pages([job for job in plan.jobs if by_run[job.run_id].figures], root, folder, workers, tell)
    files = report.write_sweep(folder)
    unusable = {work.EXIT_INPUT} if any(plan.reasons) else set()
    made = sum(outcome.made for outcome in by_run.values())
    return Sweep(folder, root, grid, found, choice, made, tuple(files), max(failed | unusable, default=0))


def _plan(grid: Grid, trace: TraceFile, where: str | None) -> _Plan:
    """Resolve every point as a replay would; what does not work gets its reason."""
    plan, known = _Plan(), set[str]()
    for point in grid.points:
        run_id, reason = None, point.reason
        if point.config is not None:
            try:
                resolved = hardware.resolve(point.config).config
            except ServecastError as error:
                reason = str(error)
            else:
                run_id = manifest.run_id(trace.digest, where, resolved, False)
                if run_id not in known:
                    known.add(run_id)
                    plan.jobs.append(Job(len(plan.jobs), run_id, point.config))
        plan.run_ids.append(run_id)
        plan.reasons.append(reason)
    return plan


def _is_known(job: Job, known: dict, root: Path) -> bool:
    return job.run_id in known and manifest.find(root, job.run_id) is not None


def _make(
    jobs: Sequence[Job],
    trace: TraceFile,
    root: Path,
    where: str | None,
    workers: int,
    cluster: Cluster | None,
    tell: Callable[[Progress], None],
) -> dict[int, Outcome]:
    here = [job for job in jobs if cluster is None or manifest.find(root, job.run_id)]
    there = [job for job in jobs if job not in here]
    call = partial(work.make, trace=trace, root=root, where=where)
    policies = {job.config.engine.policy for job in jobs}
    compiling = cluster is None and not all(map(work.is_compiled, policies))
    outcomes: dict[int, Outcome] = {}

    def seen(new: dict[int, Outcome], done: float) -> None:
        every = [*outcomes.values(), *new.values()]
        failed = sum(outcome.figures is None for outcome in every)
        still = compiling and not all(map(work.is_compiled, policies))
        stage = "compiling the engine, once (under a minute)" if still else "replaying"
        tell(Progress(stage, len(jobs), len(every), failed, len(outcomes) + done))

    seen({}, 0.0)
    outcomes |= local.run(call, here, workers, seen) if here else {}
    if cluster is not None and there:
        outcomes |= cluster.run(there, trace, root, where, seen)
    return outcomes


def _pages(jobs: Sequence[Job], root: Path, folder: Path, workers: int, tell: Callable[[Progress], None]) -> set[int]:
    """Write the report pages that are missing, and return the exit codes of those that failed."""
    missing = [job for job in jobs if not (folder / job.run_id / "report.html").is_file()]

    def seen(new: dict[int, Outcome], done: float) -> None:
        failed = sum(outcome.exit_code > 0 for outcome in new.values())
        tell(Progress("writing report pages", len(missing), len(new), failed, done))

    call = partial(_page, root=root, folder=folder)
    return {outcome.exit_code for outcome in local.run(call, missing, workers, seen).values()} - {0}


def _page(job: Job, share: Callable[[float], None], *, root: Path, folder: Path) -> Outcome:
    try:
        report.write([root / job.run_id], folder / job.run_id)
    except Exception as error:
        return work.failure(error)
    return Outcome({})


def _result(number: int, settings: dict, run_id: str | None, reason: str | None, by_run: dict[str, Outcome]) -> Result:
    if run_id is None:
        return Result(number, settings, UNUSABLE, None, None, reason)
    outcome = by_run[run_id]
    if outcome.figures is None:
        return Result(number, settings, FAILED, run_id, None, outcome.reason)
    return Result(number, settings, DONE, run_id, outcome.figures)
