"""Turn SQLite's errors into one clear StoreError that names the file and what to do."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from advisor.drafts import MENDED, NO_SPACE, why_no_file
from advisor.errors import StoreError

_FILES = 3
"""A store that is written to, its log and the log's index: what could not open one may have removed
its own file by now, and left room for that."""
_WAL_WRITE_LOCK_BYTE = 120
"""Where the write lock of a WAL store lies in its -shm file (SQLite, "WAL-mode file format")."""


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the StoreError for what SQLite reports of the store at ``path``."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return busy(path)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(path, str(error))
    if why := _refused_by_its_file_system(name, path.parent):
        return StoreError(
            f"{path}: {why}, nothing was changed", hint=MENDED[why].format(path.parent)
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreError(
            f"{path}: the store cannot be written here",
            hint="run this as the store's owner, or name a store of your own with --db",
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreError(
            f"{path}: the store cannot be opened",
            hint=f"check the permissions of the file and of {path.parent}",
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"{path}: reading or writing failed ({error}), nothing was changed",
            hint="check the disk, its quota and the limit on file sizes",
        )
    if name.startswith("SQLITE_INTERRUPT"):
        return StoreError(
            f"{path}: this takes too long to read", hint="ask for less: one application or one job"
        )
    if name.startswith("SQLITE_CONSTRAINT"):
        return StoreError(f"{path}: the store refuses a value: {error}")
    return StoreError(f"{path}: {error}")


def damaged(path: Path, what: str) -> StoreError:
    """Return the error for a file that is no store, or no longer one."""
    return StoreError(
        f"{path}: the store is damaged or no advisor store ({what})",
        hint="put back a backup or a published copy with advisor store restore, or move the file "
        "away to start an empty one",
    )


def busy(path: Path) -> StoreError:
    """Return the error for a store that another writer holds, with its process if known."""
    holder = _holder(path)
    who = f"process {holder}" if holder else "another writer"
    return StoreError(f"{path}: {who} holds the store", hint="try again when it is done")


def _refused_by_its_file_system(name: str, folder: Path) -> str:
    """Return why a folder's file system did not let SQLite write, "" where it has no part in it."""
    if name == "SQLITE_FULL":
        return why_no_file(folder) or NO_SPACE
    if name.startswith("SQLITE_IOERR"):
        return why_no_file(folder)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):  # permissions, mostly
        why = why_no_file(folder, _FILES)
        return why if why != NO_SPACE else ""
    return ""


def _holder(path: Path) -> int | None:
    """Return the process that holds the write lock, from /proc/locks (this host only)."""
    try:
        status = Path(f"{path}-shm").stat()
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks.splitlines():
        # 1: POSIX ADVISORY WRITE 4711 08:02:131 120 120
        fields = line.split()
        if (
            len(fields) == 8
            and fields[1] == "POSIX"
            and fields[3] == "WRITE"
            and fields[5] == device
            and fields[6].isdecimal()
            and fields[7].isdecimal()
            and int(fields[6]) <= _WAL_WRITE_LOCK_BYTE <= int(fields[7])
            and int(fields[4]) not in (os.getpid(), 0, -1)
        ):
            return int(fields[4])
    return None
