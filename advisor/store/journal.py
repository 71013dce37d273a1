"""Write decisions behind the answer: the daemon hands them over and never waits.

Standard library only. When the store is locked, full or read-only, decisions wait in memory up
to a limit, and whoever calls never hears of it; the log does.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.core.decision import Decision
from advisor.database import DatabaseAddress, store_at
from advisor.errors import AdvisorError, MovedStoreError, RefusedValueError
from advisor.store import faults
from advisor.store import rows as _rows
from advisor.store.connection import LOG_BYTES, check_schema, is_wal
from advisor.store.follow import follow
from advisor.store.moved import check_here
from advisor.store.port import Database, execute_part

_LOG = logging.getLogger(__name__)
_BATCH = 200
"""Decisions written in one transaction."""
_GATHER_S = 0.2
"""How long decisions are gathered, so that writing them competes little with making them."""

_BREATH_S = 0.001
"""After each decision worked out for a batch that is not full: the loop, which answers, has the
interpreter's lock meanwhile. Of a full batch more would wait behind it."""
_BUSY_S = 0.5
"""Seconds to wait for another writer."""
_PAUSE_S = (0.2, 5.0)
"""Seconds between two tries to write: at first, and at most."""
_QUIET_S = 60.0
"""Dropped decisions are reported at most this often while the trouble lasts."""


@dataclass(frozen=True, slots=True)
class _Item:
    decision: Decision | None
    decision_id: str
    job_id: str


class _PublishedCopyError(Exception):
    """The store is a published copy: nothing can ever be written to it."""


class Journal:
    """A thread that writes decisions to the store at ``path``, in the order they came.

    Keeps up to ``limit`` while the store cannot be written and drops the oldest beyond. On a
    published copy nothing is kept: there, decisions travel with the job.
    """

    def __init__(self, path: Path | str, *, limit: int = 10_000) -> None:
        self.path = store_at(path)
        self.limit = limit
        self._items: deque[_Item] = deque()
        self._ready = threading.Condition()
        self._closing = threading.Event()
        self._deadline = 0.0
        self._thread: threading.Thread | None = None
        self._connection: Database | None = None
        self._inode: tuple[int, int] | None = None
        self._in_flight = 0
        self._written = 0
        self._dropped = 0
        self._reported = 0
        self._reported_at = 0.0
        self._trouble = ""

    @property
    def waiting(self) -> int:
        """Entries not written yet."""
        with self._ready:
            return len(self._items) + self._in_flight

    @property
    def written(self) -> int:
        """Entries written so far."""
        return self._written

    @property
    def dropped(self) -> int:
        """Entries lost so far: beyond the limit, or refused by the store."""
        return self._dropped

    @property
    def trouble(self) -> str:
        """Why the store cannot be written just now; empty when it can."""
        return self._trouble

    def start(self) -> None:
        """Start writing; harmless when done twice."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()

    def put(self, decision: Decision, job_id: str = "") -> None:
        """Hand over a decision; its record is made in the journal's own thread. Never raises."""
        self._append(_Item(decision, decision.id, job_id))

    def link(self, decision_id: str, job_id: str) -> None:
        """Note which job a decision was for. Never raises."""
        self._append(_Item(None, decision_id, job_id))

    def drop(self, decision_id: str) -> None:
        """Forget a decision that another one took the place of. Never raises."""
        self._append(_Item(None, decision_id, ""))

    def close(self, timeout_s: float = 5.0) -> int:
        """Write what waits, for at most ``timeout_s``; return how many entries were left."""
        self._deadline = time.monotonic() + timeout_s
        self._closing.set()
        with self._ready:
            self._ready.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s + 2 * _BUSY_S)
        entries_left = self.waiting
        if entries_left:
            _LOG.warning("event=decisions-left left=%d store=%s", entries_left, self.path)
        self._report(final=True)
        return entries_left

    def _append(self, item: _Item) -> None:
        with self._ready:
            if self._closing.is_set():
                self._dropped += 1
                return
            self._items.append(item)
            self._trim()
            self._ready.notify()

    def _trim(self) -> None:
        # What is being written is no longer among those that could be dropped.
        while len(self._items) + self._in_flight > max(self.limit, self._in_flight):
            self._items.popleft()
            self._dropped += 1

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        try:
            while batch := self._next(pause):
                try:
                    self._write(batch)
                except _PublishedCopyError:
                    self._settle([])  # tried again, it would fail again
                    self._note(f"{self.path} is a published copy; decisions stay with their jobs")
                except Exception as error:
                    self._settle(batch)
                    self._disconnect()
                    trouble: Exception | None = error
                    if isinstance(error, MovedStoreError) and not (trouble := self._follow(error)):
                        continue
                    self._note(self._describe(trouble or error))
                    pause = min(max(_PAUSE_S[0], pause * 2), _PAUSE_S[1])
                    if self._closing.is_set() and time.monotonic() >= self._deadline:
                        return
                else:
                    self._settle([])
                    pause = 0.0
                    self._recovered()
        finally:
            self._disconnect()

    def _next(self, pause: float) -> list[_Item]:
        """Wait for work and take a batch of it; empty when all is done and closing."""
        if pause:
            self._closing.wait(pause)
            if self._closing.is_set():  # which it no longer waits for
                time.sleep(0.05)
        with self._ready:
            while not self._items and not self._closing.is_set():
                self._ready.wait()
        if not pause:
            self._closing.wait(_GATHER_S)
        with self._ready:
            batch = list(islice(self._items, _BATCH))
            for _ in batch:
                self._items.popleft()
            self._in_flight = len(batch)
        return batch

    def _settle(self, back: list[_Item]) -> None:
        """End a batch: put ``back`` what must be tried again."""
        with self._ready:
            self._in_flight = 0
            self._items.extendleft(reversed(back))
            self._trim()

    def _write(self, batch: list[_Item]) -> None:
        connection = self._connected()
        rows = self._rows(batch)
        written_rows = 0
        connection.execute(self._begin)
        try:
            for sql, row in rows:
                written_rows += self._write_one(connection, sql, row)
            check_here(connection, self.path)  # what is written keeps a mover out until the commit
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise
        self._written += written_rows
        self._dropped += len(batch) - written_rows

    def _follow(self, moved: MovedStoreError) -> AdvisorError | None:
        """Go on in the store that this one was moved to; return why that cannot be done."""
        try:
            self.path = follow(moved)
        except AdvisorError as error:
            return error
        _LOG.warning("event=decisions-follow store=%s", self.path)
        return None

    def _rows(self, batch: list[_Item]) -> list[tuple[str, dict[str, Any]]]:
        """Return what to execute, worked out one by one: who asks meanwhile waits for one only."""
        rows = []
        for item in batch:
            if item.decision is None:
                link = {"id": item.decision_id, "job_id": item.job_id, "cluster": ""}
                rows.append((_rows.LINK_DECISION if item.job_id else _rows.DROP_DECISION, link))
                continue
            try:
                row = _rows.decision_row(item.decision, item.job_id)
                rows.append((_rows.SAVE_DECISION, row))
            except (AdvisorError, AttributeError, OverflowError, TypeError, ValueError) as error:
                _LOG.error("event=decision-skipped store=%s error=%r", self.path, str(error))
            if len(batch) < _BATCH:
                self._closing.wait(_BREATH_S)
        return rows

    @property
    def _begin(self) -> str:
        """Decisions need no lock in a database: each is a row of its own."""
        return "BEGIN READ WRITE" if isinstance(self.path, DatabaseAddress) else "BEGIN IMMEDIATE"

    def _write_one(self, connection: Database, sql: str, row: dict[str, Any]) -> bool:
        try:
            execute_part(connection, sql, row)
        # A row that the store refuses keeps none of the others out; a store that is locked or full
        # fails the whole batch, which is tried again.
        except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError) as error:
            _LOG.error("event=decision-refused store=%s error=%r", self.path, str(error))
            return False
        except RefusedValueError as error:
            _LOG.error("event=decision-refused store=%s error=%r", self.path, str(error))
            return False
        except (OverflowError, TypeError, ValueError) as error:
            _LOG.error("event=decision-skipped store=%s error=%r", self.path, str(error))
            return False
        return True

    def _connected(self) -> Database:
        """Return the open connection, to the file that has the store's name now."""
        if isinstance(self.path, DatabaseAddress):
            if self._connection is None:
                from advisor.store import postgresql

                self._connection = postgresql.open_reader(self.path, timeout_s=_BUSY_S)
            return self._connection
        try:
            status = self.path.stat()
        except OSError:
            self._disconnect()
            raise
        inode = (status.st_dev, status.st_ino)
        if self._connection is not None and inode == self._inode:
            return self._connection
        self._disconnect()
        if not is_wal(self.path):
            raise _PublishedCopyError
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,  # transactions begin where _write says
        )
        try:
            # With a log beside the store, a loss of power costs the last commits and no more; jobs'
            # stamps tell of those.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            check_schema(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._connection, self._inode = connection, inode
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- the log -------------------------------------------------------------------------------

    def _describe(self, error: Exception) -> str:
        if isinstance(error, sqlite3.Error):
            return str(faults.translate(error, self.path))
        if isinstance(error, FileNotFoundError):
            back = "advisor store restore puts a backup or a published copy back"
            return f"{self.path}: there is no store ({back})"
        return str(error)

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            _LOG.warning("event=decisions-not-written waiting=%d error=%r", self.waiting, trouble)
        self._report()

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            _LOG.warning("event=decisions-written-again store=%s", self.path)
            self._report(final=True)

    def _report(self, *, final: bool = False) -> None:
        fresh = self._dropped - self._reported
        if fresh and (final or time.monotonic() - self._reported_at >= _QUIET_S):
            self._reported, self._reported_at = self._dropped, time.monotonic()
            _LOG.warning(
                "event=decisions-dropped dropped=%d in_all=%d store=%s",
                fresh,
                self._dropped,
                self.path,
            )
