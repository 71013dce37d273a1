"""The cluster of the tests of faults; hooks are installed once a module."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulty_cluster import ROOT, Cluster, Serving
from hook_daemon import HookDaemon
from testbed import Testbed


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="hook-") as name:
        Path(name).chmod(0o755)
        cluster = Cluster(testbed, Path(name))
        cluster.install()
        yield cluster
        command = ["hook", "remove", "--dir", str(testbed.conf_dir)]
        subprocess.run([sys.executable, "-m", "advisor", *command], cwd=ROOT, check=True)
        testbed.reset()


@pytest.fixture
def cluster(site: Cluster) -> Iterator[Cluster]:
    site.fresh_runtime()
    site.log.lines.clear()
    yield site
    print(*site.log.lines, sep="\n")  # why a job went on unchanged
    site.socket.unlink(missing_ok=True)
    site.testbed.run(["scancel", "--quiet", "--state=PENDING"])


@pytest.fixture
def daemon(cluster: Cluster) -> Iterator[HookDaemon]:
    with HookDaemon(cluster.socket) as listening:
        yield listening


@pytest.fixture
def serve(cluster: Cluster) -> Iterator[Callable[..., Serving]]:
    running: list[Serving] = []

    def start(*arguments: str, store: str = "a.db") -> Serving:
        running.append(Serving(cluster, cluster.folder / store, *arguments))
        return running[-1]

    yield start
    for serving in running:
        serving.stop()
