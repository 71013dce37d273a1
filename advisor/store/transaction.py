"""Transactions on the store, and models, which other models follow from.

Models by transfer follow from rankings, base models and the inventory; class models from
signatures and from what was swept on their node type; models of a family's sizes from its runs and
the model of its largest size. Whoever changes one of these marks it stale in the same transaction
(:mod:`advisor.store.stale`); nothing is worked out here, where other writers wait.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.core.observation import Quality, Scope
from advisor.core.option import Option, pack_options
from advisor.database import DatabaseAddress
from advisor.errors import InputError, StoreError
from advisor.store import faults
from advisor.store import rows as _rows
from advisor.store.connection import Identity, StoreAccess
from advisor.store.moved import check_here
from advisor.store.opening import open_store
from advisor.store.port import Database, execute_part
from advisor.store.reader import Reader
from advisor.store.records import (
    CLASS,
    SCOPES,
    SIZES,
    TRANSFER,
    ModelState,
    StaleKind,
    StoredModel,
)
from advisor.store.signature_groups import Named, WorkloadGroup

# IMMEDIATE, as one that reads first and then writes fails at once, without any wait, where another
# has written in between.
_TRANSACTION = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_SAVEPOINT = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))

_RETIRE_TRANSFERS = """
    UPDATE models SET state = 'replaced', state_reason = 'what it followed from is gone',
        updated_at = :at
    WHERE workload_id = (SELECT workload_id FROM models WHERE id = :base) AND name = 'transfer'
        AND state = 'fitted' AND json_extract(stats, '$.transfer.base') = :node_type
        AND (:scope = 'all' OR (scope, owner) = (:scope, :owner))"""


class StoreTransaction(Reader):
    """A Reader that may write; makes the store and its folder when there is none.

    A second writer waits ``timeout_s`` for the first. The schema comes from db/migrations.py by
    sqlite-utils, which is only loaded when there is something to apply.
    """

    def __init__(self, path: Path | str, *, timeout_s: float = 10.0) -> None:
        super().__init__(path, timeout_s=timeout_s)

    def _open(self) -> tuple[Database, StoreAccess, Identity]:
        if isinstance(self.path, DatabaseAddress):
            from advisor.store import postgresql

            return postgresql.open_writer(self.path, self._timeout_s), "live", ()
        return open_store(self.path, self._timeout_s), "live", self._identify("live")

    def batch(self) -> AbstractContextManager[object]:
        """Make all that is written inside one transaction: faster, and all of it or nothing.

        A method that raises inside undoes its own part only, if its error is caught inside.
        Other writers wait meanwhile, so keep it short.
        """
        return self.transaction()

    def change(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> int:
        """Run one statement that writes; return how many rows it changed.

        Inside of a transaction one that fails is undone alone.
        """
        if not self._connection.in_transaction:
            with self.transaction() as db:
                return db.execute(sql, values).rowcount
        try:
            return execute_part(self._connection, sql, values)
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from error

    def change_many(
        self, sql: str, rows: Sequence[Sequence[object] | Mapping[str, object]]
    ) -> None:
        """Run one statement that writes for every row, in one transaction.

        Writing a few hundred rows of a table one after the other takes half of what it takes
        between other work.
        """
        if rows:
            with self.transaction() as db:
                db.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """One transaction; any error undoes all of it and SQLite's become StoreError.

        Raises MovedStoreError where the store was moved since it was opened.
        """
        connection: Database = self._connection
        inner = connection.in_transaction
        begin, commit, undo = _SAVEPOINT if inner else _TRANSACTION
        try:
            connection.execute(begin)
            try:
                if not inner:  # nobody can move it from here to the commit
                    check_here(connection, self.path)
                yield connection
                connection.execute(commit)
            # whoever interrupts a program must not leave its transaction open either
            except BaseException:
                # SQLite has undone it by itself after some errors, such as a full disk.
                if connection.in_transaction:
                    with suppress(sqlite3.Error, StoreError):
                        for statement in undo:
                            connection.execute(statement)
                raise
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from error

    @contextmanager
    def unsynced(self) -> Iterator[None]:
        """Have commits inside not wait for the disk: a power failure undoes the last ones."""
        self.rows("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self.rows("PRAGMA synchronous = FULL")  # as open_store sets it

    def deriving(self) -> AbstractContextManager[bool]:
        """Tell whether nobody else works out what follows, who would do the same work again.

        Only a database has several at once whose work is long.
        """
        alone = getattr(self._connection, "deriving", None)
        return alone() if alone else nullcontext(True)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way."""
        return bool(self._connection.in_transaction)

    # -- what follows from what --------------------------------------------------------------------

    def touch(self, application: str, workload: str, *kinds: StaleKind) -> None:
        """Mark models that follow from a workload stale, all kinds of them where none is named."""
        self._mark(
            "application = ? AND name = ?",
            [
                (kind, "", "", application, workload)
                for kind in kinds or ("lesson", "transfers", "sizes")
            ],
        )

    def touch_sizes(self, named: Iterable[Named]) -> None:
        """Mark what the families of workloads know of sizes stale."""
        self._mark(
            "application = ? AND name = ?", [("sizes", "", "", *name) for name in sorted(named)]
        )

    def touch_ranked(self) -> None:
        """Mark what follows from rankings and signatures stale: the inventory changed."""
        self._mark("id IN (SELECT workload_id FROM rankings)", [("transfers", "", "")])
        self._mark("id IN (SELECT workload_id FROM signatures)", [("lesson", "", "")])

    def touch_groups(self, groups: Iterable[WorkloadGroup]) -> None:
        """Mark class models of workloads stale, each for one group of jobs, the first one first."""
        self._mark(
            "application = ? AND name = ?", [("class", *whose, *named) for named, whose in groups]
        )

    def _mark(self, which: str, rows: Sequence[tuple[str, ...]]) -> None:
        """Mark kind, scope and owner of workloads that meet a condition in SQL, or mark them anew.

        How long something is stale counts from its first mark.
        """
        self.change_many(
            "INSERT INTO stale (since, kind, scope, owner, workload_id)"
            f" SELECT '{_rows.now()}', ?, ?, ?, id FROM workloads WHERE {which}"
            " ON CONFLICT (workload_id, kind, scope, owner) DO UPDATE SET mark = excluded.mark",
            rows,
        )

    # -- models ------------------------------------------------------------------------------------

    def save_model(
        self,
        application: str,
        workload: str,
        node_type: str,
        *,
        scope: Scope,
        owner: str,
        name: str,
        energy_quality: Quality,
        n_train: int,
        stats: Mapping[str, Any],
        options: Sequence[Option],
        sizes: bytes = b"",
    ) -> StoredModel:
        """Store a fitted model as the current one; the one before it becomes ``replaced``.

        What follows from a fitted one is marked stale. Raises InputError when an option is of
        another node type or out of range.
        """
        _rows.check_name("node type", node_type)
        if any(o.configuration.node_type != node_type for o in options):
            raise InputError(f"a model of {node_type} has an option on another node type")
        try:
            blob = pack_options(options)
        except struct.error as error:
            raise InputError(f"an option of {application} cannot be stored: {error}") from None
        with self.transaction() as db:
            key = (self.workload_id(db, application, workload), node_type, scope, owner)
            where = "workload_id = ? AND node_type = ? AND scope = ? AND owner = ?"
            created_at = _rows.now()
            db.execute(
                f"UPDATE models SET state = 'replaced', updated_at = ? WHERE {where}"
                " AND state <> 'replaced'",
                (created_at, *key),
            )
            last = db.execute(f"SELECT max(version) FROM models WHERE {where}", key).fetchone()
            values = {
                **dict(zip(("workload_id", "node_type", "scope", "owner"), key, strict=True)),
                "version": (last[0] or 0) + 1,
                "name": name,
                "state": "fitted",
                "energy_quality": energy_quality,
                "n_train": n_train,
                "stats": _rows.to_json(dict(stats)),
                "created_at": created_at,
                "updated_at": created_at,
                "options": blob,
                "sizes": sizes,
            }
            number = insert(db, "models", values)
            if name not in (TRANSFER, CLASS, SIZES):
                self.touch(application, workload)
            return self._models("m.id = ?", [number])[0]

    def set_model_state(self, id: int, state: ModelState, reason: str = "") -> None:
        """Suspend a model, or take it into use again. Raises StoreError for an unknown one.

        What is estimated from a model that goes out of use goes with it, until it is worked out
        again: what was found to be wrong advises nobody a moment longer.
        """
        with self.transaction() as db:
            cursor = db.execute(
                "UPDATE models SET state = ?, state_reason = ?, updated_at = ? WHERE id = ?",
                (state, reason, _rows.now(), id),
            )
            if not cursor.rowcount:
                raise StoreError(f"{self.path}: there is no model {id}")
            model = self._models("m.id = ?", [id])[0]
            named, whose = (model.application, model.workload), (model.scope, model.owner)
            if model.transferred:
                self.touch(*named, "transfers")
            elif model.by_class:
                self.touch_groups([(named, whose)])
            elif model.fitted:
                self.touch(*named)
                if state != "fitted":
                    db.execute(
                        _RETIRE_TRANSFERS,
                        {
                            "at": _rows.now(),
                            "base": model.id,
                            "node_type": model.node_type,
                            "scope": model.scope,
                            "owner": model.owner,
                        },
                    )

    def widen(
        self,
        table: str,
        application: str,
        workload: str | None,
        *,
        scope: Scope,
        contributor: str | None = None,
    ) -> int:
        """Widen whose jobs an application's rows of a table advise; return how many were widened.

        Nothing is ever narrowed. Rows that carry no account cannot become ``account``.
        """
        narrower = SCOPES[: SCOPES.index(scope)]
        sql = (
            f"UPDATE {table} SET scope = ? WHERE scope IN ({marks(narrower)}) AND workload_id IN"
            " (SELECT id FROM workloads WHERE application = ? AND ? IN ('', name))"
            " AND ? IN ('', contributor)"
        )
        if scope == "account":
            sql += " AND account <> ''"
        values = (scope, *narrower, application, workload or "", contributor or "")
        with self.transaction() as db:
            return db.execute(sql, values).rowcount

    def workload_id(self, db: Database, application: str, workload: str) -> int:
        """Return the id of a workload, which is made or shown again where needed."""
        sql = "SELECT id FROM workloads WHERE application = ? AND name = ?"
        shown = db.execute(f"{sql} AND hidden = 0", (application, workload)).fetchone()
        if shown is not None:
            return int(shown[0])
        _rows.check_name("application", application)
        _rows.check_name("workload", workload)
        db.execute(
            "INSERT INTO workloads (application, name, created_at) VALUES (?, ?, ?)"
            " ON CONFLICT (application, name) DO UPDATE SET hidden = 0 WHERE workloads.hidden = 1",
            (application, workload, _rows.now()),
        )
        return int(db.execute(sql, (application, workload)).fetchone()[0])


def insert(db: Database, table: str, values: Mapping[str, Any], *, key: Sequence[str] = ()) -> int:
    """Insert a row, or update the one with the same ``key``; return its id."""
    sql = insertion(table, tuple(values), tuple(key))
    return db.execute(sql, _rows.cleaned(values.values())).lastrowid or 0


@lru_cache
def insertion(table: str, names: tuple[str, ...], key: tuple[str, ...] = ()) -> str:
    """Return the statement that inserts a row, or updates the one with the same ``key``."""
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks(names)})"
    if key:
        rest = [name for name in names if name not in (*key, "created_at")]
        changes = ", ".join(f"{name} = excluded.{name}" for name in rest)
        sql += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    return sql


def marks(values: Sequence[object] | Mapping[str, object]) -> str:
    """Return as many question marks as there are values."""
    return ", ".join("?" * len(values))
