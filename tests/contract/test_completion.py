"""``advisor completion``: the shells complete verbs, options, files and names of the store."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples import example_store

Run = Callable[..., Any]

CASES = [
    ("advisor op", "options"),
    ("advisor hook inst", "install"),
    ("advisor hook install --sched", "--scheduler"),
    ("advisor hook install --scheduler sl", "slurm"),
    ("advisor choose --goal min_e", "min_energy"),
    ("advisor options cg-so", "cg-solver"),
    ("advisor choose --node-type skyl", "skylake"),
    ("advisor explain stencil.s", "stencil.sh"),
    ("advisor completion zs", "zsh"),
    ("advisor store forget cg-so", "cg-solver"),
    ("advisor train cg-so", "cg-solver"),
    ("advisor train stencil.s", "stencil.sh"),
    ("advisor lab phases cluster stencil.s", "stencil.sh"),
    ("advisor lab profile fit --table stencil.s", "stencil.sh"),
]
TYPED_AT_BASH = [
    ("advisor choose --goal=min_e", "--goal=min_energy"),
    ("advisor run -- cat stencil.s", "stencil.sh"),
]
"""bash splits ``--option=value``; where nothing else fits, it completes files."""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("example") / "advisor.db"
    example_store(store, "ann")
    return store


@pytest.fixture
def shell(
    example: Path, advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """A folder to complete in, and in it the script of a shell."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name, value in (("ADVISOR_DB", str(example)), ("PATH", programs), ("HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stencil.sh").touch()

    def script(name: str) -> Path:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        done = advisor("completion", name)
        assert (done.code, done.err) == (0, "")
        (tmp_path / f"complete.{name}").write_text(done.out)
        return tmp_path / f"complete.{name}"

    return script


def test_bash(shell: Callable[[str], Path]) -> None:
    lines = [f"source {shell('bash')}"]
    for typed, _ in CASES:
        words = typed.split()
        lines += [
            f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}",
            'COMPREPLY=(); _advisor; echo "${COMPREPLY[*]}"',
        ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [wanted for _, wanted in CASES]


def test_fish(shell: Callable[[str], Path]) -> None:
    script = f"source {shell('fish')}\n"
    script += "\n".join(f"complete -C {shlex.quote(typed)}; echo ." for typed, _ in CASES)
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    answers = [part.split("\t")[0].strip() for part in done.stdout.split("\n.\n")[:-1]]
    assert answers == [wanted for _, wanted in CASES]


def test_zsh(shell: Callable[[str], Path]) -> None:
    """zsh completes only where somebody types: at a terminal, with Tab and Enter."""
    script = shell("zsh")
    script = script.rename(script.with_name("_advisor"))
    setup = f"fpath=({script.parent} $fpath); autoload -Uz compinit; compinit -u -D"
    complete_at_a_terminal(["zsh", "-f", "-i"], f"{setup}; PROMPT=rea''dy:", CASES)


def test_bash_at_a_terminal(shell: Callable[[str], Path]) -> None:
    setup = f"source {shell('bash')}; PS1=rea''dy:"
    complete_at_a_terminal(["bash", "--norc", "-i"], setup, [*CASES, *TYPED_AT_BASH])


def test_names_without_a_store_are_none(
    advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_DB", str(tmp_path / "none.db"))
    done = advisor("completion", "applications")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert advisor("completion", "node-types", "--json").json()["names"] == []
    assert advisor("completion", "tcsh").code == 2
    assert advisor("completion", "bash", "--json").json()["shell"] == "bash"


def complete_at_a_terminal(command: list[str], setup: str, cases: list[tuple[str, str]]) -> None:
    """Type each line and Tab into a shell; what then stands there is the line, completed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        os.write(master, f"{setup}\n".encode())
        read_until(master, "ready:")
        for typed, wanted in cases:
            os.write(master, f"{typed}\t".encode())
            read_until(master, f"{' '.join(typed.split()[:-1])} {wanted}")
            os.write(master, b"\x15")  # clears the line
    finally:
        process.kill()
        process.wait()
        os.close(master)


def read_until(terminal: int, wanted: str) -> None:
    seen, end = "", time.monotonic() + 60
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{wanted!r} did not come: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
