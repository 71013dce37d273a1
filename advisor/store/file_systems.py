"""What reads and writes of files take on a file system of a node type. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.store import rows as _rows
from advisor.store.profiles import Bench, save_profiles
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction, insert


@dataclass(frozen=True, slots=True)
class StoredIo:
    """One operation's profile: microseconds of a block of ``block_b`` bytes, by one thread.

    ``file_system`` is its mount point, ``kind`` its type (nfs4, ext4); ``direct``: past the page
    cache; ``spread`` is half of the mean's 95 % interval over it. ``cached_us`` is the same block's
    microseconds from or into the page cache, None in profiles of earlier releases.
    """

    node_type: str
    file_system: str
    kind: str
    operation: str
    random: bool
    block_b: int
    time_per_op_us: float
    direct: bool
    spread: float
    repeats: int
    cached_us: float | None = None


_COLUMNS = tuple(StoredIo.__slots__)


def save_io(writer: StoreTransaction, bench: Bench, profiles: Sequence[StoredIo]) -> None:
    """Store a file system's profiles in place of its earlier ones on that node type.

    Raises RefusedError when the node type has profiles of another machine, StoreError.
    """
    with writer.transaction() as db:
        bench_id = save_profiles(writer, bench, [])
        for name in {p.file_system for p in profiles}:
            key = (bench.node_type, name)
            db.execute("DELETE FROM file_systems WHERE node_type = ? AND file_system = ?", key)
        for p in profiles:
            row = {name: getattr(p, name) for name in _COLUMNS}
            row["file_system"], row["kind"] = _rows.clean(p.file_system), _rows.clean(p.kind)
            insert(db, "file_systems", row | {"bench_id": bench_id})


def io_profiles(reader: Reader, node_type: str | None = None) -> list[StoredIo]:
    """Return all profiles of file systems, or one node type's."""
    where, values = ("WHERE node_type = ?", [node_type]) if node_type else ("", [])
    sql = f"SELECT {', '.join(_COLUMNS)} FROM file_systems {where} ORDER BY id"
    return [
        StoredIo(**{**dict(row), "random": bool(row["random"]), "direct": bool(row["direct"])})
        for row in reader.rows(sql, values)
    ]
