"""Make a read-only copy of the store for other hosts, replaced in one step."""

from __future__ import annotations

import filecmp
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from advisor.database import DatabaseAddress
from advisor.drafts import draft
from advisor.errors import StoreError
from advisor.paths import beside
from advisor.store import faults
from advisor.store.announced import announce
from advisor.store.connection import COPY, applied_migrations, is_wal
from advisor.store.reader import Reader
from advisor.store.versions import MIGRATIONS

HISTORY = frozenset(
    {
        "decisions",
        "outcomes",
        "trials",
        "cap_trials",
        "job_histories",
        "stale_histories",
        "pruned_rows",
        "summed",
        "days",
        "day_sums",
    }
)
"""Tables that grow with the jobs and are of those who submitted them."""


def publish(source: Path, target: Path, *, history: bool = True) -> bool:
    """Put a consistent copy of the store at ``target``, mode 0644, by an atomic rename.

    The copy is made and checked beside the source and then copied over, so ``target`` may be on
    a file system that SQLite cannot lock. Without ``history``, :data:`HISTORY` is left out, and not
    read. Where the copy that is there holds the same, it only becomes as young as a new one; tell
    whether it was replaced. Raises StoreError; ``target`` is untouched then.
    """
    with copied(source, target, history=history, mark=COPY) as copy:
        try:
            if target.exists() and filecmp.cmp(copy, target, shallow=False):
                os.utime(target)
                _announce(target, copy)
                return False
            with draft(target.parent, target.name) as partial:
                shutil.copyfile(copy, partial)
                partial.chmod(0o644)
                put(partial, copy, target)
            _announce(target, copy)
        except OSError as error:
            raise StoreError(
                f"{target}: the copy cannot be written: {error.strerror}",
                hint="the copy that was there is untouched",
            ) from None
    return True


def _announce(target: Path, copy: Path) -> None:
    try:
        announce(target, copy)
    except OSError as error:
        raise StoreError(
            f"{target}: the copy is there, but cannot be announced: {error.strerror}",
            hint="daemons read it, advisor store fetch does not; publish again",
        ) from None


@contextmanager
def copied(source: Path, target: Path, *, history: bool, mark: int = 0) -> Iterator[Path]:
    """Copy the store, as it is at one moment, to a file beside it that only its owner can open.

    ``mark`` is the copy's ``application_id``. Raises StoreError, also where ``target`` is no place
    for a copy.
    """
    _check_target(source, target)
    near, is_file = beside(source), not isinstance(source, DatabaseAddress)
    workshop = near if os.access(near, os.W_OK) else Path(tempfile.gettempdir())
    try:
        draft_stack = ExitStack()
        copy = draft_stack.enter_context(draft(workshop, source.name if is_file else "published"))
    except OSError as error:
        raise StoreError(
            f"{workshop}: no copy can be made there: {error.strerror}",
            hint="nothing was changed",
        ) from None
    with draft_stack:
        with Reader(source, timeout_s=10.0) as store:
            _copy(store, copy, history, mark)
        yield copy


def _check_target(source: Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise StoreError(
            f"{target}: there is no folder {target.parent}",
            hint="make it first, or mount the file system it is on",
        )
    if target.is_dir():
        raise StoreError(f"{target} is a folder", hint=f"name the file: {target / source.name}")
    if not target.exists():
        return
    if not isinstance(source, DatabaseAddress) and source.exists() and target.samefile(source):
        raise StoreError(f"{target} is the store itself", hint="name another file")
    if target.stat().st_size and is_wal(target):
        raise StoreError(
            f"{target} is a live store, not a published copy",
            hint="publish to another path, or move that store away",
        )


def _copy(store: Reader, copy: Path, history: bool, mark: int) -> None:
    """Write the store's content to ``copy`` in rollback-journal mode, and check it."""
    try:
        whole = history and not isinstance(store.path, DatabaseAddress)
        if not whole:
            store.copy_without(() if history else HISTORY, copy)
        connection = sqlite3.connect(copy, isolation_level=None)
        try:
            if whole:
                store.copy_to(connection)
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute(f"PRAGMA application_id = {mark}")
            verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise faults.translate(error, copy.parent / store.path.name) from error
    if verdict != "ok":
        raise faults.damaged(store.path, str(verdict).splitlines()[-1])


def put(partial: Path, copy: Path, target: Path) -> None:
    """Have what was written of a checked copy take its place, if it reads back the same.

    What is read is what the file system of ``target`` has: a full or broken one may lose what was
    written without a word. Raises StoreError.
    """
    synced(partial)
    if not filecmp.cmp(copy, partial, shallow=False):
        raise _damaged_copy(target, "what reads back is not what was written")
    partial.replace(target)
    with suppress(OSError):  # some shared file systems cannot sync a folder
        synced(target.parent)


def check_copy(file: Path, target: Path) -> None:
    """Raise StoreError unless a file, to be ``target``, is a whole store of this version."""
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            applied = applied_migrations(connection) or set()
            verdict = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError) as error:
        applied, verdict = set(), str(error)
    if verdict == "ok" and applied != set(MIGRATIONS):
        verdict = "it lacks the advisor's tables"
    if verdict != "ok":
        raise _damaged_copy(target, verdict.splitlines()[-1])


def _damaged_copy(target: Path, what: str) -> StoreError:
    return StoreError(
        f"{target}: the copy is damaged: {what}",
        hint="what was there is untouched; try another disk",
    )


def synced(path: Path) -> None:
    """Have a file or folder written to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
