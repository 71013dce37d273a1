"""Back the store up while it is used, and put a backup in its place.

A restored store takes the place of the old one in one step, and the old one is kept beside it.
SQLite would write the log (``-wal``) of the old one into the new one; so the old log is moved away
with the old store, and whoever comes in between finds a store that was put beside another's log,
which is refused (see :mod:`advisor.store.leftover`).
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from advisor.drafts import draft
from advisor.errors import InputError, PublishedCopyError, StoreError
from advisor.store import faults
from advisor.store.connection import applied_migrations, check_file, check_no_copy
from advisor.store.publish import check_copy, copied, put, synced
from advisor.store.versions import check_not_newer

_LOGS = ("-wal", "-shm")


def backup(source: Path, target: Path) -> None:
    """Write everything in the store to ``target``, mode 0600, by an atomic rename.

    Others may write meanwhile. Raises StoreError; ``target`` is untouched then.
    """
    check_file(source)
    with copied(source, target, history=True) as copy:
        try:
            with draft(target.parent, target.name) as partial:
                _copy_file(copy, partial)
                put(partial, copy, target)
        except OSError as error:
            raise StoreError(
                f"{target}: the backup cannot be written: {error.strerror}",
                hint="the file that was there is untouched",
            ) from None


def restore(file: Path, store: Path) -> Path | None:
    """Put a backup in the store's place; return where the old store is kept, None without one.

    Raises InputError for a file that is no store, PublishedCopyError where the place is a published
    copy's, and StoreError; the store is untouched then.
    """
    check_file(store)
    check(file)
    _check_place(store)
    if store.exists() and store.samefile(file):
        raise InputError(f"{file} is the store itself")
    moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}"
    former = store.with_name(f"{store.name}.before-{moment}")
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with draft(store.parent, store.name) as partial:
            _copy_file(file, partial)
            _copy_mode_and_owner(store, partial)
            _to_live(partial)
            check_copy(partial, store)
            with ExitStack() as stack:
                stack.callback(_release, _lock(store))
                return former if _swap(store, partial, former) else None
    except sqlite3.Error as error:
        raise faults.translate(error, file) from error
    except OSError as error:
        raise StoreError(
            f"{store}: cannot be restored: {error.strerror}", hint="the store is as it was"
        ) from None


def check(file: Path) -> None:
    """Raise InputError unless a file is a whole store of this version or an older one."""
    connection: sqlite3.Connection | None = None
    try:
        with file.open("rb") as opened:
            if opened.read(16) != b"SQLite format 3\0":
                raise InputError(
                    f"{file} is not a store", hint="name what advisor store backup wrote"
                )
        uri = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True)
        applied = applied_migrations(connection)
        if not applied:
            raise InputError(f"{file} is not a store of the advisor")
        check_not_newer(applied, file)
        verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not a store, or a damaged one: {error}") from None
    finally:
        if connection is not None:
            connection.close()
    if verdict != "ok":
        raise InputError(f"{file} is damaged: {verdict.splitlines()[-1]}")
    if any(Path(f"{file}{end}").exists() for end in ("-wal", "-journal")):
        raise InputError(
            f"{file} has a log beside it: it is a store in use, not a backup",
            hint=f"advisor store backup FILE --db {file}, then restore that",
        )


def _check_place(store: Path) -> None:
    try:
        check_no_copy(store)
    except PublishedCopyError:
        raise
    except StoreError:
        return  # none, or a damaged one, which is what backups are for


def _copy_file(source: Path, partial: Path) -> None:
    """Copy into a draft, which only its owner can ever open, and have it on the disk."""
    with partial.open("r+b") as file, source.open("rb") as original:
        while data := original.read(1 << 20):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _copy_mode_and_owner(store: Path, partial: Path) -> None:
    """Give a draft the mode and owner of the store it replaces."""
    with suppress(FileNotFoundError):
        status = store.stat()
        partial.chmod(status.st_mode & 0o777)
        if os.geteuid() == 0:
            os.chown(partial, status.st_uid, status.st_gid)


def _to_live(partial: Path) -> None:
    """Make a copy a store that is written to, with today's schema."""
    from advisor.store.writer import Writer

    with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
        connection.execute("PRAGMA application_id = 0")  # it may be a published copy
    Writer(partial).close()
    for end in _LOGS:
        Path(f"{partial}{end}").unlink(missing_ok=True)
    synced(partial)


def _lock(store: Path) -> sqlite3.Connection | None:
    """Keep others from writing to the old store while it goes; None where it is none."""
    if not store.exists():
        return None
    connection = sqlite3.connect(
        f"{store.absolute().as_uri()}?mode=rw", uri=True, timeout=10.0, isolation_level=None
    )
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error:  # a damaged store is what backups are for
        connection.close()
        return None
    return connection


def _release(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        connection.close()


def _swap(store: Path, partial: Path, former: Path) -> bool:
    """Keep the old store and its log by another name, put the draft there; tell if one was there.

    Killed at any point, either the old store is there with its log, or the new one; or the new one
    beside the old log, which nobody opens, and restoring again moves that log away.
    """
    had_store = store.exists()
    if had_store:
        former.hardlink_to(store)
    os.utime(partial)  # later than the old log, so that whoever comes in between is refused
    partial.replace(store)
    for end in _LOGS:
        with suppress(FileNotFoundError):
            Path(f"{store}{end}").rename(f"{former}{end}")
    synced(store.parent)
    return had_store
