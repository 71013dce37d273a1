"""One user's lines are answered with others' in between: the daemon's loop, two users on it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.service import answering
from advisor.service import server as server_module
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer
from advisor.service.server import Server
from advisor.service.snapshot import StoreSource
from advisor.store.writer import Writer

FLOOD, OTHER = 11, 12


class Room:
    """A daemon in this process, whose clients do what is asked at the n-th line it answers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Writer(folder / "a.db"):
            pass
        self.path = folder / "s"
        self.order: list[str] = []
        self.at: dict[int, Callable[[], None]] = {}
        self.clients: list[socket.socket] = []
        self.uids: list[int] = []
        self.handlers = Handlers(StoreSource(folder / "a.db"))
        for uid in (FLOOD, OTHER):
            self.handlers.users._names[uid] = f"user{uid}"
        self.server = Server(self.path, self.handlers, refresh_s=3600.0)
        monkeypatch.setattr(answering, "LONG_S", -1.0)  # whatever the clock can tell
        monkeypatch.setattr(server_module, "peer_of", lambda _: Peer(1, self.uids.pop(0), 1))
        monkeypatch.setattr(Handlers, "answer", self.answer)

    def answer(self, line: bytes, peer: Peer) -> bytes:
        self.order.append(line.decode())
        self.at.pop(len(self.order), lambda: None)()
        if b"end" in line:
            self.server._stop.set()
        return line + b"\n"

    def connect(self, uid: int) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.path))
        self.clients.append(client)
        self.uids.append(uid)
        return client

    def run(self, ready: Callable[[], None]) -> list[str]:
        async def serve() -> None:
            await asyncio.wait_for(self.server.run(ready), 60)

        try:
            asyncio.run(serve())
        finally:
            for client in self.clients:
                client.close()
        return self.order


def test_lines_sent_at_once_are_answered_with_others_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, monkeypatch)

    def ready() -> None:
        other, flood = room.connect(OTHER), room.connect(FLOOD)  # the other one is waited for
        flood.sendall(b"flood\n" * 40 + b"end\n")
        room.at[5] = lambda: other.sendall(b"other\n")

    order = room.run(ready)
    assert order.count("flood") == 40
    assert order.index("other") < 10


def test_of_two_connections_of_a_user_one_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, monkeypatch)

    def ready() -> None:
        first, second, other = (room.connect(uid) for uid in (FLOOD, FLOOD, OTHER))
        for client in (first, second, other):
            client.sendall(b"hello\n")

        def all_at_once() -> None:
            first.sendall(b"one\n")
            second.sendall(b"two\n")
            other.sendall(b"other\n")

        def later() -> None:
            asyncio.get_running_loop().call_later(0.05, all_at_once)  # once all wait

        room.at[3] = later
        room.at[6] = room.server._stop.set

    order = room.run(ready)[3:]
    assert sorted(order) == ["one", "other", "two"]
    assert order.index("other") < max(order.index("one"), order.index("two"))


@pytest.mark.parametrize("ends", [b"", b"no end"])
def test_all_lines_are_answered_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bytes
) -> None:
    """Also those that are left when the client hangs up, or reads nothing."""
    room = Room(tmp_path, monkeypatch)
    lines = [json.dumps({"n": i}) for i in range(300)]

    def ready() -> None:
        client = room.connect(FLOOD)
        client.sendall("\n".join([*lines, "end"]).encode() + b"\n" + ends)
        client.shutdown(socket.SHUT_WR)

    assert room.run(ready) == [*lines, "end"]
