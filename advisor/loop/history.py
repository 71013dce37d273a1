"""Write the store's decisions, outcomes and measured runs as Parquet files, one a month and table.

A month whose rows have not changed is left. In any other what the store has is joined with what the
file had and the store has no longer; the file is replaced in one step. The sums of a month's days
are worked out from its file, so that reports over years need not read each job. They are taken
away before the outcomes change and written last: what is killed in between is only slower.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.drafts import draft, write_whole
from advisor.errors import StoreError
from advisor.loop.day_sums import rows_of_day
from advisor.loop.reported_jobs import END
from advisor.store import parquet
from advisor.store.publish import synced
from advisor.store.reader import Reader

if TYPE_CHECKING:
    import duckdb

_MONTH = re.compile(r"\d{4}-\d\d")
_OTHER = "other"
"""The month of what has no time."""
_ROWS = "decisions", "outcomes", "observations"
_SUMS = "day_sums", "days"
_KEYS = {
    "decisions": ("id",),
    "outcomes": ("job_id", "scheduler", "cluster", "submitted_at"),
    "observations": ("id", "created_at"),
}
_NUMBERS = {"decisions": "rowid", "outcomes": "rowid", "observations": "id"}
_CHANGES = {
    "decisions": "sum(t.job_id <> '')",
    "outcomes": "max(t.collected_at)",
    "observations": "sum(t.scope = 'all')",
}
"""What differs, beside how many rows there are, their times and numbers, where one changed."""
_COUNTED = {"number": "BIGINT"}
_MOST_ROWS = 10**10
"""More than a month has; the numbers of its rows follow the month's own times this."""
_PAGE = 2000
_GROUP = 20_480
"""Rows of a group, the least that DuckDB reads of a file."""


@dataclass(slots=True)
class WrittenHistory:
    """The months that were written, how many rows their files have, and the numbers of the last
    rows that the store had then."""

    months: set[str] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ROWS, 0))
    last: dict[str, int] = field(default_factory=dict)


def write_history(reader: Reader, folder: Path) -> WrittenHistory:
    """Bring a folder in step with the store; nothing that it holds is lost. Raises StoreError."""
    folder = folder.absolute()
    parquet.check_name(folder)
    written = WrittenHistory()
    try:
        with _locked(folder), reader.one_moment():
            connection = parquet.connect(folder)
            try:
                for table in _ROWS:
                    _write_table(connection, reader, folder, table, written)
            finally:
                connection.close()
            _write_sums(reader, folder)
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: the history cannot be written: {error.strerror}",
            hint="what was there is untouched; nothing was removed from the store",
        ) from None
    return written


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make the folder, if need be, and keep others from writing to it meanwhile."""
    mark = folder / parquet.MARK
    if not mark.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(not path.name.startswith(".") for path in folder.iterdir()):
            raise StoreError(
                f"{folder}: this folder holds something else than a history",
                hint="name a new or an empty folder",
            )
        write_whole(mark, json.dumps({"schema": parquet.SCHEMA}) + "\n", 0o600)
    parquet.check_folder(folder)
    with mark.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{folder}: another advisor writes this history", hint="try again when it is done"
            ) from None
        yield


def _write_table(
    connection: duckdb.DuckDBPyConnection,
    reader: Reader,
    folder: Path,
    table: str,
    written: WrittenHistory,
) -> None:
    former = parquet.month_files(folder, table)
    at, number = parquet.TIMES[table], _NUMBERS[table]
    begins: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for begin, *state in reader.rows(
        f"SELECT substr(t.{at}, 1, 7) AS month, count(*), max(t.{number}), min(t.{at}),"
        f" max(t.{at}), {_CHANGES[table]}"
        f" FROM {table} AS t GROUP BY 1 ORDER BY 1"
    ):
        begins[begin if _MONTH.fullmatch(begin) else _OTHER].append((begin, *state))
        written.last[table] = max(written.last.get(table, 0), int(state[1]))
    for month, parts in begins.items():
        mark, path = json.dumps(parts), former.get(month)
        if path is not None and parquet.check_file(connection, path, table) == mark:
            continue
        if table == "outcomes":
            for name in _SUMS:
                parquet.month_file(folder, name, month).unlink(missing_ok=True)
        rows = (row for begin, *_ in parts for row in _stored(reader, table, str(begin)))
        written.rows[table] += _write(connection, folder, table, month, rows, mark)
        written.months.add(month)


def _stored(reader: Reader, table: str, begin: str) -> Iterator[dict[str, object]]:
    """Yield a table's rows whose time begins with some text, in the order of their time."""
    at, number = parquet.TIMES[table], _NUMBERS[table]
    names = {name: f"t.{name}" for name in parquet.columns()[table]}
    source = f"{table} AS t"
    if table == "observations":
        names |= {"application": "w.application", "workload": "w.name"}
        source += " JOIN workloads AS w ON w.id = t.workload_id"
    values = ", ".join(f"{value} AS {name}" for name, value in names.items())
    sql = (
        f"SELECT {values}, t.{number} AS number FROM {source}"
        f" WHERE (t.{at}, t.{number}) > (?, ?) AND t.{at} < ? AND substr(t.{at}, 1, 7) = ?"
        f" ORDER BY t.{at}, t.{number} LIMIT {_PAGE}"
    )
    last: tuple[str, int] = begin, -1
    while rows := reader.rows(sql, (*last, begin + END, begin)):
        yield from (dict(zip(row.keys(), row, strict=True)) for row in rows)
        last = rows[-1][at], rows[-1]["number"]


def _write(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    table: str,
    month: str,
    rows: Iterable[Mapping[str, object]],
    mark: str = "",
) -> int:
    """Write a month's file of a table; return how many rows it has.

    Rows with a key are joined with those of the file that is there.
    """
    path = parquet.month_file(folder, table, month)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    columns, keys = parquet.columns()[table], _KEYS.get(table)
    types = ", ".join(f"{n}: {parquet.quoted(k)}" for n, k in (columns | _COUNTED).items())
    names = ", ".join(f'"{name}"' for name in columns)
    order, base = f"{parquet.TIMES[table]}, number", _base(month)
    with draft(path.parent, "rows.json") as lines, draft(path.parent, path.name) as new:
        with lines.open("w", encoding="ascii") as file:
            for row in rows:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
        source = (
            f"SELECT {names}, number FROM read_json({parquet.quoted(lines)},"
            f" columns = {{{types}}}, format = 'newline_delimited', compression = 'none',"
            " maximum_object_size = 67108864)"
        )
        if keys and path.exists():
            same = " AND ".join(f"new.{key} = old.{key}" for key in keys)
            source = (
                f"WITH new AS ({source}) SELECT * FROM new UNION ALL"
                f" SELECT {names}, rowid AS number FROM {parquet.read([path])} AS old"
                f" WHERE NOT EXISTS (SELECT 1 FROM new WHERE {same})"
            )
        notes = f"schema: {parquet.quoted(parquet.SCHEMA)}, mark: {parquet.quoted(mark)}"
        parquet.run(
            connection,
            path,
            f"COPY (SELECT {base} + row_number() OVER (ORDER BY {order}) AS rowid, {names}"
            f" FROM ({source}) ORDER BY rowid) TO {parquet.quoted(new)} (FORMAT parquet,"
            f" COMPRESSION zstd, ROW_GROUP_SIZE {_GROUP}, KV_METADATA {{{notes}}},"
            " USE_TMP_FILE false)",
        )
        count = f"SELECT count(*), count(rowid) FROM {parquet.read([new])}"
        written: int = parquet.run(connection, path, count)[0][0]
        synced(new)
        new.replace(path)
    synced(path.parent)
    return written


def _base(month: str) -> int:
    """Return what the numbers of a month's rows begin after."""
    return int(month.replace("-", "") if month != _OTHER else 0) * _MOST_ROWS


def _write_sums(reader: Reader, folder: Path) -> None:
    """Work the sums of the days out in each month that has none."""
    months = parquet.month_files(folder, "outcomes").keys()
    lacking = months - parquet.month_files(folder, "days").keys() - {_OTHER}
    if not lacking:
        return
    connection = parquet.connect(folder)
    try:
        with parquet.HistoryReader(reader.path, folder) as history:
            for month in sorted(lacking):
                days = history.rows(
                    "SELECT DISTINCT substr(submitted_at, 1, 10) FROM outcomes"
                    " WHERE submitted_at >= ? AND submitted_at < ? ORDER BY 1",
                    (month, month + END),
                )
                sums: list[dict[str, object]] = []
                whole: list[dict[str, object]] = []
                for (day,) in days:
                    of_day, parts = rows_of_day(history, day)
                    whole.append(of_day)
                    sums += parts
                _write(connection, folder, "day_sums", month, sums)
                _write(connection, folder, "days", month, whole)
    finally:
        connection.close()
