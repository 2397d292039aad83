"""A job that kills its process; a module of its own, since every process of a pool imports it."""

import os
import signal
import time
from collections.abc import Callable

from pipeline.sweep.work import Job, Outcome


def deadly(job: Job, share: Callable[[float], None], *, victim: int) -> Outcome:
    """Kill this process if the job is the victim, else wait until the victim has begun."""
    share(0.5)
    if job.index == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
    return Outcome({"index": job.index})
