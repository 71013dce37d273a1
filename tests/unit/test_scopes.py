"""Scopes of what the daemon starts: what systemd is asked for, and that nothing waits for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.service import scopes

BUSCTL = """#!/bin/sh
printf '%s\\n' "$@" > {told}
{answer}
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a busctl that stands in for the real one leaves what it was told."""
    monkeypatch.setattr(scopes, "SYSTEMD", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    pose(tmp_path, "exit 0")
    return tmp_path / "told"


def pose(folder: Path, answer: str) -> None:
    file = folder / "bin/busctl"
    file.write_text(BUSCTL.format(told=folder / "told", answer=answer))
    file.chmod(0o755)


def test_a_sweep_goes_below_its_users_slice(told: Path) -> None:
    assert scopes.move_to_scope(4321, "train", 1000) == ""
    words = told.read_text().splitlines()
    assert words[:2] == ["--system", "call"]
    assert words[2:6] == [*scopes._MANAGER, "StartTransientUnit"]
    assert words[7:9] == ["advisor-train-4321.scope", "fail"]
    shown = "3 PIDs au 1 4321 Slice s user-1000.slice CollectMode s inactive-or-failed 0"
    assert " ".join(words[9:]) == shown


def test_what_stores_runs_goes_below_the_systems_slice(told: Path) -> None:
    assert scopes.move_to_scope(7, "collect", 0) == ""
    assert "system.slice" in told.read_text().splitlines()


def test_a_scope_that_is_refused_is_told_in_systemds_words(told: Path) -> None:
    pose(told.parent, "echo 'Call failed: Access denied' >&2; exit 1")
    assert scopes.move_to_scope(7, "collect", 0) == "Call failed: Access denied"


def test_a_manager_that_hangs_or_is_missing_keeps_nothing(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "_WAIT_S", 0.2)
    pose(told.parent, "exec sleep 60")
    assert "timed out" in scopes.move_to_scope(7, "collect", 0)
    monkeypatch.setenv("PATH", str(told.parent))
    assert "busctl" in scopes.move_to_scope(7, "collect", 0)


def test_without_systemd_or_root_nothing_is_asked(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert scopes.move_to_scope(7, "train", 1000) == ""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(scopes, "SYSTEMD", told.parent / "none")
    assert scopes.move_to_scope(7, "train", 1000) == ""
    assert not told.exists()


@pytest.mark.skipif(
    not (shutil.which("dbus-daemon") and shutil.which("busctl")), reason="no D-Bus here"
)
def test_the_real_busctl_understands_the_call(tmp_path: Path) -> None:
    """A bus without systemd takes the call, typed as it is, and says that nobody answers it."""
    bus = f"unix:path={tmp_path}/bus"
    daemon = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address", f"--address={bus}"],
        stdout=subprocess.PIPE,
    )
    try:
        assert daemon.stdout is not None and daemon.stdout.readline()
        command = scopes.call_of(7, "train", 1000)
        command[command.index("--system")] = f"--address={bus}"
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # one that is typed otherwise does not get as far as the bus
        assert done.stderr.startswith("Call failed: ")
        assert "org.freedesktop.systemd1" in done.stderr
    finally:
        daemon.terminate()
        daemon.wait()


def test_a_child_gives_back_the_daemons_priority() -> None:
    program = "import os; from advisor.service.scopes import take_usual_priority as t; t();"
    program += "print(os.getpriority(os.PRIO_PROCESS, 0))"
    for priority, after in ((-5, 0), (3, 3)):
        if priority < 0 and os.geteuid() != 0:
            continue
        nice = priority - os.getpriority(os.PRIO_PROCESS, 0)  # the tests may run at less
        done = subprocess.run(
            ["nice", "-n", str(nice), sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{after}\n"
