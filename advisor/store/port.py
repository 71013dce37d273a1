"""What the store asks of its database: a connection as SQLite's own is, and another's made alike.

All SQL of the store is written once, in what SQLite understands; :mod:`advisor.store.dialect` says
the rest of it to PostgreSQL. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class ResultRow(Protocol):
    """A row of a result: values in order, by number and by name."""

    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def keys(self) -> Iterable[str]:
        """Return the names of the columns in order."""


class Cursor(Protocol):
    """What a statement came to."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    @property
    def lastrowid(self) -> int | None:
        """The number of the row that it inserted."""

    def fetchone(self) -> Any:
        """Return the next row, None where there is none."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection, in no transaction until ``BEGIN`` is executed."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way."""

    def execute(self, sql: str, values: Any = ..., /) -> Cursor:
        """Run one statement."""

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Cursor:
        """Run one statement for every row."""

    def rollback(self) -> None:
        """Undo the transaction; nothing where there is none."""

    def close(self) -> None:
        """Close the connection."""


def execute_part(db: Database, sql: str, values: Any = ()) -> int:
    """Run one statement inside a transaction, which goes on without it where it fails.

    Return how many rows it changed. SQLite undoes a statement that fails by itself.
    """
    part = getattr(db, "execute_part", None)
    changed: int = part(sql, values) if part else db.execute(sql, values).rowcount
    return changed


def each_row(db: Database, sql: str) -> Iterator[Any]:
    """Yield the rows of a query without holding all of them, as SQLite does."""
    stream = getattr(db, "stream", None)
    yield from stream(sql) if stream else db.execute(sql)
