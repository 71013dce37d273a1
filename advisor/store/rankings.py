"""What rankings keep in the store: characterisations of applications, and estimated node types.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.node_type_estimate import NodeTypeEstimate
from advisor.core.observation import Scope
from advisor.store import rows as _rows
from advisor.store.port import Database
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction

_ESTIMATE = tuple(NodeTypeEstimate.__slots__)


@dataclass(frozen=True, slots=True)
class StoredCharacterisation:
    """An application's phases as one contributor measured them on one node type.

    ``record`` is the form of ``advisor.ranking.streams.Characterisation``.
    """

    id: int
    application: str
    workload: str
    node_type: str
    contributor: str
    scope: Scope
    record: dict[str, Any]
    created_at: str


def save_characterisation(
    writer: StoreTransaction,
    application: str,
    workload: str,
    node_type: str,
    record: Mapping[str, Any],
    *,
    contributor: str,
    scope: Scope,
) -> StoredCharacterisation:
    """Store a characterisation in place of this contributor's earlier one; return it.

    Raises InputError on a name that cannot be stored, StoreError.
    """
    _rows.check_name("node type", node_type)
    contributor, created_at = _rows.clean(contributor), _rows.now()
    with writer.transaction() as db:
        key = writer.workload_id(db, application, workload), node_type, contributor
        _delete_of_contributor(db, "characterisations", "node_type", key)
        cursor = db.execute(
            "INSERT INTO characterisations"
            " (workload_id, node_type, contributor, scope, record, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (*key, scope, _rows.to_json(dict(record)), created_at),
        )
    return StoredCharacterisation(
        cursor.lastrowid or 0,
        application,
        workload,
        node_type,
        contributor,
        scope,
        dict(record),
        created_at,
    )


def _delete_of_contributor(db: Database, table: str, place: str, key: tuple[int, str, str]) -> None:
    """Delete what one contributor has of a workload, measured at one node type (``place``)."""
    db.execute(
        f"DELETE FROM {table} WHERE workload_id = ? AND {place} = ? AND contributor = ?", key
    )


def characterisations(
    reader: Reader,
    application: str | None = None,
    workload: str | None = None,
    node_type: str | None = None,
    *,
    user: str | None = None,
) -> list[StoredCharacterisation]:
    """Return an application's characterisations, or all, newest first.

    With ``user``, only those that may advise that user's jobs: the user's own and those of all.
    """
    where, values = _where(application, workload, "node_type", node_type, user)
    sql = (
        "SELECT c.id, w.application, w.name, c.node_type, c.contributor, c.scope, c.record,"
        " c.created_at FROM characterisations AS c JOIN workloads AS w ON w.id = c.workload_id"
        f"{where} ORDER BY c.id DESC"
    )
    stored = []
    for row in reader.rows(sql, values):
        fields = list(row)
        fields[6] = _rows.from_json(fields[6], f"characterisation {fields[0]}")
        stored.append(StoredCharacterisation(*fields))
    return stored


def _where(
    application: str | None,
    workload: str | None,
    place: str,
    node_type: str | None,
    user: str | None,
) -> tuple[str, list[str]]:
    """Return the condition of a question, and its values; ``place`` is the node type's column."""
    columns = (("w.application", application), ("w.name", workload), (place, node_type))
    parts = [f"{column} = ?" for column, value in columns if value is not None]
    values = [value for _, value in columns if value is not None]
    if user is not None:
        parts.append("(scope = 'all' OR contributor = ?)")
        values.append(user)
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


@dataclass(frozen=True, slots=True)
class StoredRanking:
    """One node type of a stored ranking; that of the base itself has a ratio of 1.

    ``by_hand``: it follows from files that were given, so that only who has them can make it again.
    """

    id: int
    application: str
    workload: str
    base: str
    contributor: str
    scope: Scope
    method: str
    created_at: str
    by_hand: bool
    estimate: NodeTypeEstimate


def save_ranking(
    writer: StoreTransaction,
    application: str,
    workload: str,
    base: str,
    estimates: Sequence[NodeTypeEstimate],
    *,
    method: str,
    contributor: str,
    scope: Scope,
    by_hand: bool = False,
) -> None:
    """Store a ranking in place of this contributor's earlier one from the same base.

    Models by transfer that follow from it are made or renewed. Raises InputError on a name that
    cannot be stored, StoreError.
    """
    for name in (base, *(e.node_type for e in estimates)):
        _rows.check_name("node type", name)
    with writer.transaction() as db:
        key = writer.workload_id(db, application, workload), base, _rows.clean(contributor)
        _delete_of_contributor(db, "rankings", "base", key)
        shared = (*key, scope, method, _rows.now(), by_hand)
        db.executemany(
            "INSERT INTO rankings (workload_id, base, contributor, scope, method, created_at,"
            f" by_hand, {', '.join(_ESTIMATE)})"
            f" VALUES ({', '.join('?' * (len(shared) + len(_ESTIMATE)))})",
            [(*shared, *(getattr(e, name) for name in _ESTIMATE)) for e in estimates],
        )
        writer.touch(application, workload)


def rankings(
    reader: Reader,
    application: str | None = None,
    workload: str | None = None,
    *,
    base: str | None = None,
    user: str | None = None,
) -> list[StoredRanking]:
    """Return an application's rankings, or all: newest first, each with the fastest type first.

    With ``user``, only those that may advise that user's jobs: the user's own and those of all.
    """
    where, values = _where(application, workload, "base", base, user)
    sql = (
        "SELECT r.id, w.application, w.name, r.base, r.contributor, r.scope, r.method,"
        f" r.created_at, r.by_hand, {', '.join(f'r.{name}' for name in _ESTIMATE)}"
        " FROM rankings AS r JOIN workloads AS w ON w.id = r.workload_id"
        f"{where} ORDER BY r.created_at DESC, r.time_ratio, r.id"
    )
    stored = []
    for row in reader.rows(sql, values):
        fields: list[Any] = [*row[:8], bool(row[8]), NodeTypeEstimate(*row[9:])]
        stored.append(StoredRanking(*fields))
    return stored


def promote_estimates(
    writer: StoreTransaction,
    application: str,
    workload: str | None = None,
    contributor: str | None = None,
) -> int:
    """Let characterisations and rankings advise everybody; return how many do so newly."""
    with writer.transaction():
        count = sum(
            writer.widen(table, application, workload, scope="all", contributor=contributor)
            for table in ("characterisations", "rankings")
        )
        for name in [workload] if workload else [w.name for w in writer.workloads(application)]:
            writer.touch(application, name)
    return count
