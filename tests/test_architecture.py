"""Imports point one way, heavy ones happen inside the command that needs them. There are no exceptions."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import CHECKOUT

PACKAGE = CHECKOUT / "pipeline"
BASE = {"__init__", "config", "engine_args", "engine_lines", "engines", "errors", "resources", "schema", "settings"}
# What a room may import of this package; itself is always allowed.
MAY_IMPORT = {
    **dict.fromkeys(BASE, BASE),
    "hardware": BASE,
    "ingest": BASE,
    "kernel": set(),
    "replay": BASE | {"hardware", "ingest", "kernel"},
    "query": BASE,
    "capacity": BASE | {"hardware", "ingest", "query", "replay"},
    "report": BASE | {"query"},
    "sweep": BASE | {"hardware", "kernel", "replay", "query", "report"},
    "validate": BASE | {"hardware", "replay"},
    "calibrate": BASE | {"hardware", "replay", "report"},
    "cli": BASE
    | {"calibrate", "capacity", "hardware", "ingest", "kernel", "replay", "query", "report", "sweep", "validate"},
}
HEAVY = ("numba", "polars", "duckdb", "altair", "vl_convert", "pyarrow", "numpy", "pydantic", "rich", "jinja2")


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports, at any depth; `from a import b` counts as a and as a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_room_has_its_place():
    assert {room(path) for path in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    rooms = {name.split(".")[1] for name in imports(path) if name.startswith("pipeline.")}
    rooms = {name for name in rooms if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}
    assert rooms - {room(path)} <= MAY_IMPORT[room(path)]


def test_the_kernel_needs_numpy_and_numba_only():
    outside = {name.split(".")[0] for path in FILES if room(path) == "kernel" for name in imports(path)}
    assert outside - set(sys.stdlib_module_names) == {"numpy", "numba", "pipeline"}


def test_the_product_never_looks_at_tests_or_shared_data():
    for path in FILES:
        assert not [name for name in imports(path) if name.split(".")[0] == "tests"], path
        assert "/shared/" not in path.read_text(encoding="utf-8"), path


def loaded(program: str) -> set[str]:
    """Return the heavy modules that a program has imported when it ends."""
    end = "\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program + end], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    return set(HEAVY) & {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "command", ["", "replay", "ingest", "report", "sql", "diff", "synth", "ptu", "prices", "hardware", "calibrate"]
)
def test_help_needs_nothing_heavy(command):
    arguments = [*command.split(), "--help"]
    program = f"from pipeline.cli import main\nmain({arguments!r}, standalone_mode=False)"
    assert loaded(program) == set()


def test_queries_need_no_numba():
    assert "numba" not in loaded("import pipeline.query.session, pipeline.report.run")


def test_settings_need_neither_numba_nor_polars():
    assert not {"numba", "polars", "duckdb"} & loaded("import pipeline.config, pipeline.hardware")
