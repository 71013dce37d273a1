"""pytest, but a test of a cluster that fails is run once more, alone.

Slurm's daemons answer late where a machine is busy. A test that passes then is printed as
``FLAKY name``, and the whole passes unless there are more than three of them. No other test gets
a second try.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST = 3
"""Failures beyond it are no bad luck."""


class Failures:
    """The names of the tests that failed, and of those that another try may be given."""

    def __init__(self) -> None:
        self.all: dict[str, None] = {}
        self.of_clusters: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure; pytest calls it for every test's set-up, call and end."""
        if report.failed:
            self.all[report.nodeid] = None
            if "cluster" in report.keywords:
                self.of_clusters[report.nodeid] = None


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments; return the exit code."""
    failures = Failures()
    code = pytest.main(arguments, plugins=[failures])
    if code != pytest.ExitCode.TESTS_FAILED or failures.all.keys() != failures.of_clusters.keys():
        return int(code)
    if len(failures.all) > MOST:
        print(f"{len(failures.all)} tests of clusters failed: none is run again")
        return int(code)
    flaky = [name for name in failures.all if passes_alone(name)]
    print("\n".join(f"FLAKY {name}" for name in flaky))
    return 0 if len(flaky) == len(failures.all) else int(code)


def passes_alone(name: str) -> bool:
    """Run one test in a process of its own."""
    print(f"once more, alone: {name}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", name], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
