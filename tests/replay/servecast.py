"""The commands as a user gives them: in this process, or in one of their own where signals and limits matter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from pipeline import cli
from tests import builders
from tests.shared import CHECKOUT

# A little engine: 64 usable blocks of 16 tokens, at most 8 requests of at most 512 tokens, 256 tokens a step.
LITTLE = {
    "engine.num_gpu_blocks": 65,
    "engine.max_model_len": 512,
    "engine.max_num_seqs": 8,
    "engine.max_num_batched_tokens": 256,
}


def settings(**changed) -> list[str]:
    """Return --set options: the little engine, with `engine__block_size=8` and the like on top."""
    values = LITTLE | {name.replace("__", "."): value for name, value in changed.items()}
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def run(*arguments) -> Result:
    """Give a command in this process."""
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments], prog_name="servecast")


def start(*arguments, before: str = "", **options) -> subprocess.Popen:
    """Give a command in a process of its own; `before` is Python that it runs first."""
    command = [sys.executable, "-c", f"{before}\nfrom pipeline.cli import main; main(prog_name='servecast')"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    options = {"env": os.environ | {"PYTHONPATH": str(CHECKOUT)}} | options
    return subprocess.Popen([*command, *map(str, arguments)], **(pipes | options))


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    """Wait for a command and return its exit status, output and errors."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def trace(path: Path, text: str) -> Path:
    """Write the trace that a line describes (tests/builders.py)."""
    pq.write_table(builders.trace(text).table(), path)
    return path


def replay(trace_path: Path, root: Path, *more, **changed) -> Path:
    """Replay on the little engine and return the run folder."""
    result = run("replay", trace_path, "-o", root, *settings(**changed), *more)
    assert result.exit_code == 0, result.output
    return next(Path(line.split(maxsplit=1)[1]) for line in result.stdout.splitlines() if line.startswith("run "))


def requests(folder: Path) -> pl.DataFrame:
    """Return the requests of a run, labels as text."""
    return pl.read_parquet(folder / "requests.parquet").with_columns(pl.col(pl.Categorical).cast(pl.String))


def facts(folder: Path) -> dict:
    """Return the content of run.json."""
    return json.loads((folder / "run.json").read_text())


def content(folder: Path) -> dict[str, bytes]:
    """Return every file of a run by its place in the folder, but the one with wall times."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "timing.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
