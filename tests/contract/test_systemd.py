"""The systemd units: valid, and the daemon answers on a socket it is handed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from advisor.core.protocol import call
from advisor.errors import AdvisorError
from advisor.paths import share

ROOT = share("config").parent
UNITS = share("config/systemd")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_are_valid(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("ExecStart=advisor ", "ExecStart=/bin/true ")
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_and_the_command_agree() -> None:
    service = (UNITS / "advisor.service").read_text()
    listening = re.search(r"^ListenStream=(.+)$", (UNITS / "advisor.socket").read_text(), re.M)
    assert listening is not None
    assert f"\nExecStart=advisor serve --socket {listening[1]} $OPTIONS\n" in service
    for options in re.findall(r"^#   OPTIONS=(.*?)  ", service, re.M):
        done = subprocess.run(
            [sys.executable, "-m", "advisor", "serve", *options.split(), "--help"],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None, reason="systemd is not installed"
)
def test_the_daemon_answers_on_a_socket_it_is_handed() -> None:
    with tempfile.TemporaryDirectory(prefix="unit-") as name:
        path = Path(name) / "s"
        store = str(Path(name) / "advisor.db")
        serve = [sys.executable, "-m", "advisor", "serve", "--socket", str(path), "--db", store]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            ["systemd-socket-activate", "-E", "PYTHONPATH", "-l", str(path), *serve],
            env=environment,
            stderr=subprocess.PIPE,
        )
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    assert "pong" in call(path, {"v": 1, "op": "ping"}, timeout_s=20)
                    break
                except AdvisorError:
                    assert time.monotonic() < deadline
                    assert process.poll() is None
                    time.sleep(0.05)
            assert path.is_socket()
        finally:
            process.terminate()
            _, log = process.communicate(timeout=30)
        assert b"event=serving" in log
        assert path.is_socket()  # it is systemd's to remove
