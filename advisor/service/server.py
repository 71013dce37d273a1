"""The daemon: asyncio on a UNIX socket, answering from memory, writing behind the answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from advisor.core.protocol import MAX_REQUEST, ProtocolError, answer_line
from advisor.errors import AdvisorError
from advisor.service.handlers import Handlers
from advisor.service.notify import inherited_socket, notify
from advisor.service.peer import Peer, peer_of

log = logging.getLogger("advisor.serve")

BACKLOG = 1024
_BEHIND_S = 0.005
"""What an answer leaves to be done waits so long: until its submission has gone on."""
_FOLLOWS_MS = 1
"""A hook's line comes at once after its connection: so long is waited for it."""
_SWITCH_S = 5e-5
"""Each call of a socket waits no longer than this for a thread that writes behind the answer."""
IDLE_S = 30.0
"""A connection that sends nothing for so long is closed."""


class _Connection(asyncio.Protocol):
    """One client: lines in, lines out; a line is answered in the loop, in order."""

    def __init__(self, server: Server, peer: Peer, begun: bytes = b"") -> None:
        self._server = server
        self._buffer = bytearray(begun)
        self._transport: asyncio.Transport | None = None
        self._peer = peer
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._idle:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._rest()
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._answer(line)
        if len(self._buffer) > MAX_REQUEST:
            self._send(answer_line({"error": f"a request may have {MAX_REQUEST} bytes"}))
            log.warning("event=too-long uid=%d bytes=%d", self._peer.uid, len(self._buffer))
            self.close()

    def _answer(self, line: bytes) -> None:
        users = self._server.handlers.users
        if users.known(self._peer.uid):
            self._send(self._server.answer(line, self._peer))
            return

        async def after_lookup() -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, users.name, self._peer.uid)
            self._send(self._server.answer(line, self._peer))

        task = asyncio.ensure_future(after_lookup())
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def _send(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)
        self._server.settle_soon()

    def _rest(self) -> None:
        if self._idle:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.close)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass(slots=True)
class Server:
    """Serves until it is stopped; ``refresh_s`` is how often the store is looked at."""

    path: Path
    handlers: Handlers
    refresh_s: float = 1.0
    connections: set[_Connection] = field(default_factory=set)
    waiting: dict[socket.socket, asyncio.TimerHandle] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _owns_socket: bool = False
    _behind: asyncio.TimerHandle | None = None
    _answered: list[tuple[socket.socket, Peer]] = field(default_factory=list)

    def answer(self, line: bytes, peer: Peer) -> bytes:
        """Answer one line; whatever goes wrong becomes an ``error`` and a line in the log."""
        start = time.perf_counter()
        try:
            answer = self.handlers.answer(line, peer)
        except ProtocolError as error:
            log.warning("event=bad-request uid=%d error=%s", peer.uid, quote(error.message))
            return answer_line({"error": error.message})
        except AdvisorError as error:
            log.error("event=failed uid=%d error=%s", peer.uid, quote(str(error)))
            return answer_line({"error": str(error)})
        except Exception as error:
            log.exception("event=internal-error uid=%d error=%s", peer.uid, quote(repr(error)))
            return answer_line({"error": "internal error; see the daemon's log"})
        self.handlers.observe_latency(time.perf_counter() - start)
        return answer

    def settle_soon(self) -> None:
        """Do what answers left behind them a little later: who was answered goes first.

        Woken on this processor, it could only go on once this process sleeps.
        """
        if self._behind is None:
            self._behind = asyncio.get_running_loop().call_later(_BEHIND_S, self._settle)

    def _settle(self) -> None:
        self._behind = None
        self.handlers.settle()
        answered, self._answered = self._answered, []
        for connection, peer in answered:
            self._wait(connection, peer)
            self._readable(connection, peer)

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP looks at the store again at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        await self._refresh(force=True)
        sock = self._socket()
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
        await asyncio.wait(background, timeout=5.0)
        self._settle()
        for client in list(self.waiting):
            self._drop(client)
        for connection in list(self.connections):
            connection.close()
        await loop.run_in_executor(None, self.handlers.close)
        if self._owns_socket:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            self.handlers.mark_enforce(self.path, on=False)
        log.info("event=stopped")

    def _accept(self, listener: socket.socket) -> None:
        """Take a client, and answer at once what it has sent already: a hook's one line."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # too many open files: the client waits or goes on without us
            log.error("event=accept-failed error=%s", quote(str(error)))
            return
        begun, answered = b"", False
        try:
            connection.setblocking(False)
            peer = peer_of(connection)
            # A client often loses the processor to us between its connection and its line.
            follows = select.poll()
            follows.register(connection, select.POLLIN)
            if follows.poll(_FOLLOWS_MS):
                begun = self._at_once(connection, peer, connection.recv(MAX_REQUEST))
                answered = not begun
        except OSError:
            connection.close()
            return
        finally:
            self.settle_soon()
        if begun:
            self._hand_over(connection, peer, begun)
        elif answered:
            self._answered.append((connection, peer))  # most hooks hang up now
        else:
            self._wait(connection, peer)

    def _wait(self, connection: socket.socket, peer: Peer) -> None:
        """Hear of a client's next line; a transport is only made for one that sends more."""
        loop = asyncio.get_running_loop()
        self.waiting[connection] = loop.call_later(IDLE_S, self._drop, connection)
        loop.add_reader(connection, self._readable, connection, peer)

    def _at_once(self, connection: socket.socket, peer: Peer, data: bytes) -> bytes:
        """Answer if ``data`` is one line of a known user's; return what is left to be answered.

        Raises OSError when the client does not take the answer.
        """
        if not data.endswith(b"\n") or data.count(b"\n") > 1 or not self._knows(peer):
            return data
        answer = self.answer(data[:-1], peer)
        if connection.send(answer) < len(answer):
            raise OSError("the client does not read")
        return b""

    def _readable(self, connection: socket.socket, peer: Peer) -> None:
        """Go on with a client that sends its line only now, or more; close when it hung up."""
        try:
            data = connection.recv(MAX_REQUEST)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        try:
            more = self._at_once(connection, peer, data) if data else b""
        except OSError:
            data = more = b""
        self.settle_soon()
        if data and not more:
            loop = asyncio.get_running_loop()
            self.waiting[connection].cancel()
            self.waiting[connection] = loop.call_later(IDLE_S, self._drop, connection)
            return
        self._forget(connection)
        if more:
            self._hand_over(connection, peer, more)
        else:
            connection.close()

    def _forget(self, connection: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(connection)
        self.waiting.pop(connection).cancel()

    def _drop(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _hand_over(self, connection: socket.socket, peer: Peer, begun: bytes) -> None:
        task = asyncio.ensure_future(self._keep(connection, peer, begun))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _knows(self, peer: Peer) -> bool:
        return self.handlers.users.known(peer.uid)

    async def _keep(self, connection: socket.socket, peer: Peer, begun: bytes) -> None:
        """Go on with a client that may send more, or has sent half a line."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(lambda: _Connection(self, peer, begun), connection)

    def _reload(self) -> None:
        task = asyncio.ensure_future(self._refresh(force=True))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(self.refresh_s)
            await self._refresh()
            gc.collect(1)

    async def _refresh(self, *, force: bool = False) -> None:
        loop = asyncio.get_running_loop()
        fresh = await loop.run_in_executor(None, lambda: self.handlers.refresh(force=force))
        if fresh:
            gc.collect()
            gc.freeze()
        self.handlers.mark_enforce(self.path)

    def _socket(self) -> socket.socket:
        """Return a socket that listens; where its path is visible, clients are accepted."""
        given = inherited_socket()
        if given is not None:
            given.listen(BACKLOG)
            return given
        self._owns_socket = True
        hidden = self.path.with_name("~" + self.path.name[1:])  # no longer: paths have 107 bytes
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_socket():
                _refuse_if_alive(self.path)
            elif self.path.exists():
                raise FileExistsError(errno.EEXIST, "is there and is no socket")
            hidden.unlink(missing_ok=True)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.bind(str(hidden))
            hidden.chmod(0o666)
            sock.listen(BACKLOG)
            hidden.rename(self.path)
        except OSError as error:
            raise AdvisorError(
                f"{self.path}: {error.strerror or error}", hint="choose another with --socket"
            ) from None
        return sock


def _refuse_if_alive(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise AdvisorError(f"{path}: another daemon serves there", hint="stop it first")


def quote(text: str) -> str:
    """Return text as one log field: quoted when needed, control characters escaped."""
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'
