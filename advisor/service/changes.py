"""When the daemon looks at the store again: of a file now and then, of a database when told.

Who writes to a database tells all who listen, with its commit. A thread of its own listens; while
the connection is lost, the daemon looks now and then as for a file.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path

from advisor.database import DatabaseAddress
from advisor.errors import AdvisorError
from advisor.service.snapshot import StoreSource

log = logging.getLogger("advisor.serve")

HEARD_S = 30.0
"""A database is looked at so often even where nobody tells, as who changes it by hand does not."""
_PAUSE_S = (0.2, 5.0)
"""Seconds between two tries to listen: at first, and at most."""


class Changes:
    """Says when to look at a store, at most once in ``every_s``."""

    def __init__(self, source: StoreSource, every_s: float) -> None:
        self._source, self._every_s = source, every_s
        self._heard_at: Path | None = None
        self._told = asyncio.Event()
        self._hears = False
        self._looked = 0.0

    def _start(self) -> None:
        """Listen, where the store is a database, and again where it was moved to another."""
        self._heard_at, self._hears = self._source.path, False
        if isinstance(self._heard_at, DatabaseAddress):
            listening = (self._heard_at, asyncio.get_running_loop())
            threading.Thread(
                target=self._listen, args=listening, name="changes", daemon=True
            ).start()

    async def due(self) -> bool:
        """Wait for ``every_s`` at most; tell whether the store has to be looked at."""
        if self._heard_at != self._source.path:
            self._start()
        if not self._hears:
            await asyncio.sleep(self._every_s)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), self._every_s)
            now = time.monotonic()
            if not self._told.is_set() and now - self._looked < HEARD_S:
                return False
            await asyncio.sleep(max(0.0, self._looked + self._every_s - now))
        self._told.clear()
        self._looked = time.monotonic()
        return True

    def _listen(self, address: DatabaseAddress, loop: asyncio.AbstractEventLoop) -> None:
        """Hear what writers tell until the process ends, or the store is another one."""
        pause_s = 0.0
        while self._heard_at == address:
            time.sleep(pause_s)
            try:
                from advisor.store import postgresql

                for _ in postgresql.changes(address):
                    if self._heard_at != address:
                        return
                    self._hears, pause_s = True, 0.0
                    loop.call_soon_threadsafe(self._told.set)
            except AdvisorError as error:
                if self._heard_at != address:
                    return
                if self._hears:
                    log.warning("event=changes-not-heard error=%r", str(error))
            except RuntimeError:  # the loop is closed: the daemon ends
                return
            self._hears = False
            pause_s = min(max(_PAUSE_S[0], pause_s * 2), _PAUSE_S[1])
