"""Fixtures of the tests that need a real Slurm: one shared cluster per process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from advised import AdvisedSite, advised_site
from testbed import Testbed, requirements

from advisor.schedulers.slurm.scheduler import Slurm

SHORT_WAY = "test_short_way.py"
"""What `make test` has of this folder."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder as part of the long tests."""
    here = f"{Path(__file__).parent}{os.sep}"  # of nine thousand tests' paths, text is compared
    for item in items:
        if str(item.path).startswith(here) and item.path.name != SHORT_WAY:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def testbed() -> Iterator[Testbed]:
    """The shared cluster, with Lua hooks on that do nothing; skips where it cannot run."""
    if reason := requirements():
        pytest.skip(reason)
    with Testbed() as cluster:
        yield cluster


@pytest.fixture
def clean_testbed(testbed: Testbed) -> Iterator[Testbed]:
    """The shared cluster; afterwards its jobs are cancelled and its hooks do nothing again."""
    yield testbed
    testbed.reset()


@pytest.fixture(scope="module")
def site(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[AdvisedSite]:
    """A site that runs the advisor, for the tests of one module.

    Its daemon watches the cluster every WATCH_S seconds of the module, if that is set.
    """
    with advised_site(testbed, watch_s=getattr(request.module, "WATCH_S", 0)) as advised:
        yield advised


@pytest.fixture
def slurm(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """The backend, pointed at the cluster."""
    for name in [n for n in os.environ if n.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, testbed.env()[name])
    return Slurm()
