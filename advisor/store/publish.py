"""Make a read-only copy of the store for other hosts, replaced in one step."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from advisor.errors import StoreError
from advisor.store import faults
from advisor.store.connection import COPY, is_wal
from advisor.store.reader import Reader

_STALE_S = 3600.0
"""A draft this old is left from a publishing that was killed."""


def publish(source: Path, target: Path, *, history: bool = True) -> None:
    """Put a consistent copy of the store at ``target``, mode 0644, by an atomic rename.

    The copy is made and checked beside the source and then copied over, so ``target`` may be on
    a file system that SQLite cannot lock. Without ``history``, decisions and outcomes are left
    out. Raises StoreError; ``target`` is untouched then.
    """
    with (
        copied(source, target, history=history, mark=COPY) as copy,
        draft_of(target) as draft,
    ):
        try:
            _place(copy, draft, target)
        except OSError as error:
            raise StoreError(
                f"{target}: the copy cannot be written: {error.strerror}",
                hint="the copy that was there is untouched",
            ) from None


@contextmanager
def copied(source: Path, target: Path, *, history: bool, mark: int = 0) -> Iterator[Path]:
    """Copy the store, as it is at one moment, to a file beside it that only its owner can open.

    ``mark`` is the copy's ``application_id``. Raises StoreError, also where ``target`` is no place
    for a copy.
    """
    source, target = Path(source), Path(target)
    _check_target(source, target)
    workshop = source.parent if os.access(source.parent, os.W_OK) else Path(tempfile.gettempdir())
    with _draft(workshop, f"{source.name}.copy") as copy:
        with suppress(OSError):
            copy.touch(mode=0o600)
        with Reader(source, timeout_s=10.0) as store:
            _copy(store, copy, history, mark)
        yield copy


def draft_of(target: Path) -> AbstractContextManager[Path]:
    """Name a file beside ``target`` that takes its place when it is whole."""
    return _draft(target.parent, target.name)


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
    if source.exists() and target.samefile(source):
        raise StoreError(f"{target} is the store itself", hint="name another file")
    if target.stat().st_size and is_wal(target):
        raise StoreError(
            f"{target} is a live store, not a published copy",
            hint="publish to another path, or move that store away",
        )


def _copy(store: Reader, copy: Path, history: bool, mark: int) -> None:
    """Write the store's content to ``copy`` in rollback-journal mode, and check it."""
    try:
        made = sqlite3.connect(copy, isolation_level=None)
        try:
            store.copy_to(made)
            made.execute("PRAGMA journal_mode = DELETE")
            made.execute(f"PRAGMA application_id = {mark}")
            if not history:
                made.execute("DELETE FROM decisions")
                made.execute("DELETE FROM outcomes")
                made.execute("DELETE FROM trials")
                made.execute("VACUUM")
            verdict = made.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            made.close()
    except sqlite3.Error as error:
        raise faults.translate(error, copy.parent / store.path.name) from error
    if verdict != "ok":
        raise faults.damaged(store.path, str(verdict).splitlines()[-1])


def _place(copy: Path, draft: Path, target: Path) -> None:
    shutil.copyfile(copy, draft)
    draft.chmod(0o644)
    synced(draft)
    draft.replace(target)
    with suppress(OSError):  # some shared file systems cannot sync a folder
        synced(target.parent)


def synced(path: Path) -> None:
    """Have a file or folder written to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _draft(folder: Path, name: str) -> Iterator[Path]:
    """Name a draft in ``folder``, removed in the end together with forgotten ones."""
    for old in folder.glob(f".{name}.*.publish*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _STALE_S:
                old.unlink()
    draft = folder / f".{name}.{os.uname().nodename}.{os.getpid()}.publish"
    try:
        draft.unlink(missing_ok=True)
        yield draft
    finally:
        for end in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{draft}{end}").unlink(missing_ok=True)
