"""The store's schema: the migrations that make it, and the text they come to.

``python -m advisor.store.schema`` prints ``db/schema.sql``.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from advisor import paths, plugins
from advisor.store.port import Database
from advisor.store.versions import MIGRATIONS, load_steps


def load_migrations() -> Any:
    """Return the sqlite-utils ``Migrations`` of db/migrations.py. Raises AdvisorError."""
    return load_steps().migrations


def apply_migrations(connection: sqlite3.Connection) -> None:
    """Apply what is pending. Inside the caller's transaction, so all of it or nothing."""
    load_migrations().apply(_database(connection))


def apply_added(connection: Database) -> None:
    """Apply what is pending of the tables that packages add, in the caller's transaction.

    They are entry points of the group ``advisor.migrations``: sqlite-utils ``Migrations`` with a
    name of their own, whose steps make tables by ``db.execute``, so that PostgreSQL has them, too.
    Whoever writes such tables asks for them: no other writer waits for that, or fails for a
    package.
    """
    for name in plugins.names("migrations"):
        plugins.load("migrations", name).apply(_database(connection))


def _database(connection: Database) -> Any:
    if not isinstance(connection, sqlite3.Connection):
        from advisor.store.postgresql import MigratedDatabase, PostgresConnection

        assert isinstance(connection, PostgresConnection)
        return MigratedDatabase(connection)
    with _without_modules("numpy", "pandas"):
        from sqlite_utils import Database as File

    return File(connection, recursive_triggers=False, execute_plugins=False)


def make_from_text(path: Path) -> None:
    """Make an empty store from ``db/schema.sql``, for an example that is thrown away.

    It is what the migrations come to, in a tenth of their time: sqlite-utils is not imported.
    """
    text = paths.share("db/schema.sql").read_text(encoding="utf-8")
    row = (
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('advisor', ?, ?)"
    )
    applied_at = datetime.now(UTC).isoformat()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"PRAGMA journal_mode = WAL; BEGIN; {text}")
        connection.executemany(row, [(name, applied_at) for name in MIGRATIONS])
        connection.execute("COMMIT")


@contextmanager
def _without_modules(*names: str) -> Iterator[None]:
    """Keep what is imported here from importing more: sqlite-utils goes without, too.

    It would import pandas, half a second of processor time, only to know the types of its values.
    """
    kept_out = [name for name in names if name not in sys.modules]
    cast(dict[str, Any], sys.modules).update(dict.fromkeys(kept_out))
    try:
        yield
    finally:
        for name in kept_out:
            del sys.modules[name]


def schema_sql() -> str:
    """Return the schema as SQL text, as the migrations make it."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.execute("BEGIN")
        apply_migrations(connection)
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        ).fetchall()
    finally:
        connection.close()
    head = "-- Generated from db/migrations.py: python -m advisor.store.schema > db/schema.sql\n"
    return head + "".join(f"\n{row[0]};\n" for row in rows)


if __name__ == "__main__":
    sys.stdout.write(schema_sql())
