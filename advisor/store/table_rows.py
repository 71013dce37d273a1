"""Copy a store's rows table by table, whichever database has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from advisor.store import dialect
from advisor.store.port import Database, each_row

_LAST = ("days",)
"""Tables that others' triggers empty."""


def tables(left_out: Collection[str] = ()) -> dict[str, dialect.SchemaTable]:
    """Return the tables of the schema in the order in which they are filled, but for some."""
    by_name = {n: t for n, t in dialect.tables().items() if n not in left_out}
    return {name: by_name[name] for name in sorted(by_name, key=lambda name: name in _LAST)}


def table_rows(db: Database, name: str, table: dialect.SchemaTable) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a table in the order they were stored, where that is known."""
    columns = ", ".join(f'"{column}"' for column in table.stored)
    order = "id" if table.numbered else "rowid" if table.rowids else ", ".join(table.key)
    yield from map(tuple, each_row(db, f"SELECT {columns} FROM {name} ORDER BY {order}"))


def fill(source: Database, copy: Database, filled: Mapping[str, dialect.SchemaTable]) -> None:
    """Copy all rows of these tables into empty ones of the same names."""
    for name, table in filled.items():
        columns = ", ".join(f'"{column}"' for column in table.stored)
        marks = ", ".join("?" * len(table.stored))
        sql = f"INSERT INTO {name} ({columns}) VALUES ({marks})"
        copy.executemany(sql, table_rows(source, name, table))
