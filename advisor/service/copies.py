"""A published copy lies on a shared file system, which may hang: the loop never waits for it."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from advisor.core.protocol import answer_line
from advisor.service.handlers import Handlers
from advisor.service.limits import Use
from advisor.service.peer import Peer

HANGS_S = 10.0
"""A file system that does not answer for so long hangs, as messages call it."""

_SHOWN = re.compile(rb'"op"\s*:\s*"(?:applications|options|history)"')

LineWork = Callable[[bytes, Peer, Callable[[bytes, Peer], bytes]], bytes]
"""Answers a peer's line by a function; what goes wrong becomes an error and a line in the log."""


class Copies:
    """Reads the store, and what users are shown of a copy, in threads that may hang."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._thread = ThreadPoolExecutor(1, "copy")

    def concerns(self, line: bytes) -> bool:
        """Tell whether a line asks for what stands in a published copy only."""
        source = self._handlers.source
        return (source.hangs or source.published_at is not None) and bool(_SHOWN.search(line))

    async def answer(self, line: bytes, peer: Peer, use: Use, work: LineWork) -> bytes:
        """Answer such a line, or say that the file system does not answer."""
        handlers = self._handlers

        def read() -> tuple[bytes, float]:
            worked = time.thread_time()
            answer = work(line, peer, handlers.show)
            return answer, time.thread_time() - worked

        if not handlers.source.hangs:
            reading = asyncio.get_running_loop().run_in_executor(self._thread, read)
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
            gc.collect()
            gc.freeze()
