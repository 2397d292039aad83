"""Local: jobs in processes of this machine, one run each at a time.

A process that dies (out of memory, say) breaks the whole pool of `concurrent.futures`, and nobody says which job it
was. Jobs that had begun are then tried again one by one, so that only the one that kills its process is lost.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any

from pipeline.sweep.work import EXIT_FAULT, Job, Outcome

Call = Callable[[Job, Callable[[float], None]], Outcome]
Tell = Callable[[dict[int, Outcome], float], None]

_TICK_S = 0.2
_NOT_BEGUN = -1.0
_DIED = Outcome(None, "its process died; out of memory? fewer runs at once need less (--jobs)", EXIT_FAULT)


def run(call: Call, jobs: Sequence[Job], workers: int, tell: Tell = lambda *_: None) -> dict[int, Outcome]:
    """Return the outcome of every job by its index.

    call : a picklable function that does one job and does not raise
    tell : told, several times a second, the outcomes so far and the sum of the shares done of all jobs

    When interrupted, stops the processes, lets them clear away what is unfinished, and raises.
    """
    places = 1 + max((job.index for job in jobs), default=0)
    shares = multiprocessing.get_context("spawn").RawArray("d", [_NOT_BEGUN] * places)
    outcomes: dict[int, Outcome] = {}
    waiting, suspects = list(jobs), list[Job]()
    while waiting or suspects:
        batch = suspects[:1] or waiting
        _fan_out(call, batch, 1 if suspects else workers, shares, outcomes, tell)
        undone = [job for job in batch if job.index not in outcomes]
        if undone and len(batch) == 1:
            outcomes[batch[0].index] = _DIED
        elif undone:
            suspects = [job for job in undone if shares[job.index] != _NOT_BEGUN] or undone[:1]
        suspects = [job for job in suspects if job.index not in outcomes]
        waiting = [job for job in waiting if job.index not in outcomes and job not in suspects]
    return outcomes


def _fan_out(
    call: Call, jobs: Sequence[Job], workers: int, shares: Any, outcomes: dict[int, Outcome], tell: Tell
) -> None:
    """Fill in outcomes of the jobs; those of a pool that broke stay out."""
    for job in jobs:
        shares[job.index] = _NOT_BEGUN
    strangers = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), multiprocessing.get_context("spawn"), initializer=_begin, initargs=(shares,)
    )
    try:
        with _interrupts_ignored():
            index_of = {pool.submit(_do, call, job): job.index for job in jobs}
        pending = set(index_of)
        while pending:
            done, pending = wait(pending, timeout=_TICK_S, return_when=FIRST_COMPLETED)
            for future in done:
                with contextlib.suppress(BrokenProcessPool):
                    outcomes[index_of[future]] = future.result()
            tell(outcomes, len(outcomes) + sum(max(0.0, shares[i]) for i in index_of.values() if i not in outcomes))
    except BaseException:
        for process in set(multiprocessing.active_children()) - strangers:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from their first instruction: the parent stops them in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Worker:
    """State of a worker process."""

    shares: Any = None
    busy = False
    stopping = False


def _begin(shares: Any) -> None:
    _Worker.shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave the job at hand, which clears its folder away; a second signal does not disturb that."""
    again, _Worker.stopping = _Worker.stopping, True
    if not _Worker.busy:
        os._exit(1)
    if not again:
        raise SystemExit(128 + number)


def _leave_with_parent() -> None:
    """End when the parent is gone, killed perhaps: nobody else would tell this process to."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _do(call: Call, job: Job) -> Outcome:
    shares = _Worker.shares

    def share(value: float) -> None:
        shares[job.index] = value

    share(0.0)
    _Worker.busy = True
    try:
        return call(job, share)
    finally:
        _Worker.busy = False
        if _Worker.stopping:
            os._exit(1)  # else it would take the next job
