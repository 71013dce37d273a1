"""What rankings keep in the store: characterisations of applications. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.core.observation import Scope
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.writer import Writer


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
    writer: Writer,
    application: str,
    workload: str,
    node_type: str,
    record: Mapping[str, Any],
    *,
    contributor: str,
    scope: Scope,
) -> int:
    """Store a characterisation in place of this contributor's earlier one; return its id.

    Raises InputError on a name that cannot be stored, StoreError.
    """
    _rows.check_name("node type", node_type)
    with writer._transaction() as db:
        values = (
            writer._workload(db, application, workload),
            node_type,
            _rows.clean(contributor),
            scope,
            _rows.to_json(dict(record)),
            _rows.now(),
        )
        where = "workload_id = ? AND node_type = ? AND contributor = ?"
        db.execute(f"DELETE FROM characterisations WHERE {where}", values[:3])
        sql = (
            "INSERT INTO characterisations"
            " (workload_id, node_type, contributor, scope, record, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )
        return db.execute(sql, values).lastrowid or 0


def characterisations(
    reader: Reader,
    application: str,
    workload: str | None = None,
    node_type: str | None = None,
    *,
    user: str | None = None,
) -> list[StoredCharacterisation]:
    """Return an application's characterisations, newest first.

    With ``user``, only those that may advise that user's jobs: the user's own and those of all.
    """
    where, values = ["w.application = ?"], [application]
    for column, value in (("w.name", workload), ("c.node_type", node_type)):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if user is not None:
        where.append("(c.scope = 'all' OR c.contributor = ?)")
        values.append(user)
    sql = (
        "SELECT c.id, w.application, w.name, c.node_type, c.contributor, c.scope, c.record,"
        " c.created_at FROM characterisations AS c JOIN workloads AS w ON w.id = c.workload_id"
        f" WHERE {' AND '.join(where)} ORDER BY c.id DESC"
    )
    found = []
    for row in reader.rows(sql, values):
        fields = list(row)
        fields[6] = _rows.from_json(fields[6], f"characterisation {fields[0]}")
        found.append(StoredCharacterisation(*fields))
    return found
