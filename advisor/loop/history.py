"""Write the store's decisions, outcomes and measured runs as Parquet files, one a month and table.

A month whose rows have not changed is left. In any other what the store has is joined with what the
file had and the store has no longer; the file is replaced in one step. The sums of a month's days
are worked out from its file, so that reports over years need not read each job. They are taken
away before the outcomes change and written last: what is killed in between is only slower. The
parts of a month that is under way stay beside its file: who is killed is gone on from there.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.drafts import draft, write_whole
from advisor.errors import StoreError
from advisor.loop.day_sums import rows_of_day
from advisor.loop.reported_jobs import END
from advisor.store import parquet
from advisor.store.port import ResultRow
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
_NUMBER = {"number": "BIGINT"}
_MOST_ROWS = 10**10
"""More than a month has; the numbers of its rows follow the month's own times this."""
_UNDER_WAY = ".parts"
"""The folder of the parts of a month that is being written, beside its file."""
_PAGE = 2000
_PART = 4096
"""Rows that are held at once, and rows of a group, the least that DuckDB reads of a file: some 20
MB."""


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
    parquet.clear_spilled(folder)
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
        path = parquet.month_file(folder, table, month)
        parts_there = _kept_parts(path, mark) if month != _OTHER else []
        last = _last_row(connection, table, parts_there)
        rows = (row for begin, *_ in parts for row in _stored(reader, table, str(begin), last))
        written.rows[table] += _write(connection, folder, table, month, rows, mark, parts_there)
        written.months.add(month)


def _kept_parts(path: Path, mark: str) -> list[Path]:
    """Return the parts of a month that somebody who was killed has written, if its rows are still
    those; else make their folder anew."""
    folder = path.parent / _UNDER_WAY
    note = folder / "mark"
    if not note.exists() or note.read_text(encoding="utf-8") != mark:
        shutil.rmtree(folder, ignore_errors=True)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        write_whole(note, mark, 0o600)
    return sorted(folder.glob("*.parquet"))


def _last_row(
    connection: duckdb.DuckDBPyConnection, table: str, parts: Sequence[Path]
) -> tuple[str, int] | None:
    """Return time and number of the last row of parts, None without any."""
    if not parts:
        return None
    at = parquet.TIMES[table]
    sql = f"SELECT {at}, number FROM {parquet.read(parts[-1:])} ORDER BY ALL DESC LIMIT 1"
    last: tuple[str, int] = parquet.run(connection, parts[-1], sql)[0]
    return last


def _stored(
    reader: Reader, table: str, begin: str, after: tuple[str, int] | None
) -> Iterator[ResultRow]:
    """Yield a table's rows whose time begins with some text, in the order of their time.

    ``after``: only those behind the row of this time and number.
    """
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
    last = after or (begin, -1)
    while rows := reader.rows(sql, (*last, begin + END, begin)):
        yield from rows
        last = rows[-1][at], rows[-1]["number"]


def _write(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    table: str,
    month: str,
    rows: Iterable[ResultRow | Mapping[str, object]],
    mark: str = "",
    parts_there: Sequence[Path] = (),
) -> int:
    """Write a month's file of a table, whose rows come in the order of their time; return how many
    rows it has.

    Rows with a key are joined with those of the file that is there. ``parts_there`` hold what
    comes before these rows.
    """
    path = parquet.month_file(folder, table, month)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = ", ".join(f'"{name}"' for name in parquet.columns()[table])
    with ExitStack() as drafts, draft(path.parent, path.name) as new:
        under_way = path.parent / _UNDER_WAY
        parts = list(parts_there)
        for part in _parts(connection, path, table, rows, drafts, bool(parts_there)):
            if under_way.is_dir():
                synced(part)
                part = part.replace(under_way / f"{len(parts):06}.parquet")
            parts.append(part)
        if table in _KEYS and path.exists() and _find_lost(connection, path, table, parts):
            joined = _joined(connection, path, table, parts)
            parts = list(_parts(connection, path, table, joined, drafts))
        notes = f"schema: {parquet.quoted(parquet.SCHEMA)}, mark: {parquet.quoted(mark)}"
        parquet.run(
            connection,
            path,
            f"COPY (SELECT {_base(month)} + row_number() OVER () AS rowid, {names}"
            f" FROM {parquet.read(parts)}) TO {parquet.quoted(new)} (FORMAT parquet,"
            f" COMPRESSION zstd, ROW_GROUP_SIZE {_PART}, KV_METADATA {{{notes}}},"
            " USE_TMP_FILE false)",
        )
        count = f"SELECT count(*), count(rowid) FROM {parquet.read([new])}"
        written: int = parquet.run(connection, path, count)[0][0]
        synced(new)
        new.replace(path)
    synced(path.parent)
    shutil.rmtree(under_way, ignore_errors=True)
    return written


def _parts(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    table: str,
    rows: Iterable[ResultRow | Mapping[str, object]],
    drafts: ExitStack,
    has_parts: bool = False,
) -> Iterator[Path]:
    """Write rows as files of a part each, so that no more than a part is held.

    Without any row there is one of none, unless it ``has_parts`` already.
    """
    types = parquet.columns()[table] | (_NUMBER if table in _KEYS else {})
    values = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind in types.items())
    rows = iter(rows)
    while (part := list(islice(rows, _PART))) or not has_parts:
        has_parts = True
        file = drafts.enter_context(draft(path.parent, "rows.part"))
        with parquet.texts(connection, "part", part, types):
            parquet.run(
                connection,
                path,
                f"COPY (SELECT {values} FROM part) TO {parquet.quoted(file)}"
                " (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)",
            )
        yield file


def _find_lost(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, parts: Sequence[Path]
) -> bool:
    """Note in the table ``lost`` which rows of a file the store no longer has; tell whether any."""
    same = " AND ".join(f"new.{key} = old.{key}" for key in _KEYS[table])
    parquet.run(
        connection,
        path,
        f"CREATE OR REPLACE TEMP TABLE lost AS SELECT rowid AS number FROM {parquet.read([path])}"
        f" AS old WHERE NOT EXISTS (SELECT 1 FROM {parquet.read(parts)} AS new WHERE {same})",
    )
    return bool(parquet.run(connection, path, "SELECT 1 FROM lost LIMIT 1"))


def _joined(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, parts: Sequence[Path]
) -> Iterator[ResultRow]:
    """Yield what the store has and those rows of a file that it has lost, in order.

    DuckDB would hold all of them to sort them.
    """
    names = ", ".join(f'"{name}"' for name in parquet.columns()[table])
    order = parquet.TIMES[table], "number"

    def stored() -> Iterator[ResultRow]:
        for part in parts:
            sql = f"SELECT {names}, number FROM {parquet.read([part])} ORDER BY {', '.join(order)}"
            yield from parquet.rows(connection, path, sql)

    def lost() -> Iterator[ResultRow]:
        last = -1
        while numbers := parquet.run(
            connection,
            path,
            f"SELECT number FROM lost WHERE number > ? ORDER BY number LIMIT {_PART}",
            (last,),
        ):
            first, last = numbers[0][0], numbers[-1][0]
            yield from parquet.rows(
                connection,
                path,
                f"SELECT {names}, rowid AS number FROM {parquet.read([path])}"
                " WHERE rowid BETWEEN ? AND ? AND rowid IN (SELECT number FROM lost)"
                " ORDER BY rowid",
                (first, last),
            )

    yield from heapq.merge(stored(), lost(), key=itemgetter(*order))


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
