"""Forget old decisions and outcomes, and runs that no model uses; monthly sums stay.

Each step is one transaction of a few thousand rows, so that others may write in between, and what
is killed half-way has lost nothing that is not summed up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction

_STEP = 5000
"""Rows deleted in one transaction, so that others can write between."""
_BY_NAME = timedelta(days=30)
"""What was pruned is known one by one for so long; all that is older counts as pruned with it."""

_SUM = """
INSERT INTO months (month, application, node_type, decisions, changed)
    SELECT substr(created_at, 1, 7), application, node_type, count(*), sum(changed) FROM decisions
    WHERE id IN (SELECT id FROM pruned) GROUP BY 1, 2, 3
ON CONFLICT (month, application, node_type) DO UPDATE SET
    decisions = decisions + excluded.decisions, changed = changed + excluded.changed
"""
_SUM_OUTCOMES = """
INSERT INTO months (month, application, node_type, outcomes, worse, node_s, energy_j)
    SELECT substr(o.submitted_at, 1, 7),
        coalesce(d.application, json_extract(o.record, '$.application'), ''),
        coalesce(d.node_type, json_extract(o.record, '$.baseline.node_type'), ''),
        count(*), sum(o.verdict = 'worse'), total(o.nodes * o.time_s), total(o.energy_j)
    FROM outcomes AS o LEFT JOIN decisions AS d ON d.id = o.decision_id
    WHERE o.rowid IN (SELECT id FROM pruned) GROUP BY 1, 2, 3
ON CONFLICT (month, application, node_type) DO UPDATE SET
    outcomes = outcomes + excluded.outcomes, worse = worse + excluded.worse,
    node_s = node_s + excluded.node_s, energy_j = energy_j + excluded.energy_j
"""
_NOTE = "INSERT OR REPLACE INTO summed SELECT id, created_at FROM decisions WHERE id IN pruned"
_NOTE_OUTCOMES = """
INSERT OR REPLACE INTO summed SELECT scheduler || ' ' || job_id || ' ' || submitted_at, collected_at
    FROM outcomes WHERE rowid IN pruned
"""
_NEED = " AND {} >= (SELECT at FROM summed WHERE key = '')"
_UNUSED = """
SELECT o.id FROM observations AS o WHERE o.created_at < ?
    AND NOT EXISTS (SELECT 1 FROM models AS m WHERE m.workload_id = o.workload_id
        AND m.node_type = o.node_type AND m.state <> 'replaced')
    AND NOT EXISTS (SELECT 1 FROM models AS m JOIN workloads AS f ON f.id = m.workload_id
        JOIN workloads AS w ON w.application = f.application WHERE w.id = o.workload_id
        AND m.node_type = o.node_type AND m.name = 'sizes' AND m.state <> 'replaced')
    AND NOT EXISTS (SELECT 1 FROM training_runs AS t WHERE t.observation_id = o.id)
"""


@dataclass(slots=True)
class Pruned:
    """How many rows are gone."""

    decisions: int = 0
    outcomes: int = 0
    observations: int = 0


def prune(
    store: StoreTransaction, *, decisions_before: str = "", observations_before: str = ""
) -> Pruned:
    """Forget what is older than the two times, in the store's form; "" keeps all of a kind."""
    done = Pruned()
    if decisions_before:
        _set_horizon(store, decisions_before)
        old = "SELECT rowid FROM outcomes WHERE collected_at < ?"
        done.outcomes = _steps(
            store,
            "outcomes",
            "rowid",
            old,
            decisions_before,
            _SUM_OUTCOMES,
            _NOTE_OUTCOMES + _NEED.format("collected_at"),
        )
        old = "SELECT id FROM decisions WHERE created_at < ?"
        done.decisions = _steps(
            store,
            "decisions",
            "id",
            old,
            decisions_before,
            _SUM,
            _NOTE + _NEED.format("created_at"),
        )
    if observations_before:
        done.observations = _steps(store, "observations", "id", _UNUSED, observations_before)
    return done


@dataclass(frozen=True, slots=True)
class MonthSums:
    """What was pruned of one month (``2026-01``): ``changed`` of the decisions rewrote their job,
    ``worse`` of the outcomes came out worse than promised."""

    month: str
    decisions: int
    changed: int
    outcomes: int
    worse: int
    node_s: float
    energy_j: float


def month_sums(reader: Reader, since: str, application: str = "") -> list[MonthSums]:
    """Return the sums of what was pruned, from the month of ``since`` (ISO 8601) on, in order.

    They are of whole months, and of all applications where none is named.
    """
    sums = ", ".join(f"sum({name})" for name in MonthSums.__slots__[1:])
    rows = reader.rows(
        f"SELECT month, {sums} FROM months WHERE month >= ?1 AND (?2 = '' OR application = ?2)"
        " GROUP BY month ORDER BY month",
        (since[:7], application),
    )
    return [MonthSums(*row) for row in rows]


class Summed:
    """What the sums by month hold already: it must not come into the store again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        rows = reader.rows("SELECT at FROM summed WHERE key = ''")
        self._horizon = str(rows[0][0]) if rows else ""

    def has_decision(self, id: str, created_at: str) -> bool:
        """Tell whether a decision was pruned."""
        return self._has(id, created_at)

    def has_outcome(self, scheduler: str, job_id: str, submitted_at: str, ended_at: str) -> bool:
        """Tell whether the outcome of a job was pruned."""
        return self._has(f"{scheduler} {job_id} {submitted_at}", ended_at)

    def _has(self, key: str, at: str) -> bool:
        if not self._horizon:
            return False
        if "" < at < self._horizon:
            return True
        return bool(self._reader.rows("SELECT 1 FROM summed WHERE key = ?", (key,)))


def _set_horizon(store: StoreTransaction, before: str) -> None:
    """Note up to when all is pruned; what is known one by one is needed after that only."""
    at = (datetime.now(UTC) - _BY_NAME).isoformat(timespec="seconds").replace("+00:00", "Z")
    with store.transaction() as db:
        db.execute(
            "INSERT INTO summed VALUES ('', ?) ON CONFLICT (key) DO UPDATE"
            " SET at = max(at, excluded.at)",
            (min(at, before),),
        )
        db.execute("DELETE FROM summed WHERE at < (SELECT at FROM summed WHERE key = '')")


def _steps(store: StoreTransaction, table: str, key: str, old: str, before: str, *also: str) -> int:
    """Delete the rows of a table that ``old`` finds, and do ``also`` with each part of them."""
    gone = 0
    while True:
        with store.transaction() as db:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS pruned (id)")
            db.execute("DELETE FROM pruned")
            db.execute(f"INSERT INTO pruned {old} LIMIT {_STEP}", (before,))
            for statement in also:
                db.execute(statement)
            deleted = db.execute(
                f"DELETE FROM {table} WHERE {key} IN (SELECT id FROM pruned)"
            ).rowcount
        gone += deleted
        if deleted < _STEP:
            return gone
