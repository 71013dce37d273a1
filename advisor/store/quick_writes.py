"""Single statements on a database, for whoever may not wait for it: the daemon at a submission.

A thread of its own has the connection. Whoever asks waits a moment and goes on without it where the
database is slow or gone; what was not written by then is not written.
"""

from __future__ import annotations

import logging
import queue
import threading
from functools import cache
from typing import TYPE_CHECKING

from advisor.database import DatabaseAddress
from advisor.errors import AdvisorError
from advisor.store.moved import check_here

if TYPE_CHECKING:
    from advisor.store.postgresql import PostgresConnection

log = logging.getLogger("advisor.serve")

_MOST = 100
"""Statements that wait; what comes beyond them is not written."""


class _Write:
    """A statement that is wanted for a moment only."""

    def __init__(self, sql: str, values: dict[str, object]) -> None:
        self.sql, self.values = sql, values
        self.changed = 0
        self.done = threading.Event()
        self._settled = threading.Lock()

    def settle(self) -> bool:
        """Tell the first who asks, the writer before its commit or who waits no more, that its
        word counts."""
        return self._settled.acquire(blocking=False)


class _Writes(threading.Thread):
    """Writes to one database, one statement after the other."""

    def __init__(self, address: DatabaseAddress) -> None:
        super().__init__(name="quick-writes", daemon=True)
        self._address = address
        self._queue: queue.Queue[_Write] = queue.Queue(_MOST)
        self._connection: PostgresConnection | None = None

    def ask(self, write: _Write) -> None:
        """Hand a statement over. Raises queue.Full."""
        self._queue.put_nowait(write)

    def run(self) -> None:
        """Write until the process ends."""
        while True:
            write = self._queue.get()
            try:
                self._write(write)
            except AdvisorError as error:
                log.warning("event=trial-not-written error=%r", str(error))
                self._disconnect()
            write.done.set()

    def _write(self, write: _Write) -> None:
        from advisor.store import postgresql

        if self._connection is None:
            self._connection = postgresql.open_reader(self._address, timeout_s=1.0)
            self._connection.tells = True  # other daemons have to know of the place
        connection = self._connection
        connection.execute("BEGIN READ WRITE")
        changed = connection.execute(write.sql, write.values).rowcount
        check_here(connection, self._address)
        if write.settle():
            connection.execute("COMMIT")
            write.changed = changed
        else:
            connection.rollback()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@cache
def _writes(address: DatabaseAddress) -> _Writes:
    writes = _Writes(address)
    writes.start()
    return writes


def write(address: DatabaseAddress, sql: str, values: dict[str, object], wait_s: float) -> int:
    """Run one statement now or not at all; return how many rows it changed. Never raises.

    Where the database is still at the commit after ``wait_s``, 0 is returned and the row stays.
    """
    wanted = _Write(sql, values)
    try:
        _writes(address).ask(wanted)
    except queue.Full:
        return 0
    if not wanted.done.wait(wait_s) and wanted.settle():
        log.warning("event=trial-not-written error=%r", f"{address}: slower than {wait_s} s")
    return wanted.changed
