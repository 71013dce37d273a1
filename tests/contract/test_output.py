"""Where a verb prints to never makes it fail badly: locales, a full disk, a closed output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from advisor_tui import demo

from advisor.cli import VERBS

ADVISOR = (sys.executable, "-m", "advisor")
SCRIPT = """#!/bin/bash
#SBATCH -N 1
#SBATCH --exclusive
# résumé − of what this does →
srun ./cg-solver n=4e6
"""
HEADER = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
CALLS = (
    ("options", "cg-solver"),
    ("options", "cg-solver", "--all", "--view", "lines"),
    ("options", "nosuch"),
    ("report",),
    ("why", "4711"),
    ("explain", "job.sh"),
    ("explain", "job.sh", "--diff"),
    ("rank", "cg-solver"),
    ("choose",),
    ("choose", "cg-solver", "--goal", "edp"),
    ("policy", "show"),
    ("site", "show"),
    ("doctor",),
    ("train", "job.sh", "--dry-run"),
    ("fit", "cg-solver", "--dry-run"),
    ("evaluate", "grid.csv"),
    ("pareto", "grid.csv", "--x", "time_s:min", "--y", "energy_j:min"),
    ("tui",),
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something of everything."""
    store = tmp_path_factory.mktemp("example") / "advisor.db"
    demo.build(store, "ann")
    return store


@pytest.fixture
def folder(example: Path, tmp_path: Path, store_path: Path) -> Path:
    shutil.copy(example, store_path)
    (tmp_path / "job.sh").write_text(SCRIPT, encoding="utf-8")
    rows = "".join(
        f"1,1,{t},{f},{1e8 / t / f + 5:.4f},{t * 3 + f / 1e5:.3f}\n"
        for t in (1, 2, 4, 8)
        for f in (1_200_000, 1_500_000, 1_800_000, 2_100_000)
    )
    (tmp_path / "grid.csv").write_text(HEADER + rows)
    return tmp_path


def run(
    folder: Path, *argv: str, stdout: int | str = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a verb in a process of its own; ``stdout`` may be a path."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LC_", "LANG"))}
    target = os.open(stdout, os.O_WRONLY) if isinstance(stdout, str) else stdout
    try:
        return subprocess.run(
            [*ADVISOR, *argv], cwd=folder, env={**base, **environment}, stdout=target,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
    finally:
        if isinstance(stdout, str):
            os.close(target)


@pytest.fixture(scope="module")
def latin1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a Latin-1 locale, compiled for this where the system has none."""
    folder = tmp_path_factory.mktemp("locale")
    name = "en_US.ISO-8859-1"
    maker = shutil.which("localedef")
    if maker is None:
        pytest.skip("no localedef")
    made = subprocess.run(
        [maker, "-i", "en_US", "-f", "ISO-8859-1", str(folder / name)], capture_output=True
    )
    if made.returncode > 1:
        pytest.skip("localedef lacks its sources")
    return {"LOCPATH": str(folder), "LC_ALL": name}


def assert_plain(done: subprocess.CompletedProcess[bytes], what: object) -> None:
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr, (what, done)
    assert done.stderr.count(b"\n") <= 3, (what, done.stderr)
    assert done.returncode in (0, 1, 2, 3), (what, done)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_any_locale(folder: Path, call: tuple[str, ...], latin1: dict[str, str]) -> None:
    utf8 = run(folder, *call, LC_ALL="C.UTF-8")
    assert_plain(utf8, call)
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for environment in (latin1, plain):
        done = run(folder, *call, **environment)
        assert_plain(done, (call, environment))
        assert done.returncode == utf8.returncode, (environment, done.stderr)
        done = run(folder, *call, "--json", **environment)
        assert_plain(done, (call, environment))
        if done.stdout and call[0] != "tui":
            assert json.loads(done.stdout.decode("ascii")), call


def test_minus_signs_and_columns_survive(folder: Path) -> None:
    """What the locale lacks is printed as what looks most like it, one character each."""
    wide = run(folder, "options", "cg-solver", LC_ALL="C.UTF-8").stdout.decode()
    plain = run(folder, "options", "cg-solver", PYTHONIOENCODING="ascii").stdout.decode("ascii")
    assert "−" in wide and "−" not in plain and "-" in plain
    for there, here in zip(wide.splitlines(), plain.splitlines(), strict=True):
        if unicodedata.normalize("NFKD", there).isascii() or "−" in there:
            assert len(there) == len(here)


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_full_disk_is_one_line(folder: Path, call: tuple[str, ...]) -> None:
    there = run(folder, *call)
    for more, unbuffered in (((), ""), (("--json",), ""), ((), "1")):
        done = run(folder, *call, *more, stdout="/dev/full", PYTHONUNBUFFERED=unbuffered)
        assert_plain(done, call)
        assert b"No space left" in done.stderr or not there.stdout, (call, done.stderr)
        assert done.returncode in (1, 2, 3), call


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_closed_output_and_a_gone_reader(folder: Path, call: tuple[str, ...]) -> None:
    there = run(folder, *call)
    for redirection in (">&-", "<&- >&- 2>&-"):
        shell = f'"$@" {redirection}'
        done = subprocess.run(
            ["sh", "-c", shell, "sh", *ADVISOR, *call],
            cwd=folder, capture_output=True, timeout=120,
        )  # fmt: skip
        assert_plain(done, (call, redirection))
        assert done.returncode == there.returncode, (redirection, done)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(folder, *call, stdout=writer)
    finally:
        os.close(writer)
    assert_plain(done, call)
    if there.returncode == 0:
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verbs_help(folder: Path, verb: str, latin1: dict[str, str]) -> None:
    assert run(folder, verb, "--help", **latin1).returncode == 0
    full = run(folder, verb, "--help", stdout="/dev/full")
    assert_plain(full, verb)


def test_the_store_never_becomes_standard_output(folder: Path, store_path: Path) -> None:
    """With 0, 1 and 2 closed, what is opened next must not take their numbers."""
    before = store_path.read_bytes()
    code = "import sys\nfrom advisor.cli import main\nsys.exit(main(sys.argv[1:]))"
    subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code, "options", "cg-solver"],
        cwd=folder, check=True, timeout=120,
    )  # fmt: skip
    assert store_path.read_bytes() == before
