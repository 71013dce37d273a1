"""A published copy whose file system hangs: jobs are answered, and everybody is told."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from advisor import paths
from advisor.cli import main as cli
from advisor.errors import StoreError
from advisor.loop import left_reader, left_results
from advisor.service import copies
from advisor.service import server as server_module
from advisor.service.handlers import Handlers
from advisor.service.server import Server
from advisor.service.snapshot import StoreSource
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer


class Host:
    """A login node's daemon in a thread of this process, whose copy may hang."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        Writer(folder / "advisor.db").close()
        publish(folder / "advisor.db", folder / "copy.db")
        self.path, self.ended = folder / "s", threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.ready = threading.Event()
        looked = Reader.changed

        def changed(reader: Reader) -> bool:
            self.answers.wait()
            return looked(reader)

        def signals(loop: Any, number: int, act: Callable[[], None]) -> None:
            """None in a thread."""

        monkeypatch.setattr(Reader, "changed", changed)
        loop = asyncio.unix_events._UnixSelectorEventLoop
        monkeypatch.setattr(loop, "add_signal_handler", signals)
        monkeypatch.setattr(os, "_exit", lambda _: self.ended.set())
        self.server = Server(self.path, Handlers(StoreSource(folder / "copy.db")), refresh_s=0.05)
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            await self.server.run(self.ready.set)

        asyncio.run(serve())

    def ask(self, **request: object) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(self.path))
            client.sendall(json.dumps({"v": 1, **request}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(client.makefile().readline())
            return answer

    def hang(self) -> None:
        self.answers.clear()
        for module in (copies, server_module):
            self._patch.setattr(module, "HANGS_S", 0.1)

    def go_on(self) -> None:
        """However busy this machine is, nothing else is taken for a file system that hangs."""
        for module in (copies, server_module):
            self._patch.setattr(module, "HANGS_S", 600.0)
        self.answers.set()

    def until(self, hangs: bool) -> dict[str, Any]:
        end = time.monotonic() + 60
        while (status := self.ask(op="status"))["store_hangs"] is not hangs:
            assert time.monotonic() < end
            time.sleep(0.02)
        return status

    def stop(self) -> None:
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.server._stop.set)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path, monkeypatch)
    host.go_on()
    host.thread.start()
    try:
        assert host.ready.wait(60)
        yield host
    finally:
        host.go_on()
        host.stop()
        host.thread.join(60)


def test_the_daemon_goes_on_and_says_it(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "models" in host.ask(op="options") and not host.until(False)["store_error"]
    host.hang()
    # whoever asks before that is noticed does not make others wait
    assert "its file system does not answer" in host.ask(op="options")["error"]
    assert host.ask(op="ping")["pong"]
    assert "its file system does not answer" in host.until(True)["store_error"]
    assert "its file system does not answer" in host.ask(op="history")["error"]
    assert "advisor_store_readable 0" in host.ask(op="metrics")["metrics"]
    decided = host.ask(
        op="decide",
        scheduler="slurm",
        hook="cli_filter",
        type="sbatch",
        options={},
        script="#!/bin/sh\nsrun app\n",
        argv=["sbatch", "job.sh"],
        env={},
        cwd="/",
    )
    assert decided["rewrite"] == {}
    monkeypatch.setenv("ADVISOR_SOCKET", str(host.path))
    monkeypatch.delenv("ADVISOR_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(host.path.parent / "none"))
    monkeypatch.setattr(paths, "_is_root", lambda: False)
    with pytest.raises(StoreError, match="file system does not answer"):
        paths.store_path()
    doctor = subprocess.run(
        [sys.executable, "-m", "advisor", "doctor", "--json", "--socket", str(host.path)],
        env={**os.environ, "PYTHONPATH": str(paths.share("config").parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = {c["name"]: c for c in json.loads(doctor.stdout)["checks"] if c["state"] == "fail"}
    assert "waits for its store" in said["daemon"]["text"] and "remount" in said["daemon"]["todo"]
    assert cli(["metrics", "--socket", str(host.path)]) == 0
    assert "advisor_store_readable 0" in capsys.readouterr().out
    lines = [r.getMessage() for r in caplog.records if "does not answer" in r.getMessage()]
    assert len(lines) == 1 and "event=store-unreadable" in lines[0]
    host.go_on()
    assert not host.until(False)["store_error"]
    end = time.monotonic() + 60
    while "models" not in host.ask(op="options"):
        assert time.monotonic() < end
    assert not host.ended.is_set()


def test_it_can_be_stopped_meanwhile(host: Host) -> None:
    host.hang()
    host.until(True)
    host.stop()
    assert host.ended.wait(60) and not host.path.exists()


def test_it_starts_though_the_copy_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, monkeypatch)
    host.hang()
    host.thread.start()
    try:
        assert host.ready.wait(60)
        assert "does not answer" in host.until(True)["store_error"]
        host.go_on()
        assert host.until(False)["store_error"] == ""
    finally:
        host.go_on()
        host.stop()
        host.thread.join(60)


def test_nobody_waits_for_a_reader_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that hangs cannot even be killed: it must not hold whoever reads our output."""
    held = tmp_path / "held"

    def look(wish: object) -> dict[str, object]:
        held.write_text("\n".join(str(Path(f"/proc/self/fd/{n}").readlink()) for n in range(3)))
        return {}

    monkeypatch.setattr(left_reader, "look", look)
    entry = left_results._owner(pwd.getpwuid(os.geteuid()).pw_name)
    assert left_results._read_folders(entry, {}) == {}
    assert held.read_text().split() == [os.devnull] * 3
