"""A little sweep: the little engine of tests/replay over a few settings."""

from pathlib import Path

from tests.replay.servecast import LITTLE

GRID = """
"engine.max_num_seqs" = [2, 8]
"load.rate_scale" = [1, 4]
"""


def little(path: Path, sweep: str, base: str = "", **changed) -> Path:
    """Write a grid: the little engine, further tables, and what is varied."""
    values = {key.split(".")[1]: value for key, value in LITTLE.items()} | changed
    lines = "\n".join(f"{name} = {value}" for name, value in values.items() if value is not None)
    path.write_text(f"[engine]\n{lines}\n{base}\n[sweep]\n{sweep}\n")
    return path


def run_here(call, jobs, workers, tell=lambda *_: None):
    """Do jobs in this process, one after the other: in place of pipeline.sweep.local.run."""
    return {job.index: call(job, lambda share: None) for job in jobs}
