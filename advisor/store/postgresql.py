"""A store in PostgreSQL: a connection that behaves as SQLite's does.

psycopg comes with the extra ``hpc-advisor[postgresql]`` and is imported when a store's address asks
for it. Hosts, roles, TLS, passwords and service files are libpq's own.

Whoever changes more than a row holds an advisory lock for its transaction, in the place of SQLite's
write lock: one writer at a time, who sees what the last one wrote. Single decisions need none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from advisor.database import ANSWERS_S, SCHEMA, DatabaseAddress
from advisor.errors import AdvisorError, OlderStoreError, RefusedValueError, StoreError
from advisor.paths import beside
from advisor.store import dialect
from advisor.store.moved import check_opened
from advisor.store.port import Database
from advisor.store.versions import MIGRATIONS, check_not_newer, load_steps

if TYPE_CHECKING:
    import psycopg

_LOCK = 0x41445643
"""What writers lock ("ADVC"); see pg_advisory_xact_lock."""
_DERIVING = 0x41445644
"""What the one holds that works out what follows ("ADVD"): others would do the same work again."""
_PAGE = 500
"""Rows that are fetched at once of what is long: one by one they take twice the time."""
_CHANNEL = "advisor"
"""Where writers tell daemons that something has changed; see NOTIFY."""
_WAITS = {
    "connect_timeout": ANSWERS_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""How long a server may take to answer, and the network to carry what is sent, where the address
does not say: seconds and milliseconds, libpq's own words."""


class PostgresRow(tuple[Any, ...]):
    """A row, by number and by name."""

    __slots__ = ()
    numbers: ClassVar[Mapping[str, int]] = {}  # of each result's own class

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.numbers[key] if isinstance(key, str) else key)

    def keys(self) -> list[str]:
        """Return the names of the columns in order."""
        return list(self.numbers)


@lru_cache(1000)
def row_class(names: tuple[str, ...]) -> type[PostgresRow]:
    """Return the class of a result's rows, whose columns have these names."""
    numbers = {name: number for number, name in reversed(list(enumerate(names)))}
    ordered = {name: numbers[name] for name in dict.fromkeys(names)}
    return type("PostgresRow", (PostgresRow,), {"__slots__": (), "numbers": ordered})


def _rows_by_name(cursor: Any) -> Any:
    if cursor.description is None:
        return PostgresRow
    return row_class(tuple(column.name for column in cursor.description))


class PostgresCursor:
    """What a statement came to."""

    def __init__(self, cursor: Any, connection: PostgresConnection, numbered: bool) -> None:
        self._cursor, self._connection = cursor, connection
        self.rowcount: int = cursor.rowcount
        self.lastrowid: int | None = None
        if numbered:
            last = cursor.fetchone()
            self.lastrowid = None if last is None else int(last[0])

    def fetchone(self) -> Any:
        """Return the next row, None where there is none."""
        return self._cursor.fetchone() if self._cursor.description else None

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor if self._cursor.description else ())


class PostgresConnection:
    """A connection to the store at an address. Every method may raise StoreError.

    ``timeout_s``: to wait for another writer; ``longest_s``: what a query may take, 0 without end.
    """

    def __init__(
        self, address: DatabaseAddress, *, timeout_s: float, longest_s: float = 0.0
    ) -> None:
        self.address = address
        self.tells = False
        """Whether a commit tells others: that of a decision, which nobody waits for, does not."""
        driver = self._psycopg = _module(address)
        self._connection: psycopg.Connection[Any]
        try:
            known = driver.conninfo.conninfo_to_dict(address.url)
            waits = {name: value for name, value in _WAITS.items() if name not in known}
            self._connection = driver.connect(
                address.url,
                **waits,
                autocommit=True,
                cursor_factory=driver.ClientCursor,
                row_factory=_rows_by_name,
                application_name="advisor",
            )
            self._connection.prepare_threshold = None
            _adapt(self._connection)
            self._connection.execute(
                f"SET search_path = {SCHEMA}, pg_catalog; SET client_min_messages = warning;"
                f" SET lock_timeout = {int(timeout_s * 1000)};"
                f" SET statement_timeout = {int(longest_s * 1000)}"
            )
        except driver.Error as error:
            raise self._translated(error) from None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way."""
        return int(self._connection.info.transaction_status) in (1, 2, 3)

    @property
    def broken(self) -> bool:
        """Whether the server is gone."""
        return bool(self._connection.closed)

    def execute(self, sql: str, values: Any = (), /) -> PostgresCursor:
        """Run one statement, which is written as for SQLite."""
        if sql == "BEGIN IMMEDIATE":
            return self._begin()
        if sql == "COMMIT" and self.tells:
            sql = f"NOTIFY {_CHANNEL}; COMMIT"
        if sql.startswith("UPDATE OR IGNORE "):
            return self._update_or_ignore(sql.replace(" OR IGNORE", "", 1), values)
        if "?1" in sql:
            values = {f"p{number}": value for number, value in enumerate(values, 1)}
        text = dialect.translated(sql)
        numbered = self._inserts_number(sql)
        try:
            cursor = self._connection.execute(
                text + (" RETURNING id" if numbered else ""), _bound(values) or None
            )
        except self._psycopg.Error as error:
            raise self._translated(error) from None
        return PostgresCursor(cursor, self, numbered)

    def execute_part(self, sql: str, values: Any = (), /) -> int:
        """Run one statement inside a transaction, which goes on without it where it fails.

        Return how many rows it changed. What is sent at once takes a third of the time.
        """
        if sql.startswith("UPDATE OR IGNORE "):
            return self.execute(sql, values).rowcount
        part = f"SAVEPOINT part; {dialect.translated(sql)}; RELEASE part"
        try:
            cursor = self._connection.execute(part, _bound(values) or None)
        except self._psycopg.Error as error:
            if self.in_transaction:
                self.execute("ROLLBACK TO part")
                self.execute("RELEASE part")
            raise self._translated(error) from None
        cursor.nextset()
        return cursor.rowcount

    def executemany(self, sql: str, rows: Iterable[Any], /) -> PostgresCursor:
        """Run one statement for every row."""
        cursor = self._connection.cursor()
        try:
            cursor.executemany(dialect.translated(sql), [_bound(row) for row in rows])
        except self._psycopg.Error as error:
            raise self._translated(error) from None
        return PostgresCursor(cursor, self, False)

    def rows_of_each(self, sql: str, parameters: Iterable[Any]) -> list[list[Any]]:
        """Return the rows of one query for each of some parameters, without waiting in between."""
        text = dialect.translated(sql)
        try:
            with self._connection.pipeline():
                cursors = [self._connection.execute(text, _bound(p) or None) for p in parameters]
            return [cursor.fetchall() for cursor in cursors]
        except self._psycopg.Error as error:
            raise self._translated(error) from None

    def stream(self, sql: str) -> Iterator[Any]:
        """Yield the rows of a query, inside a transaction, without holding all of them."""
        try:
            with self._connection.cursor(name="rows") as cursor:
                cursor.itersize = _PAGE
                yield from cursor.execute(dialect.translated(sql))
        except self._psycopg.Error as error:
            raise self._translated(error) from None

    def script(self, sql: str) -> None:
        """Run statements that are PostgreSQL's own."""
        try:
            self._connection.execute(sql.encode())
        except self._psycopg.Error as error:
            raise self._translated(error) from None

    def copy_in(self, table: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> int:
        """Add rows to a table the quick way; return how many."""
        names, count = ", ".join(f'"{column}"' for column in columns), 0
        try:
            with (
                self._connection.cursor() as cursor,
                cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copy,
            ):
                for row in rows:
                    copy.write_row(list(_bound(tuple(row))))
                    count += 1
        except self._psycopg.Error as error:
            raise self._translated(error) from None
        return count

    def changes(self) -> Iterator[None]:
        """Yield at first, and whenever a writer has committed. Raises StoreError at the end."""
        try:
            self._connection.execute(f"LISTEN {_CHANNEL}".encode())
            yield
            for _ in self._connection.notifies():
                yield
        except self._psycopg.Error as error:
            raise self._translated(error) from None

    @contextmanager
    def deriving(self) -> Iterator[bool]:
        """Tell, outside of a transaction, whether nobody else works out what follows meanwhile."""
        lock = self.execute(f"SELECT pg_try_advisory_lock({_DERIVING})").fetchone()[0]
        try:
            yield bool(lock)
        finally:
            if lock:
                with suppress(StoreError):  # a server that is gone holds nothing
                    self.execute(f"SELECT pg_advisory_unlock({_DERIVING})")

    def rollback(self) -> None:
        """Undo the transaction; nothing where there is none."""
        with suppress(self._psycopg.Error):
            self._connection.rollback()

    def close(self) -> None:
        """Close the connection; harmless when done twice."""
        self._connection.close()

    def _begin(self) -> PostgresCursor:
        """Begin to write, when no other does; what follows sees all that others have written."""
        try:
            self._connection.execute("BEGIN")
            cursor = self._connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            self.tells = True
        except self._psycopg.Error as error:
            self.rollback()
            raise self._translated(error) from None
        return PostgresCursor(cursor, self, False)

    def _update_or_ignore(self, sql: str, values: Any) -> PostgresCursor:
        """Change rows inside a transaction, or none where the schema refuses that."""
        self.execute("SAVEPOINT tried")
        try:
            cursor = self.execute(sql, values)
        except RefusedValueError:
            self.execute("ROLLBACK TO tried")
            cursor = self.execute("SELECT 1 WHERE false")
        self.execute("RELEASE tried")
        return cursor

    @staticmethod
    @lru_cache(1000)
    def _inserts_number(sql: str) -> bool:
        words = sql.split(None, 3)
        return (
            words[:2] == ["INSERT", "INTO"]
            and (table := dialect.tables().get(words[2])) is not None
            and table.numbered
        )

    def _translated(self, error: psycopg.Error) -> StoreError:
        """Return the StoreError, of one line, for what psycopg reports."""
        errors, state = self._psycopg.errors, error.sqlstate or ""
        message = " ".join((error.diag.message_primary or str(error)).split())
        if isinstance(error, errors.LockNotAvailable):
            return StoreError(
                f"{self.address}: another writer holds the store", hint="try again when it is done"
            )
        if isinstance(error, errors.QueryCanceled):
            return StoreError(
                f"{self.address}: this takes too long to read",
                hint="ask for less: one application or one job",
            )
        if state.startswith(("22", "23")):
            return RefusedValueError(f"{self.address}: the store refuses a value: {message}")
        if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
            return StoreError(
                f"{self.address}: the store cannot be written or read so: {message}",
                hint="its owner grants roles: docs/admin.md, A store in PostgreSQL",
            )
        if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
            return _without_tables(self.address)
        if isinstance(error, self._psycopg.OperationalError):
            return StoreError(
                f"{self.address}: the database does not answer: {message}",
                hint="is the server up, and may this user connect? psql with the same address",
            )
        return StoreError(f"{self.address}: {message}")


def _module(address: DatabaseAddress) -> ModuleType:
    try:
        import psycopg
    except ImportError:
        raise StoreError(
            f"{address}: psycopg is not installed here", hint="install hpc-advisor[postgresql]"
        ) from None
    return psycopg


def _adapt(connection: psycopg.Connection[Any]) -> None:
    """Have values read and written as SQLite has them: truth is 0 or 1, sums of whole numbers are
    whole."""
    from psycopg.adapt import Dumper, Loader

    class Truth(Loader):
        def load(self, data: Any) -> int:
            return int(bytes(data) == b"t")

    class Number(Loader):
        def load(self, data: Any) -> int | float:
            text = bytes(data)
            return int(text) if text.lstrip(b"-").isdigit() else float(text)

    class Flag(Dumper):
        def dump(self, obj: bool) -> bytes:
            return b"1" if obj else b"0"

        def quote(self, obj: bool) -> bytes:
            return self.dump(obj)

    connection.adapters.register_loader("bool", Truth)
    connection.adapters.register_loader("numeric", Number)
    connection.adapters.register_dumper(bool, Flag)


def _bound(values: Any) -> Any:
    """Return the values of a statement; text without what PostgreSQL cannot hold: NUL, and in JSON
    also halves of characters, as names have that are no UTF-8."""
    if isinstance(values, dict):
        return {name: _stored(value) for name, value in values.items()}
    return [_stored(value) for value in values]


def _stored(value: Any) -> Any:
    if type(value) is not str:
        return value
    if "\0" in value:
        value = value.replace("\0", "?")
    if "\\u" in value and value[0] in "{[":
        value = _ESCAPES.sub(lambda escape: escape[1] or "?", value)
    return value


_ESCAPES = re.compile(
    r"(\\\\|\\u(?!0000|d[89a-f])....|\\ud[89ab]..\\ud[c-f]..)|\\u0000|\\ud[89a-f]..", re.IGNORECASE
)
"""What JSON escapes: an escaped backslash, a character, a pair of halves; NUL, or half a pair."""


def changes(address: DatabaseAddress) -> Iterator[None]:
    """Yield once somebody listens at a store, and whenever a writer has committed.

    Raises StoreError where the database does not answer, or no longer.
    """
    connection = PostgresConnection(address, timeout_s=1.0)
    try:
        yield from connection.changes()
    finally:
        connection.close()


# -- opening -----------------------------------------------------------------------------------


def open_reader(
    address: DatabaseAddress, *, timeout_s: float, longest_s: float = 0.0
) -> PostgresConnection:
    """Return a connection to a store that is there and of today's schema. Raises StoreError."""
    connection = PostgresConnection(address, timeout_s=timeout_s, longest_s=longest_s)
    try:
        _check_schema(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_writer(address: DatabaseAddress, timeout_s: float) -> PostgresConnection:
    """Return a connection that may write; make the store if need be. Raises StoreError."""
    connection = PostgresConnection(address, timeout_s=timeout_s)
    try:
        with suppress(OSError):  # who writes from here may leave something beside it
            beside(address).mkdir(parents=True, exist_ok=True)
        if _applied(connection) is None:
            make(connection)
        try:
            _check_schema(connection)
        except OlderStoreError:
            _upgrade(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def make(connection: PostgresConnection) -> None:
    """Make an empty store, unless another process has done so meanwhile: all of it or nothing."""
    inner = connection.in_transaction
    if not inner:
        connection.execute("BEGIN IMMEDIATE")
    try:
        if _applied(connection) is None:
            connection.script(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            connection.script(dialect.schema())
            connection.executemany(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
                " VALUES ('advisor', ?, CAST(now() AS text))",
                [(name,) for name in MIGRATIONS],
            )
        if not inner:
            connection.execute("COMMIT")
    except BaseException:
        if not inner:
            connection.rollback()
        raise


class MigratedDatabase:
    """What sqlite-utils' Migrations and their steps ask of a database, said to PostgreSQL.

    Steps run in the caller's transaction and make tables by ``execute``.
    """

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def __getitem__(self, table: str) -> _AppliedSteps:
        if table != "_sqlite_migrations":
            raise StoreError(
                f"{self._connection.address}: a step asks for table {table} as sqlite-utils has it",
                hint="steps of a store in PostgreSQL make and change tables by db.execute(SQL)",
            )
        return _AppliedSteps(self._connection)

    def atomic(self) -> AbstractContextManager[None]:
        """Return the transaction of one step: the caller's."""
        return nullcontext()

    def execute(self, sql: str, values: Any = ()) -> PostgresCursor | None:
        """Run one statement, which is written as for SQLite."""
        lines = (line for line in sql.splitlines() if not line.lstrip().startswith("--"))
        sql = "\n".join(lines).strip()
        if sql.startswith(("CREATE ", "ALTER ", "DROP ")):
            self._connection.script(dialect.definition(sql))
            return None
        return self._connection.execute(sql.removesuffix(";"), values)


class _AppliedSteps:
    """The table of the steps that were applied, as sqlite-utils' Migrations ask for it."""

    pks: ClassVar = ["id"]

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def exists(self) -> bool:
        """Tell that it is there: it is made with the store."""
        return True

    def rows_where(
        self, where: str, values: Sequence[str], order_by: str
    ) -> list[Mapping[str, str]]:
        """Return rows, which are numbered by their ``id``."""
        order_by = "id" if order_by == "rowid" else order_by
        sql = "SELECT name, applied_at FROM _sqlite_migrations"
        rows = self._connection.execute(f"{sql} WHERE {where} ORDER BY {order_by}", values)
        return [{"name": row[0], "applied_at": row[1]} for row in rows]

    def insert(self, row: Mapping[str, str]) -> None:
        """Note a step."""
        self._connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES (:migration_set, :name, :applied_at)",
            row,
        )


def _upgrade(connection: PostgresConnection) -> None:
    """Apply the steps that a store lacks, unless another process has done so meanwhile.

    All of them in one transaction, so that who is killed has done nothing. Others who write wait;
    daemons decide from memory.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        check_opened(connection, connection.address)
        applied = _applied(connection) or set()
        if any(name not in applied for name in MIGRATIONS):
            connection.script(dialect.FUNCTIONS)
            load_steps().migrations.apply(MigratedDatabase(connection))
            continue_numbers(connection, dialect.tables())
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def continue_numbers(connection: Database, tables: Mapping[str, dialect.SchemaTable]) -> None:
    """Have new rows of these tables get numbers behind those that are there."""
    for name, table in tables.items():
        if column := "id" if table.numbered else "rowid" if table.rowids else "":
            number = f"CAST(pg_get_serial_sequence('{name}', '{column}') AS regclass)"
            connection.execute(
                "SELECT setval(number, most) FROM"
                f" (SELECT {number} AS number, max({column}) AS most FROM {name}) AS rows"
                " WHERE most > coalesce(pg_sequence_last_value(number), 0)"
            )


def drop(connection: PostgresConnection) -> None:
    """Take a store out of its database, in the caller's transaction."""
    connection.script(f"DROP SCHEMA {SCHEMA} CASCADE")


def _applied(connection: PostgresConnection) -> set[str] | None:
    """Return the names of the applied migrations, None where there is no store."""
    known = connection.execute(f"SELECT to_regclass('{SCHEMA}._sqlite_migrations')").fetchone()
    if known[0] is None:
        return None
    rows = connection.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = 'advisor'")
    return {row[0] for row in rows}


def _check_schema(connection: PostgresConnection) -> None:
    applied = _applied(connection)
    if applied is None:
        raise _without_tables(connection.address)
    check_not_newer(applied, connection.address)
    check_opened(connection, connection.address)
    if missing := [name for name in MIGRATIONS if name not in applied]:
        raise OlderStoreError(
            f"{connection.address}: the store is of an older version"
            f" (it lacks {', '.join(missing)})",
            hint="its owner brings it up to date with advisor collect",
        )


def _without_tables(address: DatabaseAddress) -> StoreError:
    return StoreError(
        f"{address}: the database lacks the advisor's tables",
        hint="measure or import something first, or bring a store there: "
        f"advisor store move --to {address}",
    )


def process_owns(address: DatabaseAddress) -> bool:
    """Tell whether this process acts for the site's admin: as root or as whoever owns the tables.

    Raises AdvisorError where the database does not answer.
    """
    if os.geteuid() == 0:
        return True
    connection = PostgresConnection(address, timeout_s=1.0)
    try:
        row = connection.execute(
            "SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class WHERE oid ="
            f" to_regclass('{SCHEMA}.outcomes')"
        ).fetchone()
    except AdvisorError:
        return False
    finally:
        connection.close()
    return row is None or bool(row[0])
