"""Move a store between a file and PostgreSQL: all of it at one moment, or nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from advisor.database import DatabaseAddress
from advisor.drafts import draft
from advisor.errors import RefusedError, StoreError
from advisor.store import dialect, faults
from advisor.store.port import Database
from advisor.store.reader import Reader
from advisor.store.table_rows import fill, table_rows, tables
from advisor.store.writer import Writer

_MIGRATIONS = ("_sqlite_migrations",)


class Moved(NamedTuple):
    """How many rows of each table were moved, and the tables that stayed."""

    rows: dict[str, int]
    left: tuple[str, ...]


def move(source: Path, target: Path) -> Moved:
    """Copy a store to an empty place of the other kind; the source stays as it is.

    Nobody writes to either meanwhile. Rows of every table are counted on both sides before the copy
    counts. Raises RefusedError where the target holds a store, StoreError on any other trouble.
    """
    if isinstance(source, DatabaseAddress) == isinstance(target, DatabaseAddress):
        raise RefusedError(
            f"{source} and {target} are stores of one kind",
            hint="a file is copied by advisor store backup, a database by pg_dump",
        )
    if isinstance(target, DatabaseAddress):
        Reader(source).close()  # none is made where there is none
        with Writer(source) as writer, writer.transaction() as db:
            return _into_database(db, target)
    return _into_file(source, target)


def _into_database(source: Database, address: DatabaseAddress) -> Moved:
    from advisor.store import postgresql

    with closing(postgresql.PostgresConnection(address, timeout_s=10.0)) as db:
        db.execute("BEGIN IMMEDIATE")
        postgresql.make(db)
        _check_empty(db, address)
        rows = {}
        for name, table in tables(_MIGRATIONS):
            rows[name] = db.copy_in(name, table.stored, table_rows(source, name, table))
            number = "id" if table.numbered else "rowid" if table.rowids else ""
            if number:
                db.execute(
                    f"SELECT setval(pg_get_serial_sequence('{name}', '{number}'), max({number}))"
                    f" FROM {name}"
                )
        _compare(source, db, address)
        db.execute("COMMIT")
    known = dialect.tables()
    others = source.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return Moved(rows, tuple(sorted(row[0] for row in others if row[0] not in known)))


def _into_file(address: Path, target: Path) -> Moved:
    if target.exists():
        raise RefusedError(
            f"{target}: there is a file already", hint="move it away, or name another one"
        )
    try:
        with draft(target.parent, target.name) as partial, Writer(address) as source:
            with source.transaction() as db:
                rows = _fill(db, partial, target)
            target.hardlink_to(partial)
    except OSError as error:
        raise StoreError(f"{target}: the store cannot be made: {error.strerror}") from None
    return Moved(rows, ())


def _fill(source: Database, partial: Path, target: Path) -> dict[str, int]:
    rows = {}
    try:
        with Writer(partial) as copy, copy.transaction() as db:
            fill(source, db, _MIGRATIONS)
            rows = _compare(source, db, target)
    except sqlite3.Error as error:
        raise faults.translate(error, target) from error
    return rows


def _check_empty(db: Database, target: Path) -> None:
    for name, _ in tables(_MIGRATIONS):
        if db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None:
            raise RefusedError(
                f"{target}: there is a store already",
                hint="name another database, or drop its schema: DROP SCHEMA advisor CASCADE",
            )


def _compare(source: Database, copy: Database, target: Path) -> dict[str, int]:
    """Return how many rows each table has. Raises StoreError where the two differ."""
    counts = {}
    for name, _ in tables(_MIGRATIONS):
        sql = f"SELECT count(*) FROM {name}"
        counts[name], copied = (db.execute(sql).fetchone()[0] for db in (source, copy))
        if counts[name] != copied:
            raise StoreError(
                f"{target}: {copied} rows of {counts[name]} in {name} were copied; nothing is kept"
            )
    return counts
