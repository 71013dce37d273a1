"""Signatures of runs in the store: what classes and the prior are worked out from.

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.observation import Scope
from advisor.core.signature import MEASURES, Signature
from advisor.errors import InputError
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction, insert, marks

_PLACE = _rows.PLACE
_ORIGIN = ("source", "release", "contributor", "account", "scope", "job_id", "cluster")
_OF_JOB = ("workload_id", "node_type", "source", "contributor", "job_id", "cluster")
_COLUMNS = (*_PLACE, *MEASURES, "cpus", *_ORIGIN)
_MEASURED = len(MEASURES) + 1
_PLACE_OF, _VALUES_OF = attrgetter(*_PLACE), attrgetter(*_COLUMNS[len(_PLACE) :])


@dataclass(frozen=True, slots=True)
class StoredSignature:
    """One run's signature as stored."""

    id: int
    application: str
    workload: str
    signature: Signature
    created_at: str


def save_signatures(
    writer: StoreTransaction, application: str, workload: str, signatures: Sequence[Signature]
) -> int:
    """Store signatures in one transaction; return how many were not there yet.

    One of the same job from the same source takes the place of the earlier one; one without a job
    that is equal in everything counts as the same run. The workload is touched, so that what
    follows is renewed. Raises InputError on an impossible value.
    """
    with writer.transaction() as db:
        workload_id = writer.workload_id(db, application, workload)
        new = 0
        for signature in signatures:
            columns = zip(_COLUMNS, signature_row(signature), strict=True)
            row: dict[str, object] = {"workload_id": workload_id, **dict(columns)}
            key_columns = _OF_JOB if signature.job_id else tuple(row)
            where = _where(key_columns)
            values = [row[name] for name in key_columns]
            if db.execute(f"SELECT 1 FROM signatures WHERE {where}", values).fetchone():
                db.execute(f"DELETE FROM signatures WHERE {where}", values)
            else:
                new += 1
            insert(db, "signatures", row | {"created_at": _rows.now()})
        writer.touch(application, workload)
        return new


@lru_cache
def _where(key: tuple[str, ...]) -> str:
    condition = " AND ".join(f"{name} IS ?" for name in key)
    # the index of signatures' jobs holds only those that have one: SQLite must be told so
    return f"{condition} AND job_id <> ''" if key == _OF_JOB else condition


def signature_row(signature: Signature) -> list[object]:
    """Return a signature as :func:`add_signatures` stores it. Raises InputError on an impossible
    value."""
    place = signature.configuration
    if place is None:
        raise InputError("a signature to store has no configuration")
    _rows.check_name("node type", place.node_type)
    if not 1 <= place.ranks_per_node <= place.threads_per_node or place.nodes < 1:
        raise InputError(f"a signature's configuration is not valid: {place.to_dict()}")
    for name, value in signature.measures().items():
        if not math.isfinite(value) or value < 0 or (name == "time_s" and not value):
            raise InputError(f"{name} of a signature cannot be {value}")
    if signature.cpus is not None and signature.cpus < 1:
        raise InputError(f"cpus of a signature cannot be {signature.cpus}")
    return _rows.cleaned((*_PLACE_OF(place), *_VALUES_OF(signature)))


def add_signatures(writer: StoreTransaction, rows: Sequence[Sequence[object]]) -> None:
    """Store the signatures of jobs that have none, inside a transaction; nothing is renewed.

    Each row is :func:`signature_row`'s, the time in the store's form and the workload's number.
    """
    writer.change_many(_ADD, rows)


_ADD = (
    f"INSERT INTO signatures ({', '.join(_COLUMNS)}, created_at, workload_id)"
    f" VALUES ({marks(_COLUMNS)}, ?, ?)"
)


def signatures(
    reader: Reader,
    application: str | None = None,
    workload: str | None = None,
    node_type: str | None = None,
    *,
    user: str | None = None,
    account: str = "",
) -> list[StoredSignature]:
    """Return an application's signatures, or all, newest first.

    With ``user``, only those that may advise that user's jobs: scope ``all``, scope ``account`` of
    the same account, and the user's own.
    """
    name_columns = (
        ("w.application", application),
        ("w.name", workload),
        ("s.node_type", node_type),
    )
    where = [
        "w.hidden = 0",
        *(f"{column} = ?" for column, value in name_columns if value is not None),
    ]
    values = [value for _, value in name_columns if value is not None]
    if user is not None:
        where.append(
            "(s.scope = 'all' OR s.contributor = ? OR (s.scope = 'account' AND s.account = ?))"
        )
        values += [user, account]
    sql = (
        f"SELECT s.id, w.application, w.name, s.created_at, {', '.join(f's.{c}' for c in _COLUMNS)}"
        " FROM signatures AS s JOIN workloads AS w ON w.id = s.workload_id"
        f" WHERE {' AND '.join(where)} ORDER BY s.id DESC"
    )
    return [
        StoredSignature(number, application, workload, _signature(columns), created_at)
        for number, application, workload, created_at, *columns in reader.rows(sql, values)
    ]


def measured_types(reader: Reader) -> tuple[str, ...]:
    """Return the node types that signatures are from."""
    rows = reader.rows("SELECT DISTINCT node_type FROM signatures ORDER BY node_type")
    return tuple(row[0] for row in rows)


def _signature(columns: list[Any]) -> Signature:
    """Return the signature of :data:`_COLUMNS`, which are in the order of its fields."""
    values = columns[len(_PLACE) :]
    values.insert(_MEASURED, Configuration(*columns[: len(_PLACE)]))
    return Signature(*values)


def promote_signatures(
    writer: StoreTransaction,
    application: str,
    workload: str | None = None,
    *,
    scope: Scope,
    contributor: str | None = None,
) -> int:
    """Widen whose jobs an application's signatures advise; return how many were widened."""
    with writer.transaction():
        count = writer.widen(
            "signatures", application, workload, scope=scope, contributor=contributor
        )
        for w in writer.workloads(application):
            if workload in (None, w.name):
                writer.touch(application, w.name)
        return count
