"""Open a store to write: made whole when there is none, in WAL mode, with today's schema."""

from __future__ import annotations

import os
import pwd
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from advisor.database import DatabaseAddress
from advisor.drafts import draft
from advisor.errors import StoreError
from advisor.store import faults, leftover
from advisor.store.connection import LOG_BYTES, applied_migrations, check_no_copy, is_wal
from advisor.store.moved import check_opened
from advisor.store.schema import apply_migrations
from advisor.store.versions import MIGRATIONS, check_not_newer


def open_store(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Return a connection that may write the store at ``path``; make the store if need be.

    Waits ``timeout_s`` for another writer, then and on any other trouble raises StoreError; on a
    published copy PublishedCopyError.
    """
    try:
        if _missing(path):
            # Looked at twice: another process may make the store between the two looks.
            if leftover.has_log(path) and _missing(path):
                raise leftover.refusal(path)
            _create(path, timeout_s)
    except OSError as error:
        raise _unmakable(path, error) from None
    wal = is_wal(path)
    if not wal and leftover.has_log(path) and not is_wal(path):
        raise leftover.refusal(path)  # a copy in its place: what is published has no log
    check_no_copy(path)
    try:
        connection = _connect(path, timeout_s)
        try:
            _prepare(connection, path, wal, timeout_s)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise faults.translate(error, path) from error
    return connection


def _missing(path: Path) -> bool:
    return not path.exists() or (path.is_file() and not path.stat().st_size)


def is_owner(path: Path) -> bool:
    """Tell whether this process acts for whoever owns the store, or would make it."""
    if isinstance(path, DatabaseAddress):
        from advisor.store import postgresql

        return postgresql.process_owns(path)
    try:
        return os.geteuid() in (0, path.stat().st_uid)
    except OSError:
        return True


def caller() -> str:
    """Return the name of the user this process runs as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _create(path: Path, timeout_s: float) -> None:
    """Make the store beside its place and put it there whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft(path.parent, path.name) as new:  # it holds who ran what; others may get access
            connection = _connect(new, timeout_s)
            try:
                # No log until all of it stands: what a full disk keeps out of the file when a log
                # is put into it is said nowhere.
                _prepare(connection, new, True, timeout_s)
                _to_wal(connection, timeout_s)
            finally:
                connection.close()
            _publish(new, path)
    except sqlite3.Error as error:
        raise faults.translate(error, path) from error
    except OSError as error:
        raise _unmakable(path, error) from None
    finally:
        # Removing the draft changed the store's time; a log that another process has begun
        # meanwhile must stay the younger of the two (see leftover).
        with suppress(OSError):
            os.utime(f"{path}-wal")


def _unmakable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path}: the store cannot be made: {error.strerror}",
        hint=f"check the folder {path.parent}, or name another store with --db",
    )


def _publish(new: Path, path: Path) -> None:
    """Put a finished draft in its place; when another process was first, keep that one."""
    if path.exists() and not path.stat().st_size:
        new.replace(path)
        return
    try:
        path.hardlink_to(new)
    except FileExistsError:
        return
    except OSError:
        if not path.exists():
            new.replace(path)


def _connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    # Transactions are begun by us alone: the module would begin them late, and not IMMEDIATE.
    connection = sqlite3.connect(
        path, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, wal: bool, timeout_s: float) -> None:
    pending = _pending(connection, path)
    if not wal:
        _to_wal(connection, timeout_s)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    connection.execute("PRAGMA cache_size = -65536")  # KiB, as far as pages are read
    if not pending:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited.
        if _pending(connection, path):
            apply_migrations(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _pending(connection: sqlite3.Connection, path: Path) -> bool:
    applied = applied_migrations(connection)
    if not applied:
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise faults.damaged(path, "it lacks the advisor's tables")
        return True
    check_not_newer(applied, path)
    check_opened(connection, path)
    return any(name not in applied for name in MIGRATIONS)


def _to_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    # SQLite does not wait by itself when it changes the journal mode.
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or (
                time.monotonic() > deadline
            ):
                raise
            time.sleep(0.05)
