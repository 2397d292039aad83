"""The same sweep on a Ray cluster: two node processes on this machine, one killed in mid-sweep."""

import importlib.util
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.replay import driver, manifest
from pipeline.replay.prepare import prepare
from pipeline.sweep import cluster, grid, local, run, work
from pipeline.sweep.cluster import Cluster
from pipeline.sweep.work import Job
from tests.replay import servecast
from tests.sweep.little import GRID, little, run_here

with_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (servecast[ray])")
# Read when Ray is first imported: no reports to its makers, and loopback addresses stay what they are.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
LINE = "0us 64>200 times=300"
# Ray waits fifteen seconds before it takes a node for lost.
SOON_MISSED = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    return grid.load(little(tmp_path_factory.mktemp("grid") / "grid.toml", GRID))


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    place = tmp_path_factory.mktemp("trace")
    return prepare([servecast.trace(place / "trace.parquet", LINE)], place)


@pytest.fixture(scope="module")
def here(points, trace, tmp_path_factory):
    """The sweep without Ray, in this process: its folder and what it said."""
    root = tmp_path_factory.mktemp("here") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "run", run_here)
        return root, run.sweep(points, trace, root, workers=1)


def contents(root: Path) -> dict[str, bytes]:
    """Every file of runs and sweep, but the wall times."""
    return servecast.content(root)


def test_without_ray_the_error_says_how_to_get_it(points, trace, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'servecast\[ray\]'"):
        run.sweep(points, trace, tmp_path / "runs", cluster=Cluster())


def job(points):
    from pipeline import hardware

    config = points.points[0].config
    return Job(0, "", config), hardware.resolve(config).config


def test_a_task_needs_no_file_of_the_caller_and_sends_the_whole_run(points, trace, tmp_path):
    """What a machine of the cluster does, called here."""
    plain, resolved = job(points)
    asked = replace(plain, run_id=manifest.run_id(trace.digest, None, resolved, False))
    sent = replace(trace, path=Path("trace.parquet"))
    made = cluster.make(asked, sent, trace.path.read_bytes(), None, manifest.PROGRAM)
    cluster._unpack(made.archive, tmp_path / "there", asked.run_id)
    alone, _ = driver.replay(trace, asked.config, tmp_path / "here")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert made.outcome.figures == work.figures(alone)


def test_a_machine_with_another_version_is_refused(points, trace):
    plain, _ = job(points)
    made = cluster.make(plain, replace(trace, path=Path("trace.parquet")), b"", None, "servecast 0.0.9")
    assert made.outcome.exit_code == 2
    assert "must be servecast 0.0.9, as here" in made.outcome.reason


@pytest.fixture(scope="module")
def two_nodes():
    """A head that runs no task and can keep nothing but its own, and two nodes of one processor each."""
    ray_cluster = importlib.import_module("ray.cluster_utils")
    started = ray_cluster.Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
            "_system_config": SOON_MISSED,
        },
    )
    nodes = [started.add_node(num_cpus=1, node_ip_address="127.0.0.1") for _ in range(2)]
    started.wait_for_nodes()
    yield started, nodes
    started.shutdown()


def kill(node) -> None:
    """Kill the processes of a node without warning, its raylet first."""
    for kind in ("raylet", "worker"):
        for info in node.all_processes.get(kind, []):
            os.kill(info.process.pid, signal.SIGKILL)


@with_ray
@pytest.mark.slow
def test_a_sweep_outlives_a_node_and_gives_the_same_bytes(points, trace, here, tmp_path, two_nodes):
    root, wanted = here
    started, nodes = two_nodes
    killed = []

    def tell(seen):
        # The second result is here, so both nodes have had work, and more is under way.
        if seen.done >= 2 and not killed:
            killed.append(seen.done)
            kill(nodes[1])

    there = run.sweep(points, trace, tmp_path / "there", cluster=Cluster(started.address), tell=tell)
    assert killed
    assert killed[0] < len(points.points)
    assert there.exit_code == wanted.exit_code == 0
    assert there.made == wanted.made == len(points.points)
    assert contents(tmp_path / "there") == contents(root)


@with_ray
@pytest.mark.slow
def test_a_ray_of_its_own(points, trace, here, tmp_path):
    root, wanted = here
    there = run.sweep(points, trace, tmp_path / "there", cluster=Cluster(jobs=1))
    assert there.choice == wanted.choice
    assert contents(tmp_path / "there") == contents(root)
    assert run.sweep(points, trace, tmp_path / "there", cluster=Cluster("nowhere:1")).made == 0  # nothing left to ask


@with_ray
@pytest.mark.slow
def test_an_address_that_is_none(points, trace, tmp_path):
    with pytest.raises(ConfigError, match=r"Ray at nowhere cannot be reached"):
        run.sweep(points, trace, tmp_path / "runs", cluster=Cluster("nowhere"))
