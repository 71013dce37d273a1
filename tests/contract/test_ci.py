"""What `.ci/run` does with failing tests: the real script and Makefile on a tree of posed tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARKERS = """\
[tool.pytest.ini_options]
markers = ["cluster", "package", "terminal", "slow"]
addopts = "-p no:hypothesispytest --basetemp=made"
"""
"""Without a folder of its own it would close the one of the tests around it to other users."""
MARKED = "import pytest\nfrom pathlib import Path\npytestmark = pytest.mark.{}\n\n\n"
PASSES = "def test_it():\n    pass\n"
FAILS = 'def test_it():\n    print("ran")\n    assert False, "on purpose"\n'
ONCE = """\
@pytest.mark.parametrize("number", range({}))
def test_it(number):
    Path("ran.txt").open("a").write(f"{{number}}\\n")
    assert Path("ran.txt").read_text().splitlines().count(str(number)) > 1, "the first time"
"""


class Tree:
    """A project that has this one's Makefile and continuous integration, and tests of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / ".ci", root / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Makefile", root)
        self.write("pyproject.toml", MARKERS)
        for name in ("tests/slurm/packages.sh", "release/tools.sh", "tests/lint/__main__.py"):
            self.write(name, "")
        self.write("lab/pyproject.toml", "")
        for folder in ("advisor", "tui", "hooks", "db"):
            (root / folder).mkdir()
        for tool in ("ruff", "mypy", "lint-imports"):
            self.program(tool, f'echo "{tool} $*"')
        self.program("python", f'exec {sys.executable} "$@"')
        (root / ".venv/.ready-dev").touch()  # made: nothing is to be installed

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, command: str) -> None:
        self.write(f".venv/bin/{name}", f"#!/bin/sh\n{command}\n")
        (self.root / ".venv/bin" / name).chmod(0o755)

    def run(self, *command: str, many: str = "MANY=-rs") -> tuple[int, str]:
        """Return exit code and output of a command; the posed tests share one process."""
        if many:
            (self.root / ".venv/.compiled").touch()  # a third of the time is spent on that
        done = subprocess.run(
            command,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "MAKEFLAGS": many},
        )
        return done.returncode, done.stdout + done.stderr

    def integrate(self) -> tuple[int, str]:
        """Return exit code and output of the script."""
        return self.run(str(self.root / ".ci/run"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.write("tests/test_fast.py", PASSES)
    tree.write("tests/test_cluster.py", MARKED.format("cluster") + PASSES)
    return tree


def test_all_that_passes_runs_once(tree: Tree) -> None:
    code, output = tree.integrate()
    assert code == 0, output
    assert output.count("1 passed, 1 deselected") == 2
    for word in ("ruff check .", "ruff format --check .", "mypy", "lint-imports --no-cache"):
        assert output.count(f"{word}") == 1, output
    assert "FLAKY" not in output


@pytest.mark.parametrize("count", [1, 3])
def test_a_test_of_a_cluster_that_passes_the_second_time_is_named(tree: Tree, count: int) -> None:
    tree.write("tests/test_cluster.py", MARKED.format("cluster") + ONCE.format(count))
    code, output = tree.integrate()
    assert code == 0, output
    named = [line for line in output.splitlines() if line.startswith("FLAKY ")]
    assert sorted(named) == [f"FLAKY tests/test_cluster.py::test_it[{n}]" for n in range(count)]


def test_so_it_is_where_processes_share_the_tests(tree: Tree) -> None:
    tree.write("tests/test_cluster.py", MARKED.format("cluster") + ONCE.format(1))
    code, output = tree.run(str(tree.root / ".ci/run"), many="")
    assert code == 0 and "4 workers" in output, output
    assert "FLAKY tests/test_cluster.py::test_it[0]" in output


def test_more_than_three_are_no_bad_luck(tree: Tree) -> None:
    tree.write("tests/test_cluster.py", MARKED.format("cluster") + ONCE.format(4))
    code, output = tree.integrate()
    assert code != 0
    assert "4 tests of clusters failed: none is run again" in output
    assert (tree.root / "ran.txt").read_text().splitlines().count("0") == 1


def test_what_fails_again_fails(tree: Tree) -> None:
    tree.write("tests/test_cluster.py", MARKED.format("cluster") + FAILS)
    tree.write("tests/test_other.py", MARKED.format("cluster") + ONCE.format(1))
    code, output = tree.integrate()
    assert code != 0
    assert output.count("once more, alone: ") == 2
    assert "FLAKY tests/test_other.py::test_it[0]" in output
    assert "FLAKY tests/test_cluster.py" not in output


@pytest.mark.parametrize("marker", ["package", "slow"])
def test_what_needs_no_cluster_has_one_try(tree: Tree, marker: str) -> None:
    tree.write("tests/test_other.py", MARKED.format(marker) + FAILS)
    tree.write("tests/test_cluster.py", MARKED.format("cluster") + ONCE.format(1))
    code, output = tree.integrate()
    assert code != 0 and output.count('print("ran")') == 1, output
    assert "once more" not in output and "FLAKY" not in output


def test_nothing_of_make_test_is_repeated(tree: Tree) -> None:
    tree.write("tests/test_fast.py", MARKED.format("skipif(False, reason='')") + ONCE.format(1))
    code, output = tree.integrate()
    assert code != 0
    assert (tree.root / "ran.txt").read_text() == "0\n"
    assert "FLAKY" not in output and "test_cluster" not in output


def test_a_rule_that_is_broken_fails(tree: Tree) -> None:
    tree.write("tests/lint/__main__.py", "raise SystemExit('a.py:1: no')\n")
    code, output = tree.integrate()
    assert code != 0 and "a.py:1: no" in output


def test_a_file_of_clusters_that_cannot_be_read_fails(tree: Tree) -> None:
    tree.write("tests/test_cluster.py", "import no_such_module\n")
    code, output = tree.integrate()
    assert code != 0 and "no_such_module" in output and "FLAKY" not in output


def test_test_all_runs_every_part_once_and_says_why_one_is_skipped(tree: Tree) -> None:
    skipped = "def test_it():\n    pytest.skip('no such terminal')\n"
    tree.write("tests/test_terminal.py", MARKED.format("terminal") + skipped)
    tree.write("tests/test_other.py", MARKED.format("cluster") + ONCE.format(1))
    code, output = tree.run("make", "test-all")
    assert code != 0
    assert (tree.root / "ran.txt").read_text() == "0\n"
    assert "1 passed, 3 deselected" in output
    assert "1 failed, 1 passed, 1 skipped, 1 deselected" in output
    assert "test_terminal.py:7: no such terminal" in output
