"""Go on in the store that another was moved to; the marks are :mod:`advisor.store.moved`'s."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from advisor.database import DatabaseAddress, store_at
from advisor.errors import MovedStoreError
from advisor.store import faults
from advisor.store.moved import ARRIVING, MARK

_WAITS_S = 10.0
"""How long who follows waits for others that open the new store, too."""


def follow(moved: MovedStoreError) -> Path:
    """Return the store that another was moved to, fit to be opened. Raises StoreError.

    The mover may have been killed after the move and before it said so there.
    """
    target = store_at(moved.target)
    arrive(target, moved.move)
    return target


def arrive(target: Path, move: str) -> None:
    """Have everybody open the store that another was moved to. Raises StoreError."""
    sql = "DELETE FROM _sqlite_migrations WHERE migration_set = ? AND name LIKE ?"
    values = (ARRIVING, f"{move} %")
    if isinstance(target, DatabaseAddress):
        from advisor.store import postgresql

        with closing(postgresql.PostgresConnection(target, timeout_s=_WAITS_S)) as database:
            database.execute(sql, values)
        return
    uri = f"{target.absolute().as_uri()}?mode=rw"
    try:
        with closing(
            sqlite3.connect(uri, uri=True, timeout=_WAITS_S, isolation_level=None)
        ) as file:
            if file.execute(MARK, (ARRIVING,)).fetchone() is not None:
                file.execute(sql, values)
    except sqlite3.Error as error:
        raise faults.translate(error, target) from error
