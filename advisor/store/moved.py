"""Where a store went: a mark in the one that was moved sends everybody on to the other.

The mark is a row of the table that says what was done to the store as a whole, which every opening
reads. It is committed while nobody else can write, and that commit is the move: whoever wrote
before it wrote what was copied, whoever comes after it reads the mark before the own commit. The
store that is moved to bears a mark of its own until then, so that nobody takes a copy for the
store whose mover was killed. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from advisor.errors import MovedStoreError, StoreError
from advisor.store.port import Database

_AWAY, ARRIVING = "moved-to", "arriving-from"
"""The sets of the two marks. A name is the move's own number, a space, and the other store."""
MARK = "SELECT name, applied_at FROM _sqlite_migrations WHERE migration_set = ?"


def check_here(db: Database, store: Path) -> None:
    """Raise MovedStoreError where a store was moved away.

    Asked before a commit, by who keeps the mover out until then, it keeps what is written from
    staying behind.
    """
    row = db.execute(MARK, (_AWAY,)).fetchone()
    if row is not None:
        move, _, target = row[0].partition(" ")
        raise MovedStoreError(
            f"{store}: the store was moved to {target} ({row[1][:10]})",
            hint="name that one, with ADVISOR_DB or --db",
            move=move,
            target=target,
        )


def check_opened(db: Database, store: Path) -> None:
    """Raise StoreError where a store was moved away, or a move into it did not end."""
    check_here(db, store)
    row = db.execute(MARK, (ARRIVING,)).fetchone()
    if row is not None:
        _, _, source = row[0].partition(" ")
        raise StoreError(
            f"{store}: a move from {source} into it did not end",
            hint=f"do it again: advisor store move --db {source} --to {store}",
        )


def mark_away(db: Database, move: str, target: Path, at: str) -> None:
    """Mark a store as moved, in the transaction that kept others from writing meanwhile."""
    _mark(db, _AWAY, f"{move} {target.absolute()}", at)


def mark_arriving(db: Database, move: str, source: Path, at: str) -> None:
    """Mark a store as one that a move goes into."""
    _mark(db, ARRIVING, f"{move} {source.absolute()}", at)


def arrives_from(db: Database, source: Path) -> bool:
    """Tell whether a store is what a mover of ``source`` left that was killed."""
    row = db.execute(MARK, (ARRIVING,)).fetchone()
    return row is not None and row[0].partition(" ")[2] == str(source.absolute())


def _mark(db: Database, kind: str, name: str, at: str) -> None:
    sql = "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)"
    db.execute(sql, (kind, name, at))
