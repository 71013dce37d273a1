"""Read-only access to a store file, live or published, that notices when it changes.

Three ways to open, which the file itself decides:

- *live*: a store in WAL mode. Commits of others show in ``PRAGMA data_version``.
- *frozen*: a published copy (rollback-journal mode, never modified, only replaced). Opened as
  immutable, so neither locks nor a writable folder are needed; a new copy shows in its stat.
- *quiet*: a WAL store in a folder this user cannot write, with no writer about. SQLite could
  not make the shared-memory file it wants, so it is opened as immutable too, and every read is
  checked against the file's stat and repeated when a writer has turned up.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from advisor.database import DatabaseAddress, store_at
from advisor.errors import OlderStoreError, PublishedCopyError, StoreError
from advisor.paths import share
from advisor.store import faults, leftover, moved
from advisor.store.port import Database, ResultRow
from advisor.store.versions import MIGRATIONS, check_not_newer

StoreAccess = Literal["live", "frozen", "quiet"]
Identity = tuple[int, ...]

_HEADER = b"SQLite format 3\0"
_WAL_FORMAT = 2
"""File format version of a database in WAL mode (byte 18 of SQLite's header)."""

COPY = 0x41445643
"""The ``application_id`` of a published copy ("ADVC"), which SQLite keeps in its file's header."""
_ID = slice(68, 72)  # where it lies


LOG_BYTES = 64 << 20
"""What the log beside a store keeps of a large transaction once that is in the store."""
_CREATED = re.compile(r"^(CREATE (?:TABLE|VIEW|TRIGGER|(?:UNIQUE )?INDEX) )")
"""How SQLite keeps what made a part of the schema, up to its name."""
_STEPS = 100_000
"""Steps of SQLite's machine, about a millisecond, between two looks at the clock."""

_kept: dict[tuple[int, int], int] = {}
"""Descriptors of live stores by device and inode, never closed; see :func:`_header`."""


def _header(path: Path) -> bytes:
    """Return the first 100 bytes of a store without harm to connections that are open on it.

    Raises StoreError when the log beside a live store belongs to another file.

    POSIX drops every lock a process holds on a file as soon as it closes any descriptor of it.
    SQLite would lose its locks, and another process, taking itself for the last one, would delete
    the WAL under it. So the descriptor of anything that may be a live store stays open.
    """
    status = path.stat()
    key = status.st_dev, status.st_ino
    descriptor = _kept.get(key)
    if descriptor is None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    header = os.pread(descriptor, 100, 0)
    if not header or header[18:19] == bytes([_WAL_FORMAT]):
        _kept[key] = descriptor
        leftover.check(path, descriptor)
    else:
        os.close(descriptor)
        _kept.pop(key, None)
    return header


def is_wal(path: Path) -> bool:
    """Tell whether the store is a live one: a file in WAL mode, or a database.

    Raises StoreError when it is no store, or one with another file's log beside it.
    """
    if isinstance(path, DatabaseAddress):
        return True
    try:
        header = _header(path)
    except FileNotFoundError:
        raise StoreError(
            f"{path}: there is no store",
            hint="measure or import something first; put a lost store back with "
            "advisor store restore FILE; or name another one with --db",
        ) from None
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be read: {error.strerror}") from None
    if len(header) < 100 or not header.startswith(_HEADER):
        raise faults.damaged(path, "empty file" if not header else "wrong header")
    return header[18] == _WAL_FORMAT


def is_copy(path: Path) -> bool:
    """Tell whether advisor store publish made a file, which nobody may write. Raises StoreError.

    A backup has the same form without the mark: put in a store's place, it becomes the store.
    """
    return not is_wal(path) and int.from_bytes(_header(path)[_ID]) == COPY


def check_file(store: Path) -> None:
    """Raise StoreError for a store that is no file, where its file is what is wanted."""
    if isinstance(store, DatabaseAddress):
        raise StoreError(
            f"{store}: only a store that is a file is copied or put back",
            hint="PostgreSQL's own tools do it: pg_dump --schema=advisor, pg_restore",
        )


def check_no_copy(path: Path) -> None:
    """Raise PublishedCopyError where the store is a published copy.

    Written to, it would be a live store, which advisor store publish never replaces.
    """
    if is_copy(path):
        raise PublishedCopyError(
            f"{path} is a published copy, which is only read",
            hint="do this in the store itself and publish again; where the store is lost: "
            "advisor store restore COPY --db STORE",
        )


OLD_S = 6 * 3600.0
"""A copy this old is made no more: one is published after each collection."""


def age_of_copy(path: Path) -> float | None:
    """Return how many seconds ago a published copy was made, None for a live store.

    Raises StoreError as :func:`is_wal`. The copy's time of change is that of its publishing; a
    clock that was set back makes it new.
    """
    if is_wal(path):
        return None
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be read: {error.strerror}") from None


class StoreConnection:
    """A read-only connection to the store at ``path``; waits ``timeout_s`` for a busy one.

    A query that takes more than ``longest_s`` ends with StoreError (0: none does).
    """

    page = 2000
    """Rows that are read at once of what is long."""
    whole_months: Collection[str] = ()
    """Months (2026-01) of which every job is known, whatever was pruned."""

    def __init__(self, path: Path | str, *, timeout_s: float = 1.0, longest_s: float = 0.0) -> None:
        self.path = store_at(path)
        self._timeout_s, self._longest_s = timeout_s, longest_s
        self._until = 0.0
        self._connection: Any  # a Database: where the store is a file, sqlite3's own
        self._connection, self._access, self._identity = self._open()
        self._version = self.data_version()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        self._connection.close()

    @property
    def published(self) -> bool:
        """Whether this is a published copy, which nobody writes to."""
        return self._access == "frozen"

    def changed(self) -> bool:
        """Tell whether anything may have changed since the last call, or since the opening.

        A replaced file is opened again. Raises StoreError when the file is gone or its
        replacement cannot be read; what was open stays open then and can still be asked. Raises
        MovedStoreError once the store was moved.
        """
        if self._stale():
            self._reopen()
            return True
        version = self.data_version()
        changed, self._version = version != self._version, version
        if changed:
            moved.check_here(self._connection, self.path)
        return changed

    def data_version(self) -> int:
        """Return a number that another connection's commit changes; 0 where nobody writes."""
        if self._access != "live":
            return 0
        version: int = self.rows("PRAGMA data_version")[0][0]
        return version

    def rows(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> list[ResultRow]:
        """Return all rows of one query. Raises StoreError."""
        self._until = time.monotonic() + self._longest_s
        # Twice: a file that was replaced meanwhile is opened again once; then it is what it is.
        for last in (False, True):
            try:
                result: list[ResultRow] = self._connection.execute(sql, parameters).fetchall()
            # a mistake in our own statement says nothing of the store
            except sqlite3.ProgrammingError:
                raise
            except UnicodeDecodeError as error:  # SQLite quotes the damage in its message
                raise faults.damaged(self.path, "text that is none") from error
            except sqlite3.Error as error:
                if last or not self._stale():
                    raise faults.translate(error, self.path) from error
            except StoreError:  # a database's, whose server may be back
                if last or not self._stale():
                    raise
            else:
                if last or self._access != "quiet" or not self._stale():
                    return result
            self._reopen()
        raise AssertionError("unreachable")

    def rows_of_each(
        self, sql: str, parameters: Sequence[Sequence[object]]
    ) -> list[list[ResultRow]]:
        """Return the rows of one query for each of some parameters; a database gets all at once.

        Raises StoreError.
        """
        at_once = getattr(self._connection, "rows_of_each", None)
        if at_once is None:
            return [self.rows(sql, values) for values in parameters]
        try:
            rows: list[list[ResultRow]] = at_once(sql, parameters)
        except StoreError:  # a database's, whose server may be back
            if not self._stale():
                raise
            self._reopen()
            rows = self._connection.rows_of_each(sql, parameters)
        return rows

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Have all that is read inside be of one moment, whatever others write."""
        if self._connection.in_transaction:
            yield
            return
        self.rows("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:  # a file that was replaced is opened anew
                self._connection.rollback()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy the whole store, as it is at one moment, into an empty database."""
        try:
            self._file().backup(target)
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from error

    def copy_without(self, left_out: Collection[str], target: Path) -> None:
        """Copy the store, as it is at one moment, into an empty file; some tables without rows.

        Nothing of those is read, and what is copied is written once.
        """
        if isinstance(self.path, DatabaseAddress):
            self._copy_database(left_out, target)
            return
        connection = self._file()
        try:
            connection.execute("ATTACH ? AS copy", (str(target),))
            try:
                connection.execute("PRAGMA copy.journal_mode = OFF")  # a draft: nobody else sees it
                connection.execute("PRAGMA copy.synchronous = OFF")
                connection.execute("BEGIN")
                _copy_tables(connection, left_out)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.rollback()
                connection.execute("DETACH copy")
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from error

    def _copy_database(self, left_out: Collection[str], target: Path) -> None:
        from advisor.store.table_rows import fill, tables

        with closing(sqlite3.connect(target, isolation_level=None)) as copy, self.one_moment():
            copy.execute("PRAGMA journal_mode = OFF")
            copy.execute("PRAGMA synchronous = OFF")
            copy.executescript(share("db/schema.sql").read_text(encoding="utf-8"))
            copy.execute("BEGIN")
            fill(self._connection, copy, tables(left_out))
            copy.execute("COMMIT")

    def _file(self) -> sqlite3.Connection:
        """Return the connection to a store that is a file. Raises StoreError for another."""
        if isinstance(self._connection, sqlite3.Connection):
            return self._connection
        check_file(self.path)
        raise AssertionError("unreachable")

    def _open(self) -> tuple[Database, StoreAccess, Identity]:
        if isinstance(self.path, DatabaseAddress):
            from advisor.store import postgresql

            waits = {"timeout_s": self._timeout_s, "longest_s": self._longest_s}
            return postgresql.open_reader(self.path, **waits), "live", ()
        wal = is_wal(self.path)
        access: StoreAccess = "live" if wal else "frozen"
        identity = self._identify(access)
        try:
            return self._attempt(access), access, identity
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "") or ""
            unshared = name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR"))
            if not (wal and unshared and not leftover.has_log(self.path)):
                raise faults.translate(error, self.path) from error
        try:
            return self._attempt("quiet"), "quiet", self._identify("quiet")
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from error

    def _attempt(self, access: StoreAccess) -> sqlite3.Connection:
        flags = "mode=ro" if access == "live" else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{flags}",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,  # transactions begin where one_moment says
            check_same_thread=False,  # the daemon hands readers from thread to thread
        )
        try:
            connection.row_factory = sqlite3.Row
            check_schema(connection, self.path)
        except UnicodeDecodeError as error:
            connection.close()
            raise faults.damaged(self.path, "text that is none") from error
        except BaseException:
            connection.close()
            raise
        if self._longest_s:
            connection.set_progress_handler(self._too_long, _STEPS)
        return connection

    def _too_long(self) -> bool:
        """Tell SQLite whether to give up."""
        return time.monotonic() > self._until

    def _reopen(self) -> None:
        connection, access, identity = self._open()
        self._connection.close()
        self._connection, self._access, self._identity = connection, access, identity
        self._version = self.data_version()

    def _stale(self) -> bool:
        if isinstance(self.path, DatabaseAddress):
            return bool(getattr(self._connection, "broken", False))
        return self._identify(self._access) != self._identity

    def _identify(self, access: StoreAccess) -> Identity:
        if isinstance(self.path, DatabaseAddress):
            return ()
        try:
            status = self.path.stat()
        except OSError as error:
            raise StoreError(f"{self.path}: the store is gone: {error.strerror}") from None
        if access == "live":
            return status.st_dev, status.st_ino
        wal = access == "quiet" and leftover.has_log(self.path)
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, wal


def _copy_tables(connection: sqlite3.Connection, left_out: Collection[str]) -> None:
    """Fill the attached ``copy``: tables, their rows, and then what is made over them."""
    schema = connection.execute(
        "SELECT type, name, sql FROM main.sqlite_master WHERE sql IS NOT NULL"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type <> 'table', rowid"
    ).fetchall()
    for kind, name, sql in schema:
        connection.execute(_CREATED.sub(r"\1copy.", sql, count=1))
        if kind == "table" and name not in left_out:
            connection.execute(f'INSERT INTO copy."{name}" SELECT * FROM main."{name}"')


def applied_migrations(connection: sqlite3.Connection) -> set[str] | None:
    """Return the names of the applied migrations, None when the file has no such table."""
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlite_migrations'"
    if connection.execute(table).fetchone() is None:
        return None
    rows = connection.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = 'advisor'")
    return {row[0] for row in rows}


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError unless the file is an advisor store of the schema this program knows."""
    applied = applied_migrations(connection)
    if not applied:
        raise faults.damaged(path, "it lacks the advisor's tables")
    check_not_newer(applied, path)
    moved.check_opened(connection, path)
    missing = [name for name in MIGRATIONS if name not in applied]
    if missing:
        raise OlderStoreError(
            f"{path}: the store is of an older version (it lacks {', '.join(missing)})",
            hint="its owner brings it up to date with advisor collect, "
            "a copy with advisor store publish",
        )
