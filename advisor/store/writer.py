"""Write the store: every method is one transaction, all of it or nothing.

A second writer waits ``timeout_s`` for the first. The schema comes from db/migrations.py by
sqlite-utils, which is only loaded when there is something to apply.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation, Quality, Scope
from advisor.core.option import Option, pack_options
from advisor.core.program import joined
from advisor.errors import InputError, StoreError
from advisor.store import faults, transfers
from advisor.store import rows as _rows
from advisor.store.connection import Identity, StoreAccess
from advisor.store.opening import open_store
from advisor.store.reader import Reader
from advisor.store.records import (
    SCOPES,
    TRANSFER,
    ConfigKind,
    ModelState,
    Outcome,
    StoredModel,
    TrainingRequest,
    TrainingRun,
)

_TRANSACTION = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_SAVEPOINT = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))
_SAME_RUN = (
    "node_type", "nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j",
    "fom", "contributor", "extra",
)  # fmt: skip


class Writer(Reader):
    """A Reader that may write; makes the store and its folder when there is none.

    Every method may raise StoreError; nothing is changed then.
    """

    def __init__(self, path: Path | str, *, timeout_s: float = 10.0) -> None:
        super().__init__(path, timeout_s=timeout_s)

    def _open(self) -> tuple[sqlite3.Connection, StoreAccess, Identity]:
        return open_store(self.path, self._timeout_s), "live", self._identify("live")

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make all that is written inside one transaction: faster, and all of it or nothing.

        A method that raises inside undoes its own part only, if its error is caught inside.
        Other writers wait meanwhile, so keep it short.
        """
        with self._transaction():
            yield

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run one statement that writes; return how many rows it changed."""
        with self._transaction() as db:
            return db.execute(sql, values).rowcount

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction; any error undoes all of it and SQLite's become StoreError."""
        connection = self._connection
        inner = connection.in_transaction
        begin, commit, undo = _SAVEPOINT if inner else _TRANSACTION
        try:
            connection.execute(begin)
            try:
                yield connection
                connection.execute(commit)
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        for statement in undo:
                            connection.execute(statement)
                raise
        except sqlite3.Error as error:
            raise faults.translate(error, self.path) from error

    # -- observations --------------------------------------------------------------------------

    def add_observations(
        self,
        application: str,
        workload: str,
        observations: Sequence[Observation],
    ) -> list[int]:
        """Add measured runs and return their ids. Raises InputError on an impossible one."""
        with self._transaction() as db:
            workload_id = self._workload(db, application, workload)
            at = _rows.now()
            return [
                _insert(db, "observations", _rows.observation_row(workload_id, run, at))
                for run in observations
            ]

    def import_observations(
        self,
        application: str,
        workload: str,
        observations: Sequence[Observation],
        *,
        file: str,
        sha256: str,
        by: str,
        again: bool = False,
    ) -> int:
        """Add the runs of one file and return how many were new.

        Unless ``again``, a run equal to one that came from a file of this name or content is
        taken for the same run; repeats inside the file are kept.
        """
        file = _rows.clean(file)
        with self._transaction() as db:
            workload_id = self._workload(db, application, workload)
            known = Counter() if again else self._imported(db, workload_id, file, sha256)
            fresh, at = [], _rows.now()
            for run in observations:
                row = _rows.observation_row(workload_id, run, at)
                same = tuple(row[name] for name in _SAME_RUN)
                if known[same]:
                    known[same] -= 1
                else:
                    fresh.append(row)
            if fresh:
                values = {"file": file, "sha256": sha256, "imported_by": by}
                import_id = _insert(db, "imports", {**values, "imported_at": at})
                columns = [*fresh[0], "import_id"]
                db.executemany(
                    f"INSERT INTO observations ({', '.join(columns)}) VALUES ({_marks(columns)})",
                    ([*row.values(), import_id] for row in fresh),
                )
            return len(fresh)

    def _imported(
        self, db: sqlite3.Connection, workload_id: int, file: str, sha256: str
    ) -> Counter[tuple[Any, ...]]:
        sql = (
            f"SELECT {', '.join(f'o.{name}' for name in _SAME_RUN)} FROM observations AS o"
            " JOIN imports AS i ON i.id = o.import_id"
            " WHERE o.workload_id = ? AND (i.file = ? OR i.sha256 = ?)"
        )
        return Counter(map(tuple, db.execute(sql, (workload_id, file, sha256))))

    def promote(
        self,
        application: str,
        workload: str | None = None,
        *,
        scope: Scope,
        contributor: str | None = None,
    ) -> int:
        """Widen whose jobs an application's runs advise; return how many were widened.

        Nothing is ever narrowed. Runs that carry no account cannot become ``account``.
        """
        where, values = "application = ?", [application]
        if workload is not None:
            where += " AND name = ?"
            values.append(workload)
        narrower = SCOPES[: SCOPES.index(scope)]
        sql = (
            f"UPDATE observations SET scope = ? WHERE scope IN ({_marks(narrower)})"
            f" AND workload_id IN (SELECT id FROM workloads WHERE {where})"
        )
        if scope == "account":
            sql += " AND account <> ''"
        if contributor is not None:
            sql += " AND contributor = ?"
            values.append(contributor)
        with self._transaction() as db:
            return db.execute(sql, [scope, *narrower, *values]).rowcount

    # -- models --------------------------------------------------------------------------------

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
    ) -> StoredModel:
        """Store a fitted model as the current one; the one before it becomes ``replaced``.

        What follows from it on other node types is renewed. Raises InputError when an option is of
        another node type or out of range.
        """
        _rows.check_name("node type", node_type)
        if any(o.configuration.node_type != node_type for o in options):
            raise InputError(f"a model of {node_type} has an option on another node type")
        try:
            blob = pack_options(options)
        except struct.error as error:
            raise InputError(f"an option of {application} cannot be stored: {error}") from None
        with self._transaction() as db:
            key = (self._workload(db, application, workload), node_type, scope, owner)
            where = "workload_id = ? AND node_type = ? AND scope = ? AND owner = ?"
            at = _rows.now()
            db.execute(
                f"UPDATE models SET state = 'replaced', updated_at = ? WHERE {where}"
                " AND state <> 'replaced'",
                (at, *key),
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
                "created_at": at,
                "updated_at": at,
                "options": blob,
            }
            number = _insert(db, "models", values)
            if name != TRANSFER:
                self.renew_transfers(application, workload)
            return self._models("m.id = ?", [number])[0]

    def set_model_state(self, id: int, state: ModelState, reason: str = "") -> None:
        """Suspend a model, or take it into use again. Raises StoreError for an unknown one."""
        with self._transaction() as db:
            done = db.execute(
                "UPDATE models SET state = ?, state_reason = ?, updated_at = ? WHERE id = ?",
                (state, reason, _rows.now(), id),
            )
            if not done.rowcount:
                raise StoreError(f"{self.path}: there is no model {id}")
            model = self._models("m.id = ?", [id])[0]
            if not model.transferred:
                self.renew_transfers(model.application, model.workload)

    def add_program(self, id: int, facts: Mapping[str, object]) -> None:
        """Let one more program count as the one a model was measured with."""
        with self._transaction() as db:
            model = self._models("m.id = ?", [id])[0]
            known = model.stats.get("program")
            programs = joined([*(known if isinstance(known, list) else ()), facts])
            db.execute(
                "UPDATE models SET stats = ?, updated_at = ? WHERE id = ?",
                (_rows.to_json({**model.stats, "program": programs}), _rows.now(), id),
            )

    def renew_transfers(self, application: str, workload: str) -> list[transfers.Transfer]:
        """Bring a workload's models by transfer in step with what they follow from."""
        with self._transaction():
            return transfers.renew(self, application, workload)

    # -- policy, site, inventory ---------------------------------------------------------------

    def apply_config(
        self, kind: ConfigKind, *, path: str, text: str, compiled: Mapping[str, Any], by: str
    ) -> int:
        """Store and activate a policy or site file and return its version.

        What is already active is not stored twice.
        """
        stored = _rows.to_json(dict(compiled))
        with self._transaction() as db:
            current = db.execute(
                "SELECT version, text, compiled FROM config_versions WHERE kind = ? AND active = 1",
                (kind,),
            ).fetchone()
            if current and (current["text"], current["compiled"]) == (text, stored):
                return int(current["version"])
            last = db.execute(
                "SELECT max(version) FROM config_versions WHERE kind = ?", (kind,)
            ).fetchone()
            version = (last[0] or 0) + 1
            db.execute("UPDATE config_versions SET active = 0 WHERE kind = ?", (kind,))
            values = {
                "kind": kind,
                "version": version,
                "path": path,
                "text": text,
                "compiled": stored,
                "applied_by": by,
                "applied_at": _rows.now(),
                "active": 1,
            }
            _insert(db, "config_versions", values)
            return int(version)

    def activate_config(self, kind: ConfigKind, version: int, by: str) -> None:
        """Make an older version the active one. Raises InputError when there is none such."""
        with self._transaction() as db:
            db.execute("UPDATE config_versions SET active = 0 WHERE kind = ?", (kind,))
            done = db.execute(
                "UPDATE config_versions SET active = 1, applied_by = ?, applied_at = ?"
                " WHERE kind = ? AND version = ?",
                (by, _rows.now(), kind, version),
            )
            if not done.rowcount:
                known = [str(c.version) for c in self.config_history(kind)]
                raise InputError(
                    f"there is no {kind} version {version}",
                    hint=f"known: {', '.join(known)}" if known else "none was ever applied",
                )

    def save_node_types(
        self, node_types: Sequence[NodeType], *, source: str, replace: bool = False
    ) -> None:
        """Add or update node types; with ``replace``, drop those of this source not named."""
        with self._transaction() as db:
            before = self.inventory()
            if replace:
                names = [t.name for t in node_types]
                db.execute(
                    f"DELETE FROM node_types WHERE source = ? AND name NOT IN ({_marks(names)})",
                    [source, *names],
                )
            for node_type in node_types:
                _rows.check_name("node type", node_type.name)
                values = {
                    "name": node_type.name,
                    "spec": _rows.to_json(node_type.to_dict()),
                    "source": source,
                    "updated_at": _rows.now(),
                }
                _insert(db, "node_types", values, key=("name",))
            if before != self.inventory():
                transfers.renew_all(self)

    # -- decisions and outcomes ----------------------------------------------------------------

    def save_decision(self, decision: Decision, *, job_id: str = "") -> None:
        """Store a decision; of one that is there already the fuller record is kept."""
        row = _rows.decision_row(decision, job_id)
        with self._transaction() as db:
            db.execute(_rows.SAVE_DECISION, row)

    def link_job(self, decision_id: str, job_id: str) -> bool:
        """Note which job a decision was for; False when the decision is not known."""
        with self._transaction() as db:
            done = db.execute(_rows.LINK_DECISION, {"id": decision_id, "job_id": job_id})
            return done.rowcount > 0

    def save_outcome(self, outcome: Outcome) -> None:
        """Store how a job came out, or store it anew."""
        values = {name: getattr(outcome, name) for name in Outcome.__slots__}
        values["record"] = _rows.to_json(outcome.record)
        values["collected_at"] = outcome.collected_at or _rows.now()
        with self._transaction() as db:
            _insert(db, "outcomes", values, key=("job_id", "scheduler", "submitted_at"))

    # -- training ------------------------------------------------------------------------------

    def save_training_request(self, request: TrainingRequest) -> None:
        """Store a training request, or its new state; ``updated_at`` is set here."""
        _rows.check_name("node type", request.node_type)
        at = _rows.now()
        with self._transaction() as db:
            values = {
                "id": request.id,
                "workload_id": self._workload(db, request.application, request.workload),
                "node_type": request.node_type,
                "user": request.user,
                "scheduler": request.scheduler,
                "state": request.state,
                "detail": request.detail,
                "plan": _rows.to_json(request.plan),
                "created_at": request.created_at or at,
                "updated_at": at,
            }
            _insert(db, "training_requests", values, key=("id",))

    def save_training_run(self, run: TrainingRun) -> None:
        """Store one run of a sweep, or its new state."""
        values = {name: getattr(run, name) for name in TrainingRun.__slots__}
        values["configuration"] = _rows.to_json(run.configuration.to_dict())
        with self._transaction() as db:
            _insert(db, "training_runs", values, key=("request_id", "seq"))

    def _workload(self, db: sqlite3.Connection, application: str, workload: str) -> int:
        _rows.check_name("application", application)
        _rows.check_name("workload", workload)
        db.execute(
            "INSERT INTO workloads (application, name, created_at) VALUES (?, ?, ?)"
            " ON CONFLICT (application, name) DO UPDATE SET hidden = 0 WHERE hidden = 1",
            (application, workload, _rows.now()),
        )
        sql = "SELECT id FROM workloads WHERE application = ? AND name = ?"
        return int(db.execute(sql, (application, workload)).fetchone()[0])


def _insert(
    db: sqlite3.Connection, table: str, values: Mapping[str, Any], *, key: Sequence[str] = ()
) -> int:
    sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({_marks(values)})"
    if key:
        rest = [name for name in values if name not in (*key, "created_at")]
        changes = ", ".join(f"{name} = excluded.{name}" for name in rest)
        sql += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    return db.execute(sql, [_rows.clean(v) for v in values.values()]).lastrowid or 0


def _marks(values: Sequence[object] | Mapping[str, object]) -> str:
    return ", ".join("?" * len(values))
