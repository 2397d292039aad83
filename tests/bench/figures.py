"""What is measured: each function returns rows of a table, every figure with all its measurements."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

from tests import shared
from tests.bench import workloads
from tests.bench.workloads import Workload

Row = dict[str, Any]
_SERVECAST = (sys.executable, "-c", "from pipeline.cli import main; main()")


def kernel(workload: Workload, trace: Path, runs: int) -> Row:
    """Replay a workload in memory and return its rates."""
    from tests.bench import kernel

    deployment, batches = kernel.batches(trace, workload.settings)
    made = [kernel.replay(deployment, batches) for _ in range(runs + 1)][1:]  # the first one warms up
    first, seconds = made[0], [one.cpu_s for one in made]
    counts = {"requests": first.requests, "steps": first.steps, "tokens": first.tokens, "events": first.events}
    rates = {f"{name}_per_s": [count / s for s in seconds] for name, count in counts.items() if name != "events"}
    return counts | rates | {"event_ns": [s / first.events * 1e9 for s in seconds], "wall_s": [m.wall_s for m in made]}


def command(workload: Workload, trace: Path, runs: int, tables: bool = False) -> Row:
    """Replay a workload as a command, in a process of its own, and return its figures."""
    arguments = [str(trace), str(runs), str(int(tables)), *workload.settings]
    lines = _python("-m", "tests.bench.command", *arguments).splitlines()
    return together([json.loads(line) for line in lines])


def together(rows: list[dict[str, float]]) -> Row:
    """Return the measurements of each figure in one list; counts, which do not vary, alone."""
    return {
        name: rows[0][name] if name in ("requests", "steps", "bytes") else [row[name] for row in rows]
        for name in rows[0]
    }


def decoding(runs: int, tokens: int) -> list[Row]:
    """Time steps in which all requests just decode, by batch and block size.

    Replays twice as many tokens as well and takes the difference, which leaves out start and prompts.
    """
    from pipeline import config, hardware
    from pipeline.replay import driver
    from pipeline.replay.state import State
    from tests.bench import kernel

    rows = []
    for block_size in (16, 256):
        for batch in (8, 64, 512):
            blocks = 2 + batch * (2 * tokens // block_size + 2)
            wanted = {"block_size": block_size, "num_gpu_blocks": blocks, "max_model_len": 2 * tokens + block_size}
            wanted |= {"max_num_seqs": 512, "enable_prefix_caching": "false"}
            settings = [f"engine.{name}={value}" for name, value in wanted.items()]
            deployment = hardware.resolve(config.load(None, settings, None))

            def seconds(length: int, batch: int = batch, deployment: hardware.Deployment = deployment) -> float:
                state = State(driver.settings(deployment, False), driver.cost(deployment))
                trace = kernel.decoding(batch, length)
                began = time.thread_time()
                deque(kernel.run(state, trace), maxlen=0)
                return time.thread_time() - began

            seconds(tokens)
            step_ns = [(seconds(2 * tokens) - seconds(tokens)) / tokens * 1e9 for _ in range(runs)]
            rows.append({"batch": batch, "block_size": block_size, "blocks": batch / block_size, "step_ns": step_ns})
    return rows


def purchase(runs: int, requests: int) -> Row:
    """Time the admission of requests to one purchase, for both kinds of rule."""
    from tests.bench import purchase

    found: Row = {"requests": requests}
    for provider in ("azure", "google"):
        purchase.admit(provider, 1000)  # compiles
        found[f"{provider}_s"] = [purchase.admit(provider, requests) for _ in range(runs)]
    return found


def fleet(runs: int, requests: int) -> Row:
    """Time eight replicas against one, per step row and request, each with so many requests per replica.

    Both routers that look at no more than the number of requests: by turn and by load.
    """
    from pipeline.ingest import synth
    from tests.bench import kernel

    found: Row = {}
    for name, replicas, settings in (
        ("one", 1, ()),
        ("by_turn", 8, ("fleet.replicas=8", "fleet.router=round_robin")),
        ("by_load", 8, ("fleet.replicas=8", "fleet.router=least_outstanding")),
    ):
        path = workloads.OUT / "traces" / f"fleet-{requests}-{replicas}.parquet"
        duration_s = requests * 8 * workloads.WEEK_S / workloads.WEEK_REQUESTS
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            synth.generate(path, requests=requests * replicas, duration_s=duration_s)
        deployment, batches = kernel.batches(path, settings)
        made = [kernel.replay(deployment, batches) for _ in range(runs + 1)][1:]
        found[f"{name}_ns"] = [one.cpu_s / (one.steps + one.requests) * 1e9 for one in made]
    for name in ("by_turn", "by_load"):
        found[f"{name}_ratio"] = median(found[f"{name}_ns"]) / median(found["one_ns"])
    return found


def start_up(runs: int, compiling: bool) -> Row:
    """Time `servecast --help`, a replay of the sample with its summary, and the first compilation."""
    found: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sample = str(shared.CHECKOUT / "traces" / "sample.parquet")
        replay = ("replay", sample, "-o", str(root / "runs"))
        found["help_s"] = [_timed(("--help",), {}) for _ in range(runs + 1)][1:]
        if compiling:
            found["first_s"] = [_timed(replay, {"NUMBA_CACHE_DIR": str(root / "cache")})]
        samples = []
        for _ in range(runs + 1):
            shutil.rmtree(root / "runs", ignore_errors=True)
            samples.append(_timed(replay, {}))
        found["sample_s"] = samples[1:]
    return {name: [list(pair) for pair in pairs] for name, pairs in found.items()}


def _timed(arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its wall seconds and the CPU seconds of the process."""
    import resource

    before, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        (*_SERVECAST, *arguments), cwd=shared.CHECKOUT, env=os.environ | environment, capture_output=True, check=False
    )
    wall_s, after = time.perf_counter() - wall_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise AssertionError(f"servecast {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _python(*arguments: str) -> str:
    done = subprocess.run(
        (sys.executable, *arguments), cwd=shared.CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(f"python {' '.join(arguments)}: {done.stderr}")
    return done.stdout
