"""Move a store between a file and PostgreSQL: all of it at one moment, or nothing.

It ends with the mark that the old store gets (:mod:`advisor.store.moved`). Until then the old one
is the store, from then on the new one, whenever the mover is killed; done again, it goes on there.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

from advisor.database import DatabaseAddress
from advisor.drafts import draft
from advisor.errors import MovedStoreError, RefusedError, StoreError
from advisor.paths import share
from advisor.store import dialect, faults, follow, moved
from advisor.store import rows as _rows
from advisor.store.port import Database
from advisor.store.reader import Reader
from advisor.store.schema import apply_added
from advisor.store.table_rows import fill, table_rows, tables
from advisor.store.writer import Writer

_MIGRATIONS = ("_sqlite_migrations",)


class Moved(NamedTuple):
    """How many rows of each table were moved, and the tables that stayed.

    No rows where an earlier mover had done it.
    """

    rows: dict[str, int]
    left: tuple[str, ...]


def move(source: Path, target: Path, *, away: bool = False) -> Moved:
    """Copy a store to an empty place of the other kind; ``away``: who opens it is sent there.

    Nobody writes to either meanwhile. Rows of every table are counted on both sides before the copy
    counts. What a killed mover of the same store left in the target is replaced. Raises
    RefusedError where it holds a store, StoreError on any other trouble.
    """
    if isinstance(source, DatabaseAddress) == isinstance(target, DatabaseAddress):
        raise RefusedError(
            f"{source} and {target} are stores of one kind",
            hint="a file is copied by advisor store backup, a database by pg_dump",
        )
    try:
        return _move(source, target, secrets.token_hex(8) if away else "")
    except MovedStoreError as error:
        if not away or error.target != str(target.absolute()):
            raise
        follow.follow(error)
        return Moved({}, ())


def _move(source: Path, target: Path, number: str) -> Moved:
    Reader(source).close()  # none is made where there is none
    at = _rows.now()
    with Writer(source) as writer, writer.transaction() as db:
        if isinstance(source, DatabaseAddress):  # who writes a decision holds no other lock
            names = ", ".join(f'"{name}"' for name in _moved_tables(db))
            db.execute(f"LOCK TABLE {names} IN SHARE MODE")
        if isinstance(target, DatabaseAddress):
            copied = _into_database(db, source, target, number, at)
        else:
            copied = _into_file(db, source, target, number, at)
        if number:
            moved.mark_away(db, number, target, at)
    if number:
        follow.arrive(target, number)
    return copied


def _into_database(
    source: Database, place: Path, address: DatabaseAddress, number: str, at: str
) -> Moved:
    from advisor.store import postgresql

    with closing(postgresql.PostgresConnection(address, timeout_s=10.0)) as db:
        db.execute("BEGIN IMMEDIATE")
        postgresql.make(db)
        if moved.arrives_from(db, place):
            postgresql.drop(db)
            postgresql.make(db)
        _check_empty(db, address)
        with_rows = _moved_tables(source)
        _add_tables(db, with_rows)
        for name, table in with_rows.items():
            db.copy_in(name, table.stored, table_rows(source, name, table))
        postgresql.continue_numbers(db, with_rows)
        rows = _compare(source, db, address, with_rows)
        if number:
            moved.mark_arriving(db, number, place, at)
        db.execute("COMMIT")
    return Moved(rows, _left(source, with_rows))


def _into_file(source: Database, place: Path, target: Path, number: str, at: str) -> Moved:
    try:
        if _is_remains(target, place):
            target.unlink()
        if target.exists():
            raise RefusedError(
                f"{target}: there is a file already", hint="move it away, or name another one"
            )
        with draft(target.parent, target.name) as partial:
            with_rows = _moved_tables(source)
            rows = _fill(source, partial, target, with_rows)
            if number:
                with closing(sqlite3.connect(partial)) as copy, copy:
                    moved.mark_arriving(copy, number, place, at)
            target.hardlink_to(partial)
        _sync(target.parent)
    except OSError as error:
        raise StoreError(f"{target}: the store cannot be made: {error.strerror}") from None
    except sqlite3.Error as error:
        raise faults.translate(error, target) from error
    return Moved(rows, _left(source, with_rows))


def _fill(
    source: Database, partial: Path, target: Path, with_rows: Mapping[str, dialect.SchemaTable]
) -> dict[str, int]:
    with Writer(partial) as copy, copy.transaction() as db:
        _add_tables(db, with_rows)
        fill(source, db, with_rows)
        return _compare(source, db, target, with_rows)


def _moved_tables(source: Database) -> dict[str, dialect.SchemaTable]:
    """Return the tables whose rows are moved: the schema's, and what packages added to them."""
    there = set(_table_names(source))
    added = {name: table for name, table in added_tables().items() if name in there}
    return tables(_MIGRATIONS) | added


@cache
def added_tables() -> dict[str, dialect.SchemaTable]:
    """Return the tables that the packages which are installed here add to the schema's."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(share("db/schema.sql").read_text(encoding="utf-8"))
        apply_added(db)
        tables_with_added = dialect.tables_of(db)
    return {n: t for n, t in tables_with_added.items() if n not in dialect.tables()}


def _add_tables(target: Database, with_rows: Mapping[str, dialect.SchemaTable]) -> None:
    """Make the tables of packages, where some are moved."""
    if not with_rows.keys() <= dialect.tables().keys():
        apply_added(target)


def _left(source: Database, with_rows: Mapping[str, dialect.SchemaTable]) -> tuple[str, ...]:
    """Return the tables of packages that are not installed here."""
    known = {*with_rows, *_MIGRATIONS}
    return tuple(sorted(name for name in _table_names(source) if name not in known))


def _table_names(db: Database) -> list[str]:
    made = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [row[0] for row in db.execute(made).fetchall()]


def _is_remains(target: Path, source: Path) -> bool:
    """Tell whether a file is what a killed mover of a store left."""
    if not target.is_file():
        return False
    uri = f"{target.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as file:
            return moved.arrives_from(file, source)
    except sqlite3.Error:  # whatever it is
        return False


def _sync(folder: Path) -> None:
    """Have a folder's names on the disk before the other store says that it went there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_empty(db: Database, target: Path) -> None:
    for name in tables(_MIGRATIONS):
        if db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None:
            raise RefusedError(
                f"{target}: there is a store already",
                hint="name another database, or drop its schema: DROP SCHEMA advisor CASCADE",
            )


def _compare(
    source: Database, copy: Database, target: Path, names: Iterable[str]
) -> dict[str, int]:
    """Return how many rows each table has. Raises StoreError where the two differ."""
    counts = {}
    for name in names:
        sql = f"SELECT count(*) FROM {name}"
        counts[name], copied = (db.execute(sql).fetchone()[0] for db in (source, copy))
        if counts[name] != copied:
            raise StoreError(
                f"{target}: {copied} rows of {counts[name]} in {name} were copied; nothing is kept"
            )
    return counts
