"""What the loop never waits for: pages of the store, which may be large, and a file system that
hangs, as that of a published copy may.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from advisor.core.protocol import answer_line
from advisor.service.handlers import Handlers
from advisor.service.limits import BUSY, Use
from advisor.service.peer import Peer
from advisor.store.visible import SHOWN

HANGS_S = 10.0
"""A file system that does not answer for so long hangs, as messages call it."""

READ_AT_ONCE = 2
"""Readings of the store at once, one for each user."""
READINGS = 8
"""Readings of one user that are under way or wait; further ones are refused."""

_SHOWN = re.compile(rb'"op"\s*:\s*"(?:' + "|".join(SHOWN).encode() + rb')"')

LineWork = Callable[[bytes, Peer, Callable[[bytes, Peer], bytes]], bytes]
"""Answers a peer's line by a function; what goes wrong becomes an error and a line in the log."""


class Copies:
    """Reads the store, and what users are shown of it, in threads that may hang."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._threads = ThreadPoolExecutor(READ_AT_ONCE, "shown")
        self._free = asyncio.Semaphore(READ_AT_ONCE)

    def concerns(self, line: bytes) -> bool:
        """Tell whether a line asks for a page of the store."""
        return bool(_SHOWN.search(line))

    async def answer(self, line: bytes, peer: Peer, use: Use, work: LineWork) -> bytes:
        """Answer such a line, or say that the file system does not answer.

        A user's lines are read for one after the other, and some wait: other users come between.
        """
        if use.readings >= READINGS:
            use.charge(0.0)
            return BUSY
        use.readings += 1
        try:
            async with use.turn, self._free:
                return await self._read(line, peer, use, work)
        finally:
            use.readings -= 1

    async def _read(self, line: bytes, peer: Peer, use: Use, work: LineWork) -> bytes:
        handlers = self._handlers

        def read() -> tuple[bytes, float]:
            worked = time.thread_time()
            answer = work(line, peer, handlers.show)
            return answer, time.thread_time() - worked

        if not handlers.source.hangs:
            reading = asyncio.get_running_loop().run_in_executor(self._threads, read)
            if (await asyncio.wait({reading}, timeout=HANGS_S))[0]:
                answer, worked = reading.result()
                use.charge(worked)
                return answer
            handlers.hangs()
        use.charge(0.0)
        return answer_line({"error": handlers.source.error})

    async def refresh(self, *, force: bool = False) -> None:
        """Look at the store, and say so while it hangs; garbage is collected between answers."""
        loop = asyncio.get_running_loop()
        looking = loop.run_in_executor(None, lambda: self._handlers.refresh(force=force))
        while not (await asyncio.wait({looking}, timeout=HANGS_S))[0]:
            self._handlers.hangs()
            gc.collect(1)
        if looking.result():
            # The old snapshot goes now; the new one is not looked through again while it holds.
            gc.collect()
            gc.freeze()
