"""The daemon: asyncio on a UNIX socket, answering from memory, writing behind the answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from advisor.core.protocol import MAX_REQUEST, ProtocolError, answer_line
from advisor.errors import AdvisorError
from advisor.service.copies import HANGS_S, Copies
from advisor.service.handlers import Handlers
from advisor.service.limits import BEGUN, BUSY, CONNECTIONS, Limits, Use
from advisor.service.listening import BACKLOG, listening_socket
from advisor.service.notify import notify
from advisor.service.peer import Peer, peer_of
from advisor.service.quiet import quote

log = logging.getLogger("advisor.serve")

_BEHIND_S = 0.005
"""What an answer leaves to be done waits so long: until its submission has gone on."""
_FOLLOWS_MS = 1
"""A hook's line comes at once after its connection: so long is waited for it."""
_SWITCH_S = 5e-5
"""Each call of a socket waits no longer than this for a thread that writes behind the answer."""
_LINES = 16
"""So many short lines of one connection are answered in a row."""
LONG_S = 3e-4
"""After an answer that took the processor for longer, the loop looks who else is there before it
goes on with lines of the same user: those of one user are answered one at a time, with others'
in between."""
UNNAMED_AT_ONCE = 256
"""Connections that wait for the look-up of their users' names; beyond that the oldest one of the
user id with most goes."""
IDLE_S = 30.0
"""A connection that sends nothing for so long is closed."""


@dataclass(eq=False, slots=True)
class _Client:
    """A connection as it was accepted, who is there, and what that user takes."""

    socket: socket.socket
    peer: Peer
    use: Use
    rest: bytes = b""
    """Of an answer, what the socket had no room for."""


class _Connection(asyncio.Protocol):
    """One client: lines in, lines out; a line is answered in the loop, in order."""

    def __init__(self, server: Server, client: _Client, begun: bytes = b"") -> None:
        self._server = server
        self._buffer = bytearray()
        self._searched, self._begun = 0, begun
        self._later = self._full = self._reading = False
        self._transport: asyncio.Transport | None = None
        self._client, self._peer = client, client.peer
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        self._server.limits.enter(self._client.use, self, transport.abort)
        if self._client.rest:
            transport.write(self._client.rest)
            self._client.rest = b""
        # not before the loop reads: a transport that is paused then reads on, in Python 3.11.2
        asyncio.get_running_loop().call_soon(self.data_received, self._begun)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.limits.leave(self._client.use, self)
        self._client.use.begun -= len(self._buffer)
        self._buffer.clear()
        if self._idle:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        use = self._client.use
        use.charge(0.0)
        if use.spent():
            self._server.refuse(self._client)
            self._hang_up()
            return
        self._buffer += data
        use.begun += len(data)
        self._rest()
        if not (self._later or self._reading):
            self._lines()

    def _lines(self) -> None:
        """Answer the lines that are there; after a long one, or some, others' go first."""
        use, lines, self._later = self._client.use, 0, False
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            if use.next_turn or lines == _LINES:
                self._later = True
                asyncio.get_running_loop().call_soon(self._lines)
                self._read_on()
                return
            lines += 1
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            use.begun -= end + 1
            self._searched = 0
            self._answer(line)
            if self._reading:  # answers have the order of their lines: it goes on then
                self._read_on()
                return
        self._searched = len(self._buffer)
        self._read_on()
        if len(self._buffer) > MAX_REQUEST or (use.bounded and use.begun > BEGUN):
            self._send(answer_line({"error": f"a request may have {MAX_REQUEST} bytes"}))
            log.warning("event=too-long uid=%d bytes=%d", self._peer.uid, len(self._buffer))
            self.close()

    def pause_writing(self) -> None:
        """Read no more from a client that does not read."""
        self._full = True
        self._read_on()

    def resume_writing(self) -> None:
        self._full = False
        self._read_on()

    def _read_on(self) -> None:
        """Read from a client that reads, once what it sent before is answered."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._full or self._later or self._reading:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _answer(self, line: bytes) -> None:
        if self._server.at_once(line, self._peer):
            self._send(self._server.answer(line, self._client))
            return

        async def later() -> None:
            try:
                self._send(await self._server.answer_later(line, self._client))
            finally:
                self._reading = False
                if self._transport is not None and not self._transport.is_closing():
                    self._rest()
                    self._lines()

        self._reading = True
        if self._idle:
            self._idle.cancel()
        task = asyncio.ensure_future(later())
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def _send(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)
        self._server.settle_soon()

    def _rest(self) -> None:
        if self._idle:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._hang_up)

    def _hang_up(self) -> None:
        if self._transport is not None:  # who reads nothing is not waited for
            self._transport.abort()

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
    waiting: dict[_Client, asyncio.TimerHandle] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    copies: Copies = field(init=False)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _behind: asyncio.TimerHandle | None = None
    _answered: list[_Client] = field(default_factory=list)
    _unnamed: dict[int, list[tuple[socket.socket, Peer]]] = field(default_factory=dict)
    """Connections of user ids whose names are being looked up."""
    _names: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "names"))

    def __post_init__(self) -> None:
        self.copies = Copies(self.handlers)

    @property
    def limits(self) -> Limits:
        """What each user takes."""
        return self.handlers.limits

    def at_once(self, line: bytes, peer: Peer) -> bool:
        """Tell whether a line needs nothing but memory."""
        return (
            self.handlers.users.known(peer.uid)
            and not self.copies.concerns(line)
            and not (self.handlers.scripts.key_in(line) and self._script_elsewhere(line, peer))
        )

    def _script_elsewhere(self, line: bytes, peer: Peer) -> tuple[int, str] | None:
        """Return user and key of a text that must be read in its user's home, None for none."""
        with contextlib.suppress(ProtocolError):  # which the answer says
            return self.handlers.script_elsewhere(line, peer)
        return None

    async def answer_later(self, line: bytes, client: _Client) -> bytes:
        """Answer a line that waits: for a name's look-up, a published copy, a user's file."""
        await asyncio.to_thread(self.handlers.users.name, client.peer.uid)
        elsewhere = self._script_elsewhere(line, client.peer)
        if elsewhere and not client.use.spent():
            await self.handlers.scripts.read(*elsewhere)
        if not self.copies.concerns(line) or client.use.spent():
            return self.answer(line, client)
        return await self.copies.answer(line, client.peer, client.use, self._answer)

    def answer(self, line: bytes, client: _Client) -> bytes:
        """Answer one line; whatever goes wrong becomes an ``error`` and a line in the log."""
        peer, use = client.peer, client.use
        if use.spent():
            self.refuse(client)
            return BUSY
        worked = time.thread_time()
        try:
            return self._answer(line, peer, self.handlers.answer)
        finally:
            worked = time.thread_time() - worked
            use.charge(worked)
            if worked > LONG_S and not use.next_turn:
                use.next_turn = True
                asyncio.get_running_loop().call_soon(use.take_turn)

    def refuse(self, client: _Client) -> None:
        """Note that a user asks too much."""
        self.limits.refused += 1
        if not client.use.named:
            client.use.named = True
            log.warning("event=too-much uid=%d", self.limits.booked(client.peer.uid))

    def _answer(self, line: bytes, peer: Peer, work: Callable[[bytes, Peer], bytes]) -> bytes:
        start = time.perf_counter()
        try:
            answer = work(line, peer)
        except ProtocolError as error:
            uid = self.limits.booked(peer.uid)
            log.warning("event=bad-request uid=%d error=%s", uid, quote(error.message))
            return answer_line({"error": error.message})
        except AdvisorError as error:
            uid = self.limits.booked(peer.uid)
            log.error("event=failed uid=%d error=%s", uid, quote(str(error)))
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
        for client in answered:
            if client.socket.fileno() >= 0:
                self._wait(client)
                self._readable(client)

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP looks at the store again at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        first = asyncio.ensure_future(self._refresh(force=True))
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
        await asyncio.wait(background, timeout=5.0)
        self._settle()
        self.handlers.scripts.close()
        for client in list(self.waiting):
            self._drop(client)
        for connection in list(self.connections):
            connection.close()
        closing = loop.run_in_executor(None, self.handlers.close)
        await asyncio.wait({closing}, timeout=HANGS_S if self.handlers.source.hangs else None)
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
        for _ in range(BACKLOG):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files: the client waits until there is one
                log.error("event=accept-failed error=%s", quote(str(error)))
                self.limits.make_room()
                return
            with contextlib.suppress(OSError):
                peer = peer_of(connection)
                if not self._named(connection, peer) or self._admit(connection, peer):
                    return
                continue
            connection.close()

    def _named(self, connection: socket.socket, peer: Peer) -> bool:
        """Tell whether a user's name is known; else admit the connection once it was looked up.

        Until then nobody knows whose allowance it takes.
        """
        users, uid = self.handlers.users, peer.uid
        if users.known(uid) or uid in users.trusted_uids:
            return True
        waiting = self._unnamed.setdefault(uid, [])
        waiting.append((connection, peer))
        most = max(self._unnamed.values(), key=len)
        if len(most) > CONNECTIONS or sum(map(len, self._unnamed.values())) > UNNAMED_AT_ONCE:
            self.limits.refused += 1
            most.pop(0)[0].close()
        if len(waiting) > 1:
            return False

        async def look_up() -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._names, users.name, uid)
            for each, whose in self._unnamed.pop(uid, ()):
                self._admit(each, whose)

        task = asyncio.ensure_future(look_up())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return False

    def _admit(self, connection: socket.socket, peer: Peer) -> bool:
        """Take a client, or refuse one whose user asks too much; tell which."""
        client = _Client(connection, peer, self.limits.of(peer.uid))
        with contextlib.suppress(OSError):
            if not client.use.spent():
                self._take(client)
                return True
            self.refuse(client)
            connection.send(BUSY, socket.MSG_DONTWAIT)
        connection.close()
        return False

    def _take(self, client: _Client) -> None:
        """Answer at once what a client has sent already: a hook's one line."""
        connection, use = client.socket, client.use
        begun, answered = b"", False
        try:
            connection.setblocking(False)
            if use.next_turn:
                self.limits.enter(use, client, lambda: self._close(client))
                self._wait(client)
                return
            # A client often loses the processor to us between its connection and its line.
            follows = select.poll()
            follows.register(connection, select.POLLIN)
            if follows.poll(_FOLLOWS_MS if use.prompt else 0):
                data = connection.recv(MAX_REQUEST)
                if not data:  # it hung up again: nothing is kept for it, but it is counted
                    use.charge(0.0)
                    connection.close()
                    return
                use.prompt = True
                begun = self._at_once(client, data)
                answered = not begun
            else:
                use.prompt = False
                use.charge(_FOLLOWS_MS / 1000)
        except OSError:
            connection.close()
            return
        finally:
            self.settle_soon()
        if begun or client.rest:
            self._hand_over(client, begun)
            return
        self.limits.enter(use, client, lambda: self._close(client))
        if answered:
            self._answered.append(client)  # most hooks hang up now
        else:
            self._wait(client)

    def _wait(self, client: _Client) -> None:
        """Hear of a client's next line; a transport is only made for one that sends more."""
        loop = asyncio.get_running_loop()
        self.waiting[client] = loop.call_later(IDLE_S, self._drop, client)
        loop.add_reader(client.socket, self._readable, client)

    def _at_once(self, client: _Client, data: bytes) -> bytes:
        """Answer if ``data`` is one line of a known user's; return what is left to be answered.

        What the socket has no room for is the client's ``rest``.
        """
        if not data.endswith(b"\n") or data.count(b"\n") > 1 or not self.at_once(data, client.peer):
            return data
        answer = self.answer(data[:-1], client)
        client.rest = answer[client.socket.send(answer) :]
        return b""

    def _readable(self, client: _Client) -> None:
        """Go on with a client that sends its line only now, or more; close when it hung up."""
        if client.use.next_turn:
            return  # it is still readable when the loop has looked at the others
        try:
            data = client.socket.recv(MAX_REQUEST)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        client.use.prompt = client.use.prompt or bool(data)
        try:
            more = self._at_once(client, data) if data else b""
        except OSError:
            data = more = b""
        self.settle_soon()
        if data and not more and not client.rest:
            loop = asyncio.get_running_loop()
            self.waiting[client].cancel()
            self.waiting[client] = loop.call_later(IDLE_S, self._drop, client)
            return
        self._forget(client)
        if more or client.rest:
            self._hand_over(client, more)
        else:
            client.socket.close()

    def _forget(self, client: _Client) -> None:
        self.limits.leave(client.use, client)
        asyncio.get_running_loop().remove_reader(client.socket)
        self.waiting.pop(client).cancel()

    def _drop(self, client: _Client) -> None:
        self._forget(client)
        client.socket.close()

    def _close(self, client: _Client) -> None:
        if client in self.waiting:
            self._drop(client)
        client.socket.close()

    def _hand_over(self, client: _Client, begun: bytes) -> None:
        task = asyncio.ensure_future(self._keep(client, begun))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _keep(self, client: _Client, begun: bytes) -> None:
        """Go on with a client that may send more, or has sent half a line."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Connection(self, client, begun), client.socket
            )

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
        await self.copies.refresh(force=force)
        self.handlers.mark_enforce(self.path)
