"""Pages of the store are read beside the daemon's loop: hooks are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from advisor.core.protocol import ProtocolError
from advisor.errors import StoreError
from advisor.loop.why import why
from advisor.service import server as module
from advisor.service.copies import READ_AT_ONCE, READINGS
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer, Users
from advisor.service.server import Server
from advisor.service.snapshot import StoreSource
from advisor.store import visible
from advisor.store.reader import Reader
from advisor.store.writer import Writer

MANY, HOOK, OTHER = 11, 22, 33
DECIDE = {
    "v": 1,
    "op": "decide",
    "scheduler": "slurm",
    "hook": "cli_filter",
    "type": "sbatch",
    "options": {},
    "argv": ["job.sh"],
    "script": "#!/bin/sh\nsrun app\n",
    "script_path": "job.sh",
}
HISTORY = {"v": 1, "op": "history"}


def fill(path: Path, jobs: int) -> None:
    """Make a store with jobs of ann, each with its decision and outcome."""
    Writer(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO decisions (id, created_at, scheduler, hook, user, mode, changed, holdout,"
            " policy_version, record, job_id) VALUES"
            " ('d' || ?1, printf('2026-%06d', ?1), 'slurm', 'cli_filter', 'ann', 'apply', 0, 0, 0,"
            " '{}', ?1)",
            ((str(number),) for number in range(jobs)),
        )
        db.executemany(
            "INSERT INTO outcomes (job_id, scheduler, submitted_at, user, state, nodes,"
            " energy_quality, collected_at, decision_id) VALUES (?1, 'slurm', 'x', 'ann',"
            " 'COMPLETED', 1, 'missing', 'x', 'd' || ?1)",
            ((str(number),) for number in range(jobs)),
        )
        db.commit()


def steps(path: Path, request: dict[str, object], work: str = "page") -> int:
    """Return how many hundred steps of SQLite's machine a reading takes."""
    counted = 0

    def step() -> None:
        nonlocal counted
        counted += 1

    with Reader(path) as reader:
        reader._connection.set_progress_handler(step, 100)
        if work == "why":
            why(str(request["job"]), reader, None)
        else:
            visible.page(reader, request, "ann", all_jobs=False)
    return counted


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "history"},
        {"op": "history", "after": 900},
        {"op": "history", "job": "700"},
        {"op": "history", "job": "700_3"},
        {"op": "history", "job": "none"},
        {"op": "options", "application": "x"},
    ],
)
def test_a_page_takes_as_long_whatever_the_store_holds(
    tmp_path: Path, request_: dict[str, object]
) -> None:
    fill(tmp_path / "few.db", 1000)
    fill(tmp_path / "many.db", 20_000)
    assert steps(tmp_path / "many.db", request_) <= steps(tmp_path / "few.db", request_) + 10


def test_why_takes_as_long_whatever_the_store_holds(tmp_path: Path) -> None:
    fill(tmp_path / "few.db", 1000)
    fill(tmp_path / "many.db", 20_000)
    few, many = (steps(tmp_path / f"{n}.db", {"job": "700"}, "why") for n in ("few", "many"))
    assert many <= few + 10


def test_tasks_of_an_array_are_shown_and_no_other_jobs(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    fill(path, 5)
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO outcomes (job_id, scheduler, submitted_at, user, state, nodes,"
            " energy_quality, collected_at) VALUES (?, 's', 'x', 'ann', 'C', 1, 'missing', 'x')",
            [("3_1",), ("3_12",), ("3[7]",), ("30",), ("30_1",), ("3+1",)],
        )
        db.commit()
    with Reader(path) as reader:
        page = visible.page(reader, {"op": "history", "job": "3"}, "ann", all_jobs=False)
        assert sorted(row["job_id"] for row in page["outcomes"]) == ["3", "3[7]", "3_1", "3_12"]


def test_a_reading_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    fill(tmp_path / "a.db", 300)
    with Reader(tmp_path / "a.db", longest_s=1e-9) as reader:
        assert len(reader.rows("SELECT 1")) == 1
        with pytest.raises(StoreError, match="too long to read"):
            reader.rows("SELECT count(*) FROM decisions, decisions AS b, decisions AS c")


# -- the loop ------------------------------------------------------------------------------------


class Daemon:
    """A server in a thread of its own, whose clients are of the users they say."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.uids = folder / "s", dict[str, int]()
        users = Users()
        for uid in (MANY, HOOK, OTHER):
            users._names[uid] = {MANY: "ann", HOOK: "hook", OTHER: "other"}[uid]
        self.held, self.go_on = threading.Event(), threading.Event()
        real = visible.page

        def page(store: Any, request: Any, user: str, **more: Any) -> Any:
            if user == "ann":
                self.held.set()
                assert self.go_on.wait(60)
            return real(store, request, user, **more)

        monkeypatch.setattr(visible, "page", page)
        monkeypatch.setattr(module, "peer_of", lambda c: Peer(1, self._uid(c), 0))
        self._next: list[int] = []
        source = StoreSource(folder / "a.db")
        self.server = Server(self.path, Handlers(source, users), 60.0)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: list[socket.socket] = []
        self._thread.start()
        assert ready.wait(60)

    def _serve(self, ready: threading.Event) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_signal_handler = lambda *a: None  # type: ignore[method-assign]
            await self.server.run(ready.set)

        asyncio.run(serve())

    def _uid(self, connection: socket.socket) -> int:
        return self._next.pop(0)

    def ask(self, uid: int, *requests: object) -> socket.socket:
        """Send lines as a user; they are not waited for."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        self._next.append(uid)
        client.connect(str(self.path))
        lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in requests]
        client.sendall(b"".join(line + b"\n" for line in lines))
        self._clients.append(client)
        return client

    def close(self) -> None:
        self.go_on.set()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.server._stop.set)
        self._thread.join(60)
        for client in self._clients:
            client.close()


def answer(client: socket.socket) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(client.makefile().readline())
    return read


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="adv-read-") as folder:
        fill(Path(folder) / "a.db", 500)
        found = Daemon(Path(folder), monkeypatch)
        yield found
        found.close()


def unanswered(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        client.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        client.settimeout(60)
    return False


def test_hooks_are_answered_while_a_history_is_read(daemon: Daemon) -> None:
    reading = daemon.ask(MANY, HISTORY)
    assert daemon.held.wait(60)
    for _ in range(20):  # another user's, and those of the same one
        assert answer(daemon.ask(HOOK, DECIDE))["decision"]
    assert answer(daemon.ask(MANY, DECIDE))["decision"]
    assert len(answer(daemon.ask(OTHER, HISTORY))["decisions"]) == 0
    assert unanswered(reading)
    daemon.go_on.set()
    assert len(answer(reading)["decisions"]) == 50


def test_readings_of_one_user_leave_room_for_others_and_are_bounded(daemon: Daemon) -> None:
    waiting = [daemon.ask(MANY, HISTORY) for _ in range(READINGS)]
    assert daemon.held.wait(60)
    answer(daemon.ask(HOOK, DECIDE))  # all of them have arrived
    refused = daemon.ask(MANY, HISTORY)
    assert "too many requests" in answer(refused)["error"]
    assert READ_AT_ONCE > 1 and answer(daemon.ask(OTHER, HISTORY))["decisions"] == []
    assert all(unanswered(client) for client in waiting)
    daemon.go_on.set()
    assert all(len(answer(client)["decisions"]) == 50 for client in waiting)


def test_lines_of_a_connection_are_answered_in_their_order(daemon: Daemon) -> None:
    client = daemon.ask(MANY, HISTORY, DECIDE, HISTORY, {"v": 1, "op": "ping"})
    assert daemon.held.wait(60)
    daemon.go_on.set()
    lines = client.makefile()
    keys = [set(json.loads(lines.readline())) for _ in range(4)]
    found: list[Callable[[set[str]], bool]] = [
        lambda k: "outcomes" in k,
        lambda k: "rewrite" in k,
        lambda k: "outcomes" in k,
        lambda k: "pong" in k,
    ]
    assert all(test(each) for test, each in zip(found, keys, strict=True)), keys


@pytest.mark.parametrize(
    "line",
    [
        b'{"v": 1, "op": "hi\\u0073tory"}',
        b'{"v": 1, "o\\u0070": "history"}',
        b'{"v": 1, "x": {"op": "history"}, "op": "decide"}',
    ],
)
def test_no_way_of_writing_it_has_a_page_read_in_the_loop(daemon: Daemon, line: bytes) -> None:
    assert "error" in answer(daemon.ask(MANY, line))
    assert not daemon.held.is_set()


def test_the_loops_own_answers_read_no_page(tmp_path: Path) -> None:
    fill(tmp_path / "a.db", 1)
    handlers = Handlers(StoreSource(tmp_path / "a.db"))
    for op in visible.SHOWN:
        with pytest.raises(ProtocolError, match="as it is"):
            handlers.answer(json.dumps({"v": 1, "op": op}).encode(), Peer(1, 0, 0))
    handlers.close()
