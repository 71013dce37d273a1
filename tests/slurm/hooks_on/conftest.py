"""The cluster of these tests; hooks are installed once a module."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hook_daemon import HookDaemon
from hooked_cluster import Hooked
from testbed import Testbed


@pytest.fixture(scope="module")
def hooked(testbed: Testbed) -> Iterator[Hooked]:
    with tempfile.TemporaryDirectory(prefix="hook-") as name:
        Path(name).chmod(0o755)
        site = Hooked(testbed, Path(name))
        site.hook("install")
        yield site
        site.hook("remove")
        testbed.reset()


@pytest.fixture
def daemon(hooked: Hooked) -> Iterator[HookDaemon]:
    with HookDaemon(hooked.socket) as listening:
        yield listening
    hooked.testbed.run(["scancel", "--quiet", "--state=PENDING"])
