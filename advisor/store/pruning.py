"""Forget old decisions and outcomes, and runs that no model uses; monthly sums stay.

Each step is one transaction of a few thousand rows, so that others may write in between, and what
is killed half-way has lost nothing that is not summed up.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.store.transaction import StoreTransaction

_STEP = 5000

_SUM = """
INSERT INTO months (month, application, node_type, decisions, changed)
    SELECT substr(created_at, 1, 7), application, node_type, count(*), sum(changed) FROM decisions
    WHERE id IN (SELECT id FROM pruned) GROUP BY 1, 2, 3
ON CONFLICT (month, application, node_type) DO UPDATE SET
    decisions = decisions + excluded.decisions, changed = changed + excluded.changed
"""
_SUM_OUTCOMES = """
INSERT INTO months (month, application, node_type, outcomes, worse, node_s, energy_j)
    SELECT substr(o.submitted_at, 1, 7), coalesce(d.application, ''), coalesce(d.node_type, ''),
        count(*), sum(o.verdict = 'worse'), total(o.nodes * o.time_s), total(o.energy_j)
    FROM outcomes AS o LEFT JOIN decisions AS d ON d.id = o.decision_id
    WHERE o.rowid IN (SELECT id FROM pruned) GROUP BY 1, 2, 3
ON CONFLICT (month, application, node_type) DO UPDATE SET
    outcomes = outcomes + excluded.outcomes, worse = worse + excluded.worse,
    node_s = node_s + excluded.node_s, energy_j = energy_j + excluded.energy_j
"""
_UNUSED = """
SELECT o.id FROM observations AS o WHERE o.created_at < ?
    AND NOT EXISTS (SELECT 1 FROM models AS m WHERE m.workload_id = o.workload_id
        AND m.node_type = o.node_type AND m.state <> 'replaced')
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
        old = "SELECT rowid FROM outcomes WHERE collected_at < ?"
        done.outcomes = _steps(store, "outcomes", "rowid", old, decisions_before, _SUM_OUTCOMES)
        old = "SELECT id FROM decisions WHERE created_at < ?"
        done.decisions = _steps(store, "decisions", "id", old, decisions_before, _SUM)
    if observations_before:
        done.observations = _steps(store, "observations", "id", _UNUSED, observations_before, "")
    return done


def _steps(store: StoreTransaction, table: str, key: str, old: str, before: str, sums: str) -> int:
    gone = 0
    while True:
        with store.transaction() as db:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS pruned (id)")
            db.execute("DELETE FROM pruned")
            db.execute(f"INSERT INTO pruned {old} LIMIT {_STEP}", (before,))
            if sums:
                db.execute(sums)
            found = db.execute(
                f"DELETE FROM {table} WHERE {key} IN (SELECT id FROM pruned)"
            ).rowcount
        gone += found
        if found < _STEP:
            return gone
