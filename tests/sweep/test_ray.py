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
from pipeline.sweep import cluster, grid, run, work
from pipeline.sweep.cluster import Cluster
from pipeline.sweep.work import Job
from tests.replay import servecast
from tests.sweep.little import GRID, little

with_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (servecast[ray])")
# Read when Ray is first imported: no reports to its makers, and loopback addresses stay what they are.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
LINE = "0us 64>200 times=300"


@pytest.fixture
def points(tmp_path):
    return grid.load(little(tmp_path / "grid.toml", GRID))


@pytest.fixture
def trace(tmp_path):
    return prepare([servecast.trace(tmp_path / "trace.parquet", LINE)], tmp_path)


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
    made = cluster.make(asked, sent, trace.path.read_bytes(), None, manifest.ENGINE_VERSION)
    cluster._unpack(made.archive, tmp_path / "there", asked.run_id)
    here, _ = driver.replay(trace, asked.config, tmp_path / "here")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert made.outcome.figures == work.figures(here)


def test_a_machine_with_another_version_is_refused(points, trace):
    plain, _ = job(points)
    made = cluster.make(plain, replace(trace, path=Path("trace.parquet")), b"", None, "servecast 0.0.9")
    assert made.outcome.exit_code == 2
    assert "must be servecast 0.0.9, as here" in made.outcome.reason


@pytest.fixture
def two_nodes():
    """A head that runs no task and can keep nothing but its own, and two nodes of one processor each."""
    ray_cluster = importlib.import_module("ray.cluster_utils")
    started = ray_cluster.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.1"},
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
def test_a_sweep_outlives_a_node_and_gives_the_same_bytes(points, trace, tmp_path, two_nodes):
    here = run.sweep(points, trace, tmp_path / "here", workers=1)
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
    assert there.exit_code == here.exit_code == 0
    assert there.made == here.made == len(points.points)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


@with_ray
@pytest.mark.slow
def test_a_ray_of_its_own(points, trace, tmp_path):
    here = run.sweep(points, trace, tmp_path / "here", workers=1)
    there = run.sweep(points, trace, tmp_path / "there", cluster=Cluster(jobs=1))
    assert there.choice == here.choice
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert run.sweep(points, trace, tmp_path / "there", cluster=Cluster("nowhere:1")).made == 0  # nothing left to ask


@with_ray
@pytest.mark.slow
def test_an_address_that_is_none(points, trace, tmp_path):
    with pytest.raises(ConfigError, match=r"Ray at nowhere cannot be reached"):
        run.sweep(points, trace, tmp_path / "runs", cluster=Cluster("nowhere"))
