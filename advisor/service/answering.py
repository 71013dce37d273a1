"""Answer lines: in the loop what needs nothing but memory, the rest beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from advisor.core.protocol import ProtocolError, answer_line
from advisor.errors import AdvisorError
from advisor.service.copies import Copies
from advisor.service.handlers import Handlers
from advisor.service.limits import BUSY, Limits, Use
from advisor.service.peer import Peer
from advisor.service.quiet import quote

log = logging.getLogger("advisor.serve")

_BEHIND_S = 0.005
"""What an answer leaves to be done waits so long: until its submission has gone on."""
LONG_S = 3e-4
"""After an answer that took the processor for longer, the loop looks who else is there before it
goes on with lines of the same user: those of one user are answered one at a time, with others'
in between."""


@dataclass(slots=True)
class Answering:
    """What a line of a peer is answered, within what its user may take."""

    handlers: Handlers
    copies: Copies = field(init=False)
    behind: list[Callable[[], None]] = field(default_factory=list)
    """What is done once, a little after the next answer."""
    _settling: asyncio.TimerHandle | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

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

    async def answer_later(self, line: bytes, peer: Peer, use: Use) -> bytes:
        """Answer a line that waits: for a name's look-up, a published copy, a user's file."""
        await asyncio.to_thread(self.handlers.users.name, peer.uid)
        elsewhere = self._script_elsewhere(line, peer)
        if elsewhere and not use.spent():
            await self.handlers.scripts.read(*elsewhere)
        if not self.copies.concerns(line) or use.spent():
            return self.answer(line, peer, use)
        return await self.copies.answer(line, peer, use, self._answer)

    def answer(self, line: bytes, peer: Peer, use: Use) -> bytes:
        """Answer one line; whatever goes wrong becomes an ``error`` and a line in the log."""
        if use.spent():
            self.refuse(peer, use)
            return BUSY
        # The processor's time: what the host gave to others meanwhile is not the user's work.
        worked = time.thread_time()
        try:
            return self._answer(line, peer, self.handlers.answer)
        finally:
            worked = time.thread_time() - worked
            use.charge(worked)
            if worked > LONG_S and not use.next_turn:
                use.next_turn = True
                asyncio.get_running_loop().call_soon(use.take_turn)

    def refuse(self, peer: Peer, use: Use) -> None:
        """Note that a user asks too much."""
        self.limits.refused += 1
        if not use.named:
            use.named = True
            log.warning("event=too-much uid=%d", self.limits.booked(peer.uid))

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

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do some work beside what the loop does; it is kept until it is over."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def settle_soon(self) -> None:
        """Do what answers left behind them a little later: who was answered goes first.

        Woken on this processor, it could only go on once this process sleeps.
        """
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(_BEHIND_S, self.settle)

    def settle(self) -> None:
        """Do what answers left behind them."""
        self._settling = None
        self.handlers.settle()
        pending_work, self.behind = self.behind, []
        for work in pending_work:
            work()
