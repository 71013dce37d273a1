"""One client of the daemon: lines in, lines out, each answered in its turn.

All bytes of all clients come in by :meth:`Connection._receive`, a hook's one line as well as a
stream of requests.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket

from advisor.core.protocol import MAX_REQUEST, answer_line
from advisor.service.answering import Answering
from advisor.service.limits import BEGUN
from advisor.service.peer import Peer

log = logging.getLogger("advisor.serve")

_FOLLOWS_MS = 1
"""A hook's line comes at once after its connection: so long is waited for it."""
_LINES = 16
"""So many short lines of one connection are answered in a row."""
IDLE_S = 30.0
"""A connection that sends nothing for so long is closed."""


class Connection:
    """A connection as it was accepted, who is there, and what that user takes.

    The loop only hears of a client's next bytes while nothing of what it sent before waits to be
    answered, and no answer to be taken.
    """

    def __init__(self, answering: Answering, socket: socket.socket, peer: Peer) -> None:
        self._answering, self._socket, self._peer = answering, socket, peer
        self._use = answering.limits.of(peer.uid)
        self._received = bytearray()
        self._searched = 0
        """Bytes received in which no line ends."""
        self._unsent = bytearray()
        """Of answers, what the socket had no room for."""
        self._waits_its_turn = self._answered_beside = self._closing = False
        self._reads = False
        """The loop hears of what the client sends."""
        self._idle: asyncio.TimerHandle | None = None

    @property
    def _is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def begin(self) -> None:
        """Answer at once what a client has sent already: a hook's one line."""
        use, prompt = self._use, False
        self._socket.setblocking(False)
        if not use.next_turn:
            prompt = self._more_follows()
            if prompt:
                self._receive()
        if not self._is_open:  # it hung up again: nothing is kept for it, but it is counted
            use.charge(0.0)
            return
        self._answering.limits.enter(use, self, self.abort)
        if prompt and not (self._received or self._unsent or self._answered_beside):
            self._answering.behind.append(self._go_on)  # most hooks hang up now
        else:
            self._attend()
        self._answering.settle_soon()

    def _more_follows(self) -> bool:
        """Tell whether the client has sent something.

        It often loses the processor to us between its connection and its line.
        """
        # Not select(), which knows no descriptors above 1023.
        follows = select.poll()
        follows.register(self._socket, select.POLLIN)
        if follows.poll(_FOLLOWS_MS if self._use.prompt else 0):
            return True
        self._use.prompt = False
        self._use.charge(_FOLLOWS_MS / 1000)
        return False

    def _go_on(self) -> None:
        """Go on with a client that has sent something more, or has hung up."""
        if self._is_open and not self._use.next_turn:  # else it is still readable then
            self._receive()
        self._attend()

    def _receive(self) -> None:
        """Take what the client sent, and answer the lines that are whole."""
        use = self._use
        try:
            data = self._socket.recv(MAX_REQUEST)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        use.prompt = True
        if self._received or data.find(b"\n") != len(data) - 1:  # one line counts as its answer
            use.charge(0.0)
            if use.spent():
                self._answering.refuse(self._peer, use)
                self.abort()
                return
        self._received += data
        use.begun += len(data)
        self._answer_lines()

    def _answer_lines(self) -> None:
        """Answer the lines that are there; after a long one, or some, others' go first."""
        use, answered = self._use, 0
        while not self._answered_beside:
            end = self._received.find(b"\n", self._searched)
            if end < 0 or end > MAX_REQUEST:  # the rest of a long line may come along with its end
                self._searched = len(self._received)
                self._refuse_too_long()
                return
            if use.next_turn or answered == _LINES:
                self._waits_its_turn = True
                asyncio.get_running_loop().call_soon(self._take_turn)
                return
            answered += 1
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            use.begun -= end + 1
            self._searched = 0
            self._answer(line)

    def _take_turn(self) -> None:
        self._waits_its_turn = False
        if self._is_open:
            self._answer_lines()
            self._attend()

    def _refuse_too_long(self) -> None:
        use, size = self._use, len(self._received)
        if size > MAX_REQUEST or (use.bounded and use.begun > BEGUN):
            self._send(answer_line({"error": f"a request may have {MAX_REQUEST} bytes"}))
            log.warning("event=too-long uid=%d bytes=%d", self._peer.uid, size)
            self.close()

    def _answer(self, line: bytes) -> None:
        """Answer a line in the loop, or beside it; those that follow have the order of lines."""
        if self._answering.at_once(line, self._peer):
            self._send(self._answering.answer(line, self._peer, self._use))
            return
        self._answered_beside = True
        self._answering.spawn(self._answer_beside(line))

    async def _answer_beside(self, line: bytes) -> None:
        try:
            self._send(await self._answering.answer_later(line, self._peer, self._use))
        finally:
            self._answered_beside = False
            if self._is_open:
                self._answer_lines()
                self._attend()

    def _send(self, answer: bytes) -> None:
        """Send an answer, and what of it there is no room for once there is."""
        if not self._is_open:
            return
        if not self._unsent:
            try:
                answer = answer[self._socket.send(answer) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self.abort()
                return
            if answer:
                asyncio.get_running_loop().add_writer(self._socket, self._send_rest)
        self._unsent += answer
        self._answering.settle_soon()

    def _send_rest(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        if self._unsent:
            return
        asyncio.get_running_loop().remove_writer(self._socket)
        if self._closing:
            self.abort()
        else:
            self._attend()

    def _attend(self) -> None:
        """Hear of the client's next bytes, or not yet; who is silent for long is hung up on."""
        if not self._is_open:
            return
        loop = asyncio.get_running_loop()
        reads = not (self._waits_its_turn or self._answered_beside or self._unsent or self._closing)
        if reads and not self._reads:
            loop.add_reader(self._socket, self._go_on)
        elif self._reads and not reads:
            loop.remove_reader(self._socket)
        self._reads = reads
        if self._idle:
            self._idle.cancel()
        self._idle = None if self._answered_beside else loop.call_later(IDLE_S, self.abort)

    def close(self) -> None:
        """Hang up once the client has taken its answers."""
        self._closing = True
        if self._unsent:
            self._attend()
        else:
            self.abort()

    def abort(self) -> None:
        """Hang up."""
        if not self._is_open:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.remove_writer(self._socket)
        if self._idle:
            self._idle.cancel()
        self._use.begun -= len(self._received)
        self._received.clear()
        self._answering.limits.leave(self._use, self)
        self._socket.close()
