"""The daemon: asyncio on a UNIX socket, answering from memory, writing behind the answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from advisor.service.answering import Answering
from advisor.service.changes import Changes
from advisor.service.connection import Connection
from advisor.service.copies import HANGS_S
from advisor.service.handlers import Handlers
from advisor.service.limits import BUSY, CONNECTIONS
from advisor.service.listening import BACKLOG, listening_socket, notify
from advisor.service.peer import Peer, peer_of
from advisor.service.quiet import quote

log = logging.getLogger("advisor.serve")

_SWITCH_S = 5e-5
"""Each call of a socket waits no longer than this for a thread that writes behind the answer."""
_BACKGROUND_ENDS_S, _CLOSES_S = 0.5, 3.6
"""Of the 5 s in which a stopped daemon ends: what the watch's child has, and the journal with the
store (JOURNAL_ENDS_S and its last try)."""
UNNAMED_AT_ONCE = 256
"""Connections that wait for the look-up of their users' names; beyond that the oldest one of the
user id with most goes."""


@dataclass(slots=True)
class Server:
    """Serves until it is stopped; ``refresh_s`` is how often the store is looked at."""

    path: Path
    handlers: Handlers
    refresh_s: float = 1.0
    answering: Answering = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _unnamed: dict[int, list[tuple[socket.socket, Peer]]] = field(default_factory=dict)
    """Connections of user ids whose names are being looked up."""
    _names: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "names"))

    def __post_init__(self) -> None:
        self.answering = Answering(self.handlers)

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP looks at the store again at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        first = asyncio.ensure_future(self._refresh(force=True))
        # A store whose file system hangs keeps nobody waiting: without it jobs run as written.
        await asyncio.wait({first}, timeout=2 * HANGS_S)
        sock, owns_path = listening_socket(self.path)
        sock.setblocking(False)
        loop.add_reader(sock, self._accept, sock)
        gc.disable()  # garbage is collected between answers, see _refresh_forever
        sys.setswitchinterval(_SWITCH_S)
        self.handlers.start()
        notify("READY=1")
        if ready:
            ready()
        log.info("event=serving socket=%s pid=%d", quote(str(self.path)), os.getpid())
        background = [asyncio.ensure_future(self._refresh_forever())]
        if self.handlers.watch is not None:
            background.append(asyncio.ensure_future(self.handlers.watch.run()))
        await self._stop.wait()
        notify("STOPPING=1")
        loop.remove_reader(sock)
        sock.close()
        for task in background:
            task.cancel()
        await asyncio.wait(background, timeout=_BACKGROUND_ENDS_S)
        self.answering.settle()
        self.handlers.scripts.close()
        self.answering.limits.close_all()
        closing = loop.run_in_executor(None, self.handlers.close)
        hangs = self.handlers.source.hangs
        await asyncio.wait({closing}, timeout=min(HANGS_S, _CLOSES_S) if hangs else _CLOSES_S)
        # a socket of systemd stays: it wakes the next daemon
        if owns_path:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            self.handlers.mark_enforce(self.path, on=False)
        log.info("event=stopped")
        if not closing.done():  # a thread that waits for a file system that hangs cannot be ended
            await asyncio.sleep(0.5)  # another one writes the log
            os._exit(0)

    def _accept(self, listener: socket.socket) -> None:
        """Take a client; those of users who ask too much are refused at once."""
        # Not until none comes any more: those who are connected wait for their answers.
        for _ in range(BACKLOG):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files: the client waits until there is one
                log.error("event=accept-failed error=%s", quote(str(error)))
                self.answering.limits.make_room()
                return
            with contextlib.suppress(OSError):
                peer = peer_of(connection)
                # One that is taken is enough: the loop comes back for the next, whom the listener
                # still shows, and hears the others before.
                if not self._is_named(connection, peer) or self._admit_client(connection, peer):
                    return
                continue
            connection.close()

    def _is_named(self, connection: socket.socket, peer: Peer) -> bool:
        """Tell whether a user's name is known; else admit the connection once it was looked up.

        Until then nobody knows whose allowance it takes.
        """
        users, uid = self.handlers.users, peer.uid
        if users.known(uid) or uid in users.trusted_uids:
            return True
        waiting = self._unnamed.setdefault(uid, [])
        waiting.append((connection, peer))
        # who waits with the most connections loses one, not whoever came last
        most = max(self._unnamed.values(), key=len)
        if len(most) > CONNECTIONS or sum(map(len, self._unnamed.values())) > UNNAMED_AT_ONCE:
            self.answering.limits.refused += 1
            most.pop(0)[0].close()
        if len(waiting) > 1:
            return False

        async def look_up() -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._names, users.name, uid)
            for client, whose in self._unnamed.pop(uid, ()):
                self._admit_client(client, whose)

        self.answering.spawn(look_up())
        return False

    def _admit_client(self, connection: socket.socket, peer: Peer) -> bool:
        """Take a client, or refuse one whose user asks too much; tell which."""
        use = self.answering.limits.of(peer.uid)
        with contextlib.suppress(OSError):
            if not use.spent():
                Connection(self.answering, connection, peer).begin()
                return True
            self.answering.refuse(peer, use)
            connection.send(BUSY, socket.MSG_DONTWAIT)
        connection.close()
        return False

    def _reload(self) -> None:
        self.answering.spawn(self._refresh(force=True))

    async def _refresh_forever(self) -> None:
        changes = Changes(self.handlers.source, self.refresh_s)
        while True:
            if await changes.due():
                await self._refresh()
            # Young garbage alone: what a load has made is frozen (Copies.refresh), and a look
            # through all the rest would keep an answer waiting.
            gc.collect(1)

    async def _refresh(self, *, force: bool = False) -> None:
        await self.answering.copies.refresh(force=force)
        self.handlers.mark_enforce(self.path)
