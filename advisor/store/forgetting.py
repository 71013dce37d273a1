"""Forget what was measured of an application, and undo that for a day. Standard library only.

Observations, characterisations, rankings, signatures and trials move into the table ``forgotten``;
models are taken out of use and stay, so that no later one gets their number: decisions and outcomes
name models by it. The workload's name stays too, hidden until something is measured of it again.
Decisions and outcomes are the site's history and stay as they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from advisor.core.option import pack_options
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction

KEPT = timedelta(days=1)
"""So long what was forgotten can be had back."""
ResultKind = Literal[
    "models", "observations", "characterisations", "rankings", "signatures", "trials"
]
_MOVED: tuple[ResultKind, ...] = (
    "observations",
    "characterisations",
    "rankings",
    "signatures",
    "trials",
)
_REASON = "forgotten"


@dataclass(frozen=True, slots=True)
class MeasuredResults:
    """What there is of one workload, or was forgotten or had back: how many of each."""

    application: str
    workload: str
    counts: Mapping[ResultKind, int] = field(default_factory=dict)

    @property
    def anything(self) -> bool:
        """Whether there is anything at all."""
        return any(self.counts.values())


def measured(
    reader: Reader, application: str, workload: str | None = None, *, since: str = ""
) -> list[MeasuredResults]:
    """Return what would be forgotten of an application or one workload, by workload.

    ``since`` (ISO 8601, UTC): only what was stored from then on.
    """
    results = []
    for w in reader.workloads(application):
        if workload in (None, w.name):
            counts = {
                table: len(reader.rows(f"SELECT id FROM {table} WHERE {where}", values))
                for table, where, values in _parts(w.id, since)
            }
            results.append(MeasuredResults(application, w.name, counts))
    return results


def _parts(workload_id: int, since: str) -> list[tuple[ResultKind, str, tuple[object, ...]]]:
    """Return for each table which rows of a workload are meant."""
    where, values = "workload_id = ? AND created_at >= ?", (workload_id, since)
    parts = [(table, where, values) for table in _MOVED]
    return [("models", f"{where} AND state <> 'replaced'", values), *parts]


def forget(
    writer: StoreTransaction,
    application: str,
    workload: str | None = None,
    *,
    since: str = "",
    by: str,
) -> list[MeasuredResults]:
    """Forget, in one transaction; return what was forgotten of each workload that had anything."""
    results, forgotten_at = [], _rows.now()
    with writer.batch():
        purge(writer)
        for w in writer.workloads(application):
            if workload not in (None, w.name):
                continue
            counts = {
                table: _forget(writer, (table, where, values), w.id, forgotten_at, by)
                for table, where, values in _parts(w.id, since)
            }
            if not since:
                writer.change("UPDATE workloads SET hidden = 1 WHERE id = ?", (w.id,))
            writer.touch(application, w.name)
            results.append(MeasuredResults(application, w.name, counts))
    return [m for m in results if m.anything]


def _forget(
    writer: StoreTransaction,
    part: tuple[ResultKind, str, tuple[object, ...]],
    workload_id: int,
    forgotten_at: str,
    forgotten_by: str,
) -> int:
    table, where, values = part
    models = table == "models"
    columns = "id, state, state_reason" if models else "*"
    doomed = writer.rows(f"SELECT {columns} FROM {table} WHERE {where} ORDER BY id", values)
    for row in doomed:
        writer.change(
            "INSERT INTO forgotten (workload_id, forgotten_at, forgotten_by, kind, record)"
            " VALUES (?, ?, ?, ?, ?)",
            (workload_id, forgotten_at, forgotten_by, table, _rows.to_json(dict(row))),
        )
        if models:
            writer.set_model_state(row["id"], "replaced", _REASON)
    if table == "observations":
        writer.change(
            "UPDATE training_runs SET observation_id = NULL WHERE observation_id IN"
            f" (SELECT id FROM observations WHERE {where})",
            values,
        )
    if not models:
        writer.change(f"DELETE FROM {table} WHERE {where}", values)
    return len(doomed)


def forgotten(reader: Reader) -> list[MeasuredResults]:
    """Return what can still be had back, by workload."""
    sql = (
        "SELECT w.application, w.name, f.kind FROM forgotten AS f"
        " JOIN workloads AS w ON w.id = f.workload_id WHERE f.forgotten_at > ?"
        " ORDER BY w.application, w.name"
    )
    by_workload: dict[tuple[str, str], Counter[ResultKind]] = {}
    for application, name, kind in reader.rows(sql, (_limit(),)):
        by_workload.setdefault((application, name), Counter())[kind] += 1
    return [MeasuredResults(*names, counts) for names, counts in by_workload.items()]


def remember(
    writer: StoreTransaction, application: str, workload: str | None = None
) -> list[MeasuredResults]:
    """Undo what was forgotten in the last day; return what came back, by workload.

    What was measured since wins: a model is only taken into use again where there is no newer one,
    a characterisation or ranking where the same contributor has no newer one.
    """
    names = {
        w["id"]: w["name"]
        for w in writer.rows("SELECT id, name FROM workloads WHERE application = ?", (application,))
        if workload in (None, w["name"])
    }
    by_workload: dict[str, Counter[ResultKind]] = {}
    with writer.batch():
        for row in writer.rows(
            "SELECT * FROM forgotten WHERE forgotten_at > ? ORDER BY id", (_limit(),)
        ):
            name = names.get(row["workload_id"])
            if name is None:
                continue
            counts = by_workload.setdefault(name, Counter(dict.fromkeys(("models", *_MOVED), 0)))
            counts[row["kind"]] += _restore(writer, row["kind"], json.loads(row["record"]))
            writer.change("DELETE FROM forgotten WHERE id = ?", (row["id"],))
            writer.change("UPDATE workloads SET hidden = 0 WHERE id = ?", (row["workload_id"],))
        for name in by_workload:
            writer.touch(application, name)
    return [MeasuredResults(application, name, counts) for name, counts in by_workload.items()]


def _restore(writer: StoreTransaction, kind: str, record: dict[str, Any]) -> int:
    if kind == "models":
        return writer.change(
            "UPDATE OR IGNORE models SET state = ?, state_reason = ?, updated_at = ?"
            " WHERE id = ? AND state = 'replaced' AND state_reason = ?",
            (record["state"], record["state_reason"], _rows.now(), record["id"], _REASON),
        )
    del record["id"]  # somebody else's by now, perhaps
    columns = ", ".join(record)
    marks = ", ".join("?" * len(record))
    return writer.change(
        f"INSERT OR IGNORE INTO {kind} ({columns}) VALUES ({marks})", tuple(record.values())
    )


def purge(writer: StoreTransaction) -> int:
    """Delete for good what was forgotten more than a day ago; return how much it was."""
    with writer.batch():
        writer.change(
            "UPDATE models SET options = ?, stats = '{}' WHERE state = 'replaced'"
            " AND state_reason = ? AND id IN (SELECT json_extract(record, '$.id') FROM forgotten"
            " WHERE kind = 'models' AND forgotten_at <= ?)",
            (pack_options(()), _REASON, _limit()),
        )
        return writer.change("DELETE FROM forgotten WHERE forgotten_at <= ?", (_limit(),))


def _limit() -> str:
    """Return the time from which on what was forgotten is kept, as the store writes times."""
    when = datetime.now(UTC) - KEPT
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
