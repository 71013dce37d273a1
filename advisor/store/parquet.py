"""History in Parquet files, asked by DuckDB in the store's own SQL.

A folder has a file for each table and month, ``outcomes/month=2026-01/rows.parquet``, and
``history.json``, which says what it is. Rows are as the store has them, in the order of their
time; ``rowid`` numbers them over all months. DuckDB comes with the extra ``hpc-advisor[history]``
and is imported when a folder is opened.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import StoreError
from advisor.paths import share
from advisor.store.port import ResultRow
from advisor.store.postgresql import row_class
from advisor.store.reader import Reader

if TYPE_CHECKING:
    import duckdb

SCHEMA = "advisor/history/1"
MARK = "history.json"
"""The file that says that a folder is a history."""
FILE = "rows.parquet"
TIMES = {
    "decisions": "created_at",
    "outcomes": "submitted_at",
    "observations": "created_at",
    "day_sums": "day",
    "days": "day",
}
"""The tables of a history, and the column that a row's month is taken from."""
ASKED = frozenset({"decisions", "outcomes", "day_sums", "days"})
"""Those that a :class:`HistoryReader` answers from the folder; all else is the store's."""
MOST_MB, THREADS = 384, 1
"""What DuckDB may take where other people work: memory, beyond which it writes to a folder in the
history's, and threads, each of which would hold records of its own."""
_SPILLED = ".spilled-"
"""How the name of such a folder begins; it is gone with its connection, unless that was killed."""
_KILLED_S = 86400.0
_MOST_PATHS = 12
"""Parts of a record that one call takes, at most."""
_TABLE = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_NAME = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR"}


def _functions() -> list[str]:
    """Return what makes SQLite's functions in DuckDB, under their names."""
    extracted, removed = ["(d, a) AS (d ->> a)"], []
    for count in range(1, _MOST_PATHS + 1):
        names = [f"p{n}" for n in range(count)]
        patch = " || ',' || ".join(f"'\"' || substr({name}, 3) || '\":null'" for name in names)
        signature = f"(d, {', '.join(names)})"
        if count > 1:
            # of all paths at once: the record is parsed once
            several = f"system.main.json_extract(d, [{', '.join(names)}])"
            extracted.append(f"{signature} AS to_json({several})::VARCHAR")
        removed.append(f"{signature} AS json_merge_patch(d, '{{' || {patch} || '}}')::VARCHAR")
    return [
        f"CREATE TEMP MACRO json_extract{', '.join(extracted)}",
        f"CREATE TEMP MACRO json_remove{', '.join(removed)}",
        "CREATE TEMP MACRO json_type(d) AS lower(system.main.json_type(d))",
        "CREATE TEMP MACRO total(x) AS coalesce(sum(x)::DOUBLE, 0.0)",
        "CREATE TEMP MACRO strftime(form, moment, later) AS system.main.strftime("
        "try_cast(moment AS TIMESTAMP) + try_cast(later AS INTERVAL), form)",
    ]


@cache
def columns() -> dict[str, dict[str, str]]:
    """Return the columns of each table with DuckDB's types, as the store's schema has them.

    Observations have the application and workload beside the workload's number.
    """
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(share("db/schema.sql").read_text(encoding="utf-8"))
        typed_columns = {
            table: {r[1]: _TYPES[r[2]] for r in db.execute(f"PRAGMA table_info({table})")}
            for table in TIMES
        }
    typed_columns["observations"] |= {"application": "VARCHAR", "workload": "VARCHAR"}
    return typed_columns


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return DuckDB in memory, which reads and writes nothing outside of a folder."""
    try:
        import duckdb
    except ImportError:
        raise StoreError(
            f"{folder}: DuckDB, which reads and writes it, is not installed here",
            hint="pip install 'hpc-advisor[history]'",
        ) from None
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": f"{MOST_MB}MB",
            "threads": THREADS,
            "pandas_analyze_sample": "0",  # columns of Python's objects come as text
            "temp_directory": str(folder / f"{_SPILLED}{secrets.token_hex(8)}"),
        }
    )
    connection.execute(f"SET allowed_directories = [{quoted(folder)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def quoted(text: object) -> str:
    """Return text as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


def read(files: Sequence[Path]) -> str:
    """Return the SQL that reads files of one table."""
    return f"read_parquet([{', '.join(map(quoted, files))}], hive_partitioning = false)"


def check_folder(folder: Path) -> Path:
    """Return a history's folder, absolute. Raises StoreError where it is none that we know."""
    folder = folder.absolute()
    check_name(folder)
    try:
        marked = json.loads((folder / MARK).read_bytes()[:4096])
    except FileNotFoundError:
        raise StoreError(
            f"{folder}: no history is there",
            hint=f"advisor store history --to {folder} writes one",
        ) from None
    except OSError as error:
        raise StoreError(f"{folder}: the history cannot be read: {error.strerror}") from None
    except ValueError:
        marked = None
    schema = marked.get("schema") if isinstance(marked, dict) else None
    if schema != SCHEMA:
        raise StoreError(
            f"{folder / MARK}: {schema if isinstance(schema, str) else 'this'!r} is no history of"
            " this version",
            hint=f"it reads {SCHEMA}",
        )
    return folder


def check_name(folder: Path) -> None:
    """Raise StoreError for a folder whose name DuckDB would take for a pattern."""
    if set("*?[]{}") & set(str(folder)):
        raise StoreError(f"{folder}: a history's folder has none of *?[]{{}} in its name")


def month_files(folder: Path, table: str) -> dict[str, Path]:
    """Return a table's files by month, in order."""
    paths = folder.joinpath(table).glob(f"month=*/{FILE}")
    return {path.parent.name.removeprefix("month="): path for path in sorted(paths)}


def month_file(folder: Path, table: str, month: str) -> Path:
    """Return the file of a table's month."""
    return folder / table / f"month={month}" / FILE


def check_file(connection: duckdb.DuckDBPyConnection, path: Path, table: str) -> str:
    """Return what was noted in a file of a table when it was written.

    Raises StoreError where it is damaged or of another version.
    """
    name = quoted(path)
    notes = dict(run(connection, path, f"SELECT key, value FROM parquet_kv_metadata({name})"))
    rows = run(connection, path, f"SELECT name, type FROM parquet_schema({name})")
    missing = columns()[table].keys() - {row[0] for row in rows}
    if missing or notes.get(b"schema") != SCHEMA.encode():
        why = f"it lacks {', '.join(sorted(missing))}" if missing else "it is not marked as one"
        raise StoreError(
            f"{path}: this is no {table} of a history of this version: {why}",
            hint="move it away; what the store still has is written again",
        )
    mark: bytes = notes.get(b"mark", b"")
    return mark.decode("utf-8", "replace")


def run(
    connection: duckdb.DuckDBPyConnection, path: Path, sql: str, values: object = None
) -> list[Any]:
    """Return the rows of a statement. Raises StoreError, which names ``path``, in one line."""
    import duckdb

    try:
        return connection.execute(sql, values).fetchall()
    except (duckdb.Error, UnicodeDecodeError, MemoryError) as error:
        raise translated(error, path) from None


def rows(
    connection: duckdb.DuckDBPyConnection, path: Path, sql: str, values: object = None
) -> list[ResultRow]:
    """Return the rows of a statement, by number and by name. Raises StoreError as :func:`run`."""
    plain_rows = run(connection, path, sql, values)
    of_names = row_class(tuple(column[0] for column in connection.description or ()))
    return list(map(of_names, plain_rows))


@contextmanager
def texts(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    rows: Sequence[ResultRow | Mapping[str, object]],
    columns: Iterable[str],
) -> Iterator[None]:
    """Let a connection see columns of some rows, as text, under a name."""
    import numpy as np

    table = {
        column: np.fromiter((row[column] for row in rows), dtype=object, count=len(rows))
        for column in columns
    }
    connection.register(name, table)
    try:
        yield
    finally:
        connection.unregister(name)


def clear_spilled(folder: Path) -> None:
    """Remove what DuckDB left in a history's folder where it was killed, more than a day ago."""
    for path in folder.glob(f"{_SPILLED}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _KILLED_S:
                shutil.rmtree(path)


def translated(error: BaseException, path: Path) -> StoreError:
    """Return the StoreError, of one line, for what DuckDB reports."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return StoreError(
        f"{path}: the history cannot be used: {line[:300]}",
        hint="if advisor store history is writing it, ask again; else put the file back or remove "
        "it: what the store still has is written again",
    )


class HistoryReader(Reader):
    """A store whose decisions and outcomes are those of a history's folder.

    Models, policy, site and trials are the store's, as they are today.
    """

    page = 50_000

    def __init__(self, path: Path | str, folder: Path) -> None:
        self.folder = check_folder(folder)
        self._history = connect(self.folder)
        try:
            self._make_views()
            super().__init__(path)
        except BaseException:
            self._history.close()
            raise

    def close(self) -> None:
        """Close both; harmless when done twice."""
        self._history.close()
        super().close()

    def _make_views(self) -> None:
        for sql in _functions():
            self._history.execute(sql)
        for table in sorted(ASKED):
            files = month_files(self.folder, table)
            for path in files.values():
                check_file(self._history, path, table)
            if table == "outcomes":
                self.whole_months = frozenset(files)
            types = {"rowid": "BIGINT", **columns()[table]}
            source = read(list(files.values()))
            if not files:
                nulls = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in types.items())
                source = f"(SELECT {nulls} WHERE false)"
            names = ", ".join(f'"{name}"' for name in types)
            run(self._history, self.folder, f"CREATE VIEW {table} AS SELECT {names} FROM {source}")

    def rows(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> list[ResultRow]:
        """Return all rows of one query, from where its tables are. Raises StoreError."""
        if ASKED.isdisjoint(_TABLE.findall(sql)):
            return super().rows(sql, parameters)
        if isinstance(parameters, Mapping):
            parameters = {name: parameters[name] for name in _NAME.findall(sql)}
            sql = _NAME.sub(r"$\1", sql)
        return rows(self._history, self.folder, sql, parameters)


def reader_of(path: Path, folder: Path | None) -> Reader:
    """Return what reads a store, with its jobs from a history's folder where one is named."""
    if folder is None:
        return Reader(path)
    from advisor.mounts import check_answers

    check_answers(folder)
    return HistoryReader(path, folder)
