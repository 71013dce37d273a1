"""Tell whether the write-ahead log beside a store was written for that very file.

SQLite replays a ``-wal`` file into whatever database lies beside it. After a crash that is what
is wanted. Where somebody has put a backup into the store's place meanwhile, it destroys the
backup: pages of the one are written into the other. SQLite keeps nothing that tells the two
cases apart, but time and content do:

- The database file is only changed by a checkpoint, and the ``-wal`` by every commit. A database
  unchanged since the last commit is the one the log was written for.
- A checkpoint copies pages out of the log in the order of their numbers. So if a checkpoint was
  the last to change the database, the lowest page of all that is logged up to some commit stands
  in the database as the log has it; or, where a reader held it back, of those not logged later.
- The kernel notes the time of a write before it copies anything, and a process that is killed in
  between leaves its database newer and the same. SQLite's index of the log, ``-shm``, then says
  that a checkpoint has begun and not ended; it begins right after a commit.

A database that changed later than its log, and not by a checkpoint, was put there by somebody.
One that changed later than now says that the clock was set back, and nothing else: times prove
nothing until it has caught up.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from advisor.errors import StoreError

_MAGIC = (0x377F0682, 0x377F0683)
"""First word of a write-ahead log, by the byte order of its checksums (SQLite's WAL format)."""
_HEADER = struct.Struct(">8I")
"""Magic, version, page size, checkpoint number, two salts, two checksums (SQLite's WAL format)."""

_FRAME = struct.Struct(">4I8x")
"""Page number, database size after a commit (else 0), two salts, two checksums."""

_INDEX = struct.Struct("=32x8s56xI28xI")
"""Salts; how many frames a checkpoint has copied, and began to copy (SQLite's wal-index)."""

_BEGUN_NS = 10 * 10**9
"""So long after the last commit one that was killed may have begun: the log is synced first."""

_LOOKS, _PAUSE_S = 5, 0.05
"""A checkpoint that is under way may look like a change by somebody for a moment."""


def check(path: Path, database: int) -> None:
    """Raise StoreError when the log beside the store at ``path`` belongs to another file.

    ``database`` is a descriptor of the store. Nothing is changed.
    """
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        if belongs(path, database):
            return
    raise refusal(path)


def has_log(path: Path) -> bool:
    """Tell whether a log with something in it lies beside the store."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except OSError:
        return False


def refusal(path: Path) -> StoreError:
    """Return the error for a store that must not be opened with the log beside it."""
    return StoreError(
        f"{path} was put there beside {path.name}-wal, the log of an earlier file, "
        "which would be written into it",
        hint=f"stop the daemon, then move {path.name}-wal and {path.name}-shm away; "
        f"only if both were restored together: touch {path}-wal",
    )


def belongs(path: Path, database: int) -> bool:
    """Tell whether the log beside the store was written for it, or there is none."""
    try:
        log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True  # none; one that cannot be read cannot be replayed either
    try:
        changed, logged = os.fstat(database).st_ctime_ns, os.fstat(log).st_ctime_ns
        if changed <= logged or changed > time.time_ns():
            return True
        return _checkpointed(log, database) or (
            changed - logged < _BEGUN_NS and _begun(path, os.pread(log, _HEADER.size, 0))
        )
    finally:
        os.close(log)  # SQLite holds no locks on it


def _checkpointed(log: int, database: int) -> bool:
    """Tell whether a checkpoint of this log may have been the last to change the database."""
    header = os.pread(log, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return True
    magic, _, size, _, *salts, _, _ = _HEADER.unpack(header)
    if magic not in _MAGIC or not 512 <= size <= 65536:
        return True  # SQLite does not replay it
    nothing = True
    for page, offset in _lowest_by_commit(log, size, tuple(salts)):
        nothing = False
        if os.pread(database, size, (page - 1) * size) == os.pread(log, size, offset):
            return True
    return nothing


_indexes: dict[tuple[int, int], int] = {}
"""Descriptors of logs' indexes by device and inode, never closed: SQLite would lose its locks."""


def _begun(path: Path, header: bytes) -> bool:
    """Tell whether a checkpoint of the log with this header has begun and was not ended."""
    try:
        status = Path(f"{path}-shm").stat()
        key = status.st_dev, status.st_ino
        if key not in _indexes:
            _indexes[key] = os.open(f"{path}-shm", os.O_RDONLY | os.O_CLOEXEC)
        salts, copied, begun = _INDEX.unpack(os.pread(_indexes[key], _INDEX.size, 0))
    except (OSError, struct.error):
        return False
    return bool(salts == header[16:24] and copied < begun)


def _lowest_by_commit(log: int, size: int, salts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield for each commit the lowest page logged so far and where its last copy lies.

    Then the same of the pages that are not logged again later: where a reader holds a checkpoint
    back, it copies only those.
    """
    yield from _lowest(_frames(log, size, salts))
    frames = list(_frames(log, size, salts))
    while frames and not frames[-1][2]:
        frames.pop()  # of no commit
    last = {page: place for page, place, _ in frames}
    yield from _lowest((page * (last[page] == place), place, end) for page, place, end in frames)


def _lowest(frames: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield for each commit the lowest page so far, 0 being none, and where its copy lies."""
    lowest, lowest_offset, last_yielded = 0, 0, (0, 0)
    for page, offset, commit in frames:
        if page and (not lowest or page <= lowest):
            lowest, lowest_offset = page, offset
        if commit and (lowest, lowest_offset) != last_yielded:
            last_yielded = lowest, lowest_offset
            yield last_yielded


def _frames(log: int, size: int, salts: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield of each frame its page, where the page's copy lies, and whether it ends a commit."""
    place = _HEADER.size
    while len(frame := os.pread(log, _FRAME.size, place)) == _FRAME.size:
        page, commit, *frame_salts = _FRAME.unpack(frame)
        if tuple(frame_salts) != salts:
            return
        yield page, place + _FRAME.size, commit
        place += _FRAME.size + size
