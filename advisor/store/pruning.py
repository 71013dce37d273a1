"""Forget old decisions and outcomes, and runs that no model uses; monthly sums stay.

What is pruned moves into the table ``pruned_rows`` for a day, as what is forgotten does
(:mod:`advisor.store.forgetting`), and can be had back. Each step is one transaction of a few
thousand rows, so that others may write in between, and what is killed half-way has lost nothing
that is not summed up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from advisor.core.codec import Count
from advisor.store import rows as _rows
from advisor.store.port import Database
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction

_STEP = 5000
"""Rows deleted in one transaction, so that others can write between."""
_BY_NAME = timedelta(days=30)
"""What was pruned is known one by one for so long; all that is older counts as pruned with it."""

KEPT = timedelta(days=1)
"""So long what was pruned can be had back."""

_SUM = """
INSERT INTO months (month, cluster, application, node_type, decisions, changed)
    SELECT substr(created_at, 1, 7), cluster, application, node_type, count(*), sum(changed)
    FROM decisions WHERE id IN (SELECT id FROM pruned_names) GROUP BY 1, 2, 3, 4
ON CONFLICT (month, cluster, application, node_type) DO UPDATE SET
    decisions = months.decisions + excluded.decisions,
    changed = months.changed + excluded.changed
"""
_SUM_OUTCOMES = """
INSERT INTO months (month, cluster, application, node_type, outcomes, worse, node_s, energy_j)
    SELECT substr(o.submitted_at, 1, 7), o.cluster,
        coalesce(d.application, json_extract(o.record, '$.application'), ''),
        coalesce(d.node_type, json_extract(o.record, '$.baseline.node_type'), ''),
        count(*), sum(o.verdict = 'worse'), total(o.nodes * o.time_s), total(o.energy_j)
    FROM outcomes AS o LEFT JOIN decisions AS d ON d.id = o.decision_id
    WHERE o.rowid IN (SELECT id FROM pruned_numbers) GROUP BY 1, 2, 3, 4
ON CONFLICT (month, cluster, application, node_type) DO UPDATE SET
    outcomes = months.outcomes + excluded.outcomes, worse = months.worse + excluded.worse,
    node_s = months.node_s + excluded.node_s, energy_j = months.energy_j + excluded.energy_j
"""
_NOTE = (
    "INSERT OR REPLACE INTO summed SELECT id, created_at FROM decisions"
    " WHERE id IN (SELECT id FROM pruned_names)"
)
_NOTE_OUTCOMES = """
INSERT OR REPLACE INTO summed
    SELECT rtrim(scheduler || ' ' || cluster) || ' ' || job_id || ' ' || submitted_at, collected_at
    FROM outcomes WHERE rowid IN (SELECT id FROM pruned_numbers)
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


_OLD_OUTCOMES = "SELECT rowid FROM outcomes WHERE collected_at < ?"
_OLD_DECISIONS = "SELECT id FROM decisions WHERE created_at < ?"
_KEYS = {
    "decisions": ("id",),
    "outcomes": _rows.OUTCOME_KEY,
    "observations": ("id",),
}
"""What a row is found by."""


@dataclass(slots=True)
class Pruned:
    """How many rows are gone, or would go, or are back."""

    decisions: Count = 0
    outcomes: Count = 0
    observations: Count = 0

    @property
    def anything(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.decisions or self.outcomes or self.observations)


def to_prune(
    reader: Reader, *, decisions_before: str = "", observations_before: str = ""
) -> Pruned:
    """Return how many rows :func:`prune` would take."""

    def count(old: str, cutoff: str) -> int:
        return (
            int(reader.rows(f"SELECT count(*) FROM ({old}) AS old", (cutoff,))[0][0])
            if cutoff
            else 0
        )

    return Pruned(
        count(_OLD_DECISIONS, decisions_before),
        count(_OLD_OUTCOMES, decisions_before),
        count(_UNUSED, observations_before),
    )


def prune(
    store: StoreTransaction,
    *,
    decisions_before: str = "",
    observations_before: str = "",
    up_to: Mapping[str, int] | None = None,
) -> Pruned:
    """Forget what is older than the two times, in the store's form; "" keeps all of a kind.

    ``up_to``: the number of the last row of each table that may go, none of a table without. It
    can be had back for a day by :func:`restore_pruned`.
    """

    def without_later(old: str, table: str, number: str) -> str:
        """Return the condition ``old`` for rows up to the table's last one that may go."""
        return old if up_to is None else f"{old} AND {number} <= {int(up_to.get(table, -1))}"

    pruned = Pruned()
    old_outcomes = without_later(_OLD_OUTCOMES, "outcomes", "rowid")
    old_decisions = without_later(_OLD_DECISIONS, "decisions", "rowid")
    unused = without_later(_UNUSED, "observations", "o.id")
    purge_pruned(store)
    if decisions_before:
        _set_horizon(store, decisions_before)
        note = _NOTE_OUTCOMES + _NEED.format("collected_at")
        pruned.outcomes = _steps(
            store, "outcomes", "rowid", old_outcomes, decisions_before, _SUM_OUTCOMES, note
        )
        note = _NOTE + _NEED.format("created_at")
        pruned.decisions = _steps(
            store, "decisions", "id", old_decisions, decisions_before, _SUM, note
        )
    if observations_before:
        pruned.observations = _steps(store, "observations", "id", unused, observations_before)
    return pruned


def restore_pruned(store: StoreTransaction) -> Pruned:
    """Undo what was pruned in the last day; return what is back.

    What is in the store again since wins. The sums by month are less by what is back.
    """
    restored = Pruned()
    with store.transaction() as db:
        for kind in ("decisions", "outcomes", "observations"):  # outcomes' sums read decisions
            while part := _kept_rows(db, kind):
                setattr(restored, kind, getattr(restored, kind) + _put_back(db, kind, part))
        for number, record in _kept_rows(db, "horizon"):
            former = json.loads(record)
            db.execute("DELETE FROM summed WHERE key = ''")
            if former:
                db.execute("INSERT INTO summed VALUES ('', ?)", (former,))
            db.execute("DELETE FROM pruned_rows WHERE id = ?", (number,))
            break  # the oldest: what was before all that is back
        db.execute("DELETE FROM pruned_rows WHERE kind = 'horizon'")
        db.execute("DELETE FROM months WHERE decisions <= 0 AND outcomes <= 0")
    return restored


def pruned_lately(reader: Reader) -> Pruned:
    """Return what :func:`restore_pruned` would put back."""
    sql = "SELECT kind, count(*) FROM pruned_rows WHERE pruned_at > ? GROUP BY kind"
    counts = {kind: count for kind, count in reader.rows(sql, (_limit(),))}
    return Pruned(*(counts.get(kind, 0) for kind in _KEYS))


def purge_pruned(store: StoreTransaction) -> int:
    """Delete for good what was pruned more than a day ago; return how much it was."""
    return store.change("DELETE FROM pruned_rows WHERE pruned_at <= ?", (_limit(),))


def _limit() -> str:
    when = datetime.now(UTC) - KEPT
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _kept_rows(db: Database, kind: str) -> list[tuple[int, str]]:
    sql = (
        "SELECT id, record FROM pruned_rows WHERE kind = ? AND pruned_at > ? ORDER BY id"
        f" LIMIT {_STEP}"
    )
    return [(row[0], row[1]) for row in db.execute(sql, (kind, _limit()))]


def _put_back(db: Database, kind: str, part: Sequence[tuple[int, str]]) -> int:
    """Put one part of a table back, take it out of the sums, and note it no longer as summed."""
    records = [json.loads(record) for _, record in part]
    back = 0
    for record in records:
        row = dict(record)
        if kind == "observations":
            del row["id"]  # somebody else's by now, perhaps
        columns, marks = ", ".join(row), ", ".join("?" * len(row))
        sql = f"INSERT OR IGNORE INTO {kind} ({columns}) VALUES ({marks})"
        back += db.execute(sql, tuple(row.values())).rowcount
    if kind != "observations":
        names = _begin_part(db, kind)
        keys = _KEYS[kind]
        where = " AND ".join(f"{key} = ?" for key in keys)
        row_key = "id" if kind == "decisions" else "rowid"
        db.executemany(
            f"INSERT INTO {names} SELECT {row_key} FROM {kind} WHERE {where}",
            [tuple(record.get(key, "") for key in keys) for record in records],
        )
        sums = _SUM if kind == "decisions" else _SUM_OUTCOMES
        db.execute(sums.replace(" + excluded.", " - excluded."))
        keys_summed = [
            (record["id"],)
            if kind == "decisions"
            else (_summed_key(*(str(record.get(key, "")) for key in _rows.OUTCOME_KEY)),)
            for record in records
        ]
        db.executemany("DELETE FROM summed WHERE key = ?", keys_summed)
    db.executemany("DELETE FROM pruned_rows WHERE id = ?", [(number,) for number, _ in part])
    return back


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


def month_sums(
    reader: Reader, since: str, application: str = "", cluster: str = ""
) -> list[MonthSums]:
    """Return the sums of what was pruned, from the month of ``since`` (ISO 8601) on, in order.

    They are of whole months, and of all applications and clusters where none is named.
    """
    sums = ", ".join(f"sum({name})" for name in MonthSums.__slots__[1:])
    rows = reader.rows(
        f"SELECT month, {sums} FROM months WHERE month >= ?1 AND (?2 = '' OR application = ?2)"
        " AND (?3 = '' OR cluster = ?3) GROUP BY month ORDER BY month",
        (since[:7], application, cluster),
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
        return self._is_summed(id, created_at)

    def has_outcome(self, key: _rows.OutcomeKey, ended_at: str) -> bool:
        """Tell whether the outcome of a job was pruned, before clusters were known or since."""
        job_id, scheduler, _, submitted_at = key
        former = _summed_key(job_id, scheduler, "", submitted_at)
        return any(self._is_summed(name, ended_at) for name in {_summed_key(*key), former})

    def _is_summed(self, key: str, submitted_at: str) -> bool:
        if not self._horizon:
            return False
        if "" < submitted_at < self._horizon:
            return True
        return bool(self._reader.rows("SELECT 1 FROM summed WHERE key = ?", (key,)))


def _summed_key(job_id: str, scheduler: str, cluster: str, submitted_at: str) -> str:
    """Return what the table ``summed`` knows a job's outcome by."""
    return f"{f'{scheduler} {cluster}'.rstrip()} {job_id} {submitted_at}"


def _set_horizon(store: StoreTransaction, cutoff: str) -> None:
    """Note up to when all is pruned; what is known one by one is needed after that only."""
    named_since = (
        (datetime.now(UTC) - _BY_NAME).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
    with store.transaction() as db:
        former = db.execute("SELECT at FROM summed WHERE key = ''").fetchone()
        db.execute(
            "INSERT INTO pruned_rows (pruned_at, kind, record) VALUES (?, 'horizon', ?)",
            (_rows.now(), json.dumps(former[0] if former else "")),
        )
        db.execute(
            "INSERT INTO summed VALUES ('', ?) ON CONFLICT (key) DO UPDATE"
            " SET at = CASE WHEN excluded.at > summed.at THEN excluded.at ELSE summed.at END",
            (min(named_since, cutoff),),
        )
        db.execute("DELETE FROM summed WHERE at < (SELECT at FROM summed WHERE key = '')")


def _steps(store: StoreTransaction, table: str, key: str, old: str, cutoff: str, *also: str) -> int:
    """Delete the rows of a table that ``old`` finds, and do ``also`` with each part of them."""
    deleted_total, part = 0, f"{key} IN (SELECT id FROM {_part_of(table)})"
    while True:
        with store.transaction() as db:
            names = _begin_part(db, table)
            db.execute(f"INSERT INTO {names} {old} LIMIT {_STEP}", (cutoff,))
            for statement in also:
                db.execute(statement)
            pruned_at = _rows.now()
            doomed = db.execute(f"SELECT * FROM {table} WHERE {part}")
            db.executemany(  # SQLite's own JSON would round what it writes
                "INSERT INTO pruned_rows (pruned_at, kind, record) VALUES (?, ?, ?)",
                [(pruned_at, table, _rows.to_json(dict(row))) for row in doomed.fetchall()],
            )
            deleted = db.execute(f"DELETE FROM {table} WHERE {part}").rowcount
        deleted_total += deleted
        if deleted < _STEP:
            return deleted_total


def _begin_part(db: Database, table: str) -> str:
    """Make room for what the rows of one part are found by; return the table for that."""
    kind, names = "TEXT" if table == "decisions" else "INTEGER", _part_of(table)
    db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {names} (id {kind})")
    db.execute(f"DELETE FROM {names}")
    return names


def _part_of(table: str) -> str:
    return "pruned_names" if table == "decisions" else "pruned_numbers"
