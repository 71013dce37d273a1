"""Trials of applications never swept: one place at a time for each class model.

The daemon takes the place before it answers, in one statement that no other daemon can repeat;
``advisor collect`` writes down what came of the trial, or frees the place. Standard library only.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.observation import Scope
from advisor.database import DatabaseAddress
from advisor.errors import StoreError
from advisor.store import rows as _rows
from advisor.store.moved import check_here
from advisor.store.reader import Reader
from advisor.store.records import StoredModel

log = logging.getLogger("advisor.serve")

TrialState = Literal["pending", "confirmed", "refuted", "bad", "unjudged", "freed"]
"""``bad``: the job was harmed, slower than the bound by 2 points or 2 % more energy. ``unjudged``:
it ran, and says nothing of its point. ``freed``: it did not take place, and does not count."""

STOP = 2
"""So many bad trials stop those of a class on a node type."""
_WAIT_S = 0.02
"""Seconds that a submission may wait for another writer."""
_KEY = ("application", "workload", "node_type", "scope", "owner")
_OWN = (
    "class_name",
    "decision_id",
    "user",
    "own",
    "own_time_s",
    "own_energy_j",
    "point",
    "max_slowdown",
    "min_saving",
    "state",
    "time_s",
    "energy_j",
    "error",
    "created_at",
    "cluster",
)
ModelKey = tuple[str, str, str, str, str]
"""Application, workload, node type, scope and owner of a class model."""


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """One trial. ``own`` is the job as written, which took ``own_time_s`` and ``own_energy_j``;
    ``point`` what it ran instead; ``time_s`` and ``energy_j`` what came out, ``error`` as a
    logarithm; the bounds are those of its job's policy.
    """

    id: int
    application: str
    workload: str
    node_type: str
    scope: Scope
    owner: str
    class_name: str
    decision_id: str
    user: str
    own: Configuration
    own_time_s: float
    own_energy_j: float
    point: Configuration
    max_slowdown: float
    min_saving: float
    state: TrialState
    time_s: float | None
    energy_j: float | None
    error: float
    created_at: str
    cluster: str

    @property
    def key(self) -> ModelKey:
        """The class model it is for."""
        return self.application, self.workload, self.node_type, self.scope, self.owner

    def summary(self) -> dict[str, object]:
        """Return what is kept of it with its model: where, how it came out, in percent."""
        changes = {
            "time_pct": (self.time_s, self.own_time_s),
            "energy_pct": (self.energy_j, self.own_energy_j),
        }
        shown = {k: round(100 * (a / b - 1), 2) for k, (a, b) in changes.items() if a}
        return {"state": self.state, "point": self.point.to_dict(), **shown}


@dataclass(slots=True)
class TrialsUnderWay:
    """What keeps further trials off: those whose outcome is not known, and classes stopped."""

    pending: set[ModelKey] = field(default_factory=set)
    stopped: frozenset[tuple[str, str]] = frozenset()


def key_of(model: StoredModel) -> ModelKey:
    """Return a class model's key, the same for all of its versions."""
    return model.application, model.workload, model.node_type, model.scope, model.owner


def trials(reader: Reader, where: str = "1", values: Sequence[object] = ()) -> list[StoredTrial]:
    """Return the trials that meet an SQL condition over ``t`` (trials) and ``w`` (workloads)."""
    own_columns = ("t.class" if name == "class_name" else f"t.{name}" for name in _OWN)
    sql = (
        "SELECT t.id, w.application, w.name, t.node_type, t.scope, t.owner,"
        f" {', '.join(own_columns)} FROM trials AS t JOIN workloads AS w ON w.id = t.workload_id"
        f" WHERE {where} ORDER BY t.id"
    )
    stored = []
    for row in map(tuple, reader.rows(sql, values)):
        named = dict(zip(("id", *_KEY, *_OWN), row, strict=True))
        for name in ("own", "point"):
            named[name] = Configuration.from_dict(json.loads(named[name]))
        stored.append(StoredTrial(**named))
    return stored


def keys_seen(model: StoredModel) -> tuple[ModelKey, ModelKey]:
    """Return the models whose trials count for a class model: its own, and that for all."""
    return key_of(model), (model.application, model.workload, model.node_type, "all", "")


def trials_of(reader: Reader, key: ModelKey) -> list[StoredTrial]:
    """Return the trials that count for a class model and are over, oldest first."""
    where = (
        "w.application = ? AND w.name = ? AND t.node_type = ?"
        " AND (t.scope = 'all' OR (t.scope = ? AND t.owner = ?))"
    )
    return trials(reader, f"{where} AND t.state NOT IN ('pending', 'freed')", key)


def under_way(reader: Reader) -> TrialsUnderWay:
    """Return which models' trials are pending, and whose are stopped.

    A bad trial no longer counts once its own workload was swept: the prior has learned from it.
    """
    stopped_classes = reader.rows(
        "SELECT t.node_type, t.class FROM trials AS t WHERE t.state = 'bad' AND NOT EXISTS"
        " (SELECT 1 FROM models AS m WHERE m.workload_id = t.workload_id"
        " AND m.node_type = t.node_type AND m.state <> 'replaced'"
        " AND m.name NOT IN ('class', 'transfer'))"
        f" GROUP BY t.node_type, t.class HAVING count(*) >= {STOP}"
    )
    pending = {t.key for t in trials(reader, "t.state = 'pending'")}
    return TrialsUnderWay(pending, frozenset((r[0], r[1]) for r in stopped_classes))


# -- the daemon's part -----------------------------------------------------------------------------


def take_place(path: Path, decision: Decision, model: StoredModel) -> bool:
    """Take the place of a trial for a decision; False where it is not free or not to be written.

    Also False once the model was renewed, while it does not know of a trial that is over, and where
    the policy's trials are used up. Never raises.
    """
    if decision.chosen is None or decision.baseline is None:
        return False
    values = {
        "class": str(model.cold_start.get("class") or "unknown"),
        "decision_id": decision.id,
        "user": decision.user,
        "cluster": decision.cluster,
        "own": _rows.to_json(decision.baseline.to_dict()),
        "own_time_s": decision.baseline_time_s,
        "own_energy_j": decision.baseline_energy_j,
        "point": _rows.to_json(decision.chosen.configuration.to_dict()),
        "max_slowdown": decision.policy.max_slowdown,
        "min_saving": decision.policy.min_saving,
        "state": "pending",
        "created_at": _rows.now(),
        "updated_at": _rows.now(),
    }
    visible_trials = (
        "FROM trials AS t WHERE t.workload_id = m.workload_id AND t.node_type = m.node_type"
        " AND (t.scope = 'all' OR (t.scope = m.scope AND t.owner = m.owner))"
    )
    sql = (
        f"INSERT OR IGNORE INTO trials (workload_id, node_type, scope, owner, {', '.join(values)})"
        f" SELECT workload_id, node_type, scope, owner, {', '.join(f':{n}' for n in values)}"
        " FROM models AS m WHERE id = :model AND state = 'fitted'"
        f" AND (SELECT count(*) {visible_trials} AND t.state <> 'freed') < :most"
        f" AND NOT EXISTS (SELECT 1 {visible_trials} AND (t.state = 'pending'"
        " OR (t.state <> 'freed' AND t.updated_at > m.updated_at)))"
    )
    also = {"model": model.id, "most": decision.policy.cold_start.trials}
    return write_now(path, sql, {**{n: _rows.clean(v) for n, v in values.items()}, **also}) == 1


def give_up_place(path: Path, decision_id: str) -> None:
    """Free the place of a trial that no job runs. Never raises."""
    sql = "UPDATE trials SET state = 'freed', updated_at = :at"
    sql += " WHERE decision_id = :id AND state = 'pending'"
    write_now(path, sql, {"id": decision_id, "at": _rows.now()})


def write_now(path: Path, sql: str, values: dict[str, object]) -> int:
    """Run one statement on a live store, now or not at all; return how many rows it changed."""
    if isinstance(path, DatabaseAddress):
        from advisor.store import quick_writes

        return quick_writes.write(path, sql, values, _WAIT_S)
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        db = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("BEGIN IMMEDIATE")
            check_here(db, path)
            changed = db.execute(sql, values).rowcount
            db.execute("COMMIT")
            return changed
        finally:
            db.close()
    except (sqlite3.Error, StoreError) as error:
        log.warning("event=trial-not-written error=%r", str(error))
        return 0
