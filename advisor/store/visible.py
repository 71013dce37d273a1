"""What a user may see of the store, a page at a time, as the daemon answers it.

Everybody sees the site, and the models and runs that may advise their jobs; their own decisions and
outcomes; administrators see all of those. :mod:`advisor.store.seen` makes a copy of the pages.
Standard library only.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from typing import Any

from advisor.core.protocol import ProtocolError
from advisor.store.connection import StoreConnection

PAGE = 200
"""Rows of a page, the large ones excepted."""
_MODELS, _JOBS = 10, 50
_TABLES = 200_000
"""Bytes of families' tables in a page, but for a single one."""

SHOWN = ("applications", "options", "history")
"""The operations that read a page, as long as the store takes: never in the daemon's loop."""

TableRow = dict[str, Any]

_SEEN_MODEL = "(m.scope <> 'own' OR m.owner = :user)"
_SEEN_RUN = "(o.scope <> 'own' OR o.contributor = :user)"


def page(
    store: StoreConnection, request: Mapping[str, object], user: str, *, all_jobs: bool
) -> TableRow:
    """Return the tables' rows of one page for a user, and ``next``, where the following begins.

    Raises ProtocolError for a request that makes no sense, and StoreError.
    """
    last_id = request.get("after") or 0
    # An id has 63 bits: more, the database refuses as a number.
    if not isinstance(last_id, int) or not 0 <= last_id < 1 << 62:
        raise ProtocolError("after must be a number that a page named as next")
    values: TableRow = {"user": user, "after": last_id}
    for key in ("application", "workload", "node_type", "job"):
        value = request.get(key)
        if value is not None and not isinstance(value, str):
            raise ProtocolError(f"{key} must be text")
        values[key] = value
    work = {"applications": _applications, "options": _options, "history": _history}
    return work[str(request["op"])](store, values, all_jobs)


def _rows(store: StoreConnection, sql: str, values: TableRow) -> list[TableRow]:
    return [dict(row) for row in store.rows(sql, values)]


def _applications(store: StoreConnection, values: TableRow, all_jobs: bool) -> TableRow:
    tables: TableRow = {}
    if not values["after"]:
        sql = "SELECT * FROM config_versions WHERE active = 1"
        tables["config_versions"] = _rows(store, sql, values)
        for row in tables["config_versions"]:
            row["text"] = ""  # comments are the admin's
        tables["node_types"] = _rows(store, "SELECT * FROM node_types", values)
    rows = _rows(
        store,
        "SELECT w.* FROM workloads AS w WHERE w.hidden = 0 AND w.id > :after AND (EXISTS"
        f" (SELECT 1 FROM models AS m WHERE m.workload_id = w.id AND {_SEEN_MODEL}) OR EXISTS"
        f" (SELECT 1 FROM observations AS o WHERE o.workload_id = w.id AND {_SEEN_RUN}))"
        f" ORDER BY w.id LIMIT {PAGE}",
        values,
    )
    return {**tables, "workloads": rows, "next": rows[-1]["id"] if len(rows) == PAGE else None}


def _options(store: StoreConnection, values: TableRow, all_jobs: bool) -> TableRow:
    # only what is asked for stands there, so that an index finds it
    name_columns = (("application", "w.application"), ("workload", "w.name"))
    where = (
        " AND ".join(f"{c} = :{key}" for key, c in name_columns if values[key] is not None) or "1"
    )
    on_node_type = "" if values["node_type"] is None else " AND {}.node_type = :node_type"
    rows = _rows(
        store,
        "SELECT m.* FROM models AS m JOIN workloads AS w ON w.id = m.workload_id WHERE"
        " m.state <> 'replaced' AND m.id > :after"
        f" AND {_SEEN_MODEL} AND {where}{on_node_type.format('m')} ORDER BY m.id LIMIT {_MODELS}",
        values,
    )
    more = len(rows) == _MODELS
    sizes = itertools.accumulate(len(row["sizes"]) for row in rows)
    fit = max(1, sum(total <= _TABLES for total in sizes))
    rows, more = rows[:fit], more or fit < len(rows)
    for row in rows:
        for blob in ("options", "sizes"):
            row[blob] = base64.b64encode(row[blob]).decode()
    tables: TableRow = {"models": rows, "next": rows[-1]["id"] if more and rows else None}
    numbers = ", ".join(str(row["workload_id"]) for row in rows if row["name"] == "sizes")
    if numbers:  # families' names, which lists of workloads do not show
        sql = f"SELECT * FROM workloads WHERE id IN ({numbers})"
        tables["workloads"] = _rows(store, sql, {})
    if values["after"] or values["application"] is None:
        return tables
    tables["observations"] = _rows(
        store,
        "SELECT o.* FROM observations AS o JOIN workloads AS w ON w.id = o.workload_id WHERE"
        f" {_SEEN_RUN} AND {where}{on_node_type.format('o')} ORDER BY o.id DESC LIMIT {PAGE}",
        values,
    )
    for row in tables["observations"]:
        is_contributor = row["contributor"] == values["user"]
        row.update(
            import_id=None, extra="{}", contributor=row["contributor"] if is_contributor else ""
        )
    requests = (
        "FROM training_requests AS r JOIN workloads AS w ON w.id = r.workload_id"
        f" JOIN training_runs AS t ON t.request_id = r.id WHERE t.role = 'baseline' AND {where}"
        f"{on_node_type.format('r')}"
    )
    tables["training_requests"] = _rows(
        store, f"SELECT DISTINCT r.* {requests} ORDER BY r.created_at DESC LIMIT 20", values
    )
    shown = {row["id"] for row in tables["training_requests"]}
    runs = _rows(store, f"SELECT t.* {requests} ORDER BY r.created_at DESC LIMIT {PAGE}", values)
    tables["training_runs"] = [
        {**row, "observation_id": None} for row in runs if row["request_id"] in shown
    ]
    for row in tables["training_requests"]:
        row.update(user="", detail="", plan="{}")
    return tables


def _history(store: StoreConnection, values: TableRow, all_jobs: bool) -> TableRow:
    # "+": found by job, not by user, who may have very many
    whose = "1" if all_jobs else "+user = :user"
    if values["job"] is not None:
        base = values["job"].partition("_")[0].partition("[")[0]
        # Ranges rather than patterns: an index finds them, however many jobs the user has.
        values |= {
            "base": base,
            "tasks": f"{base}_",
            "no_task": f"{base}`",
            "array": f"{base}[",
            "no_array": f"{base}\\",
        }
        job_rows = " UNION ".join(
            f"SELECT rowid FROM outcomes WHERE {condition}"
            for condition in (
                "job_id IN (:job, :base)",
                "job_id >= :tasks AND job_id < :no_task",
                "job_id >= :array AND job_id < :no_array",
            )
        )
        outcomes = _rows(
            store,
            f"SELECT * FROM outcomes WHERE rowid IN ({job_rows}) AND {whose}"
            f" ORDER BY rowid LIMIT {_JOBS}",
            values,
        )
        decisions = _rows(
            store,
            f"SELECT * FROM decisions WHERE job_id IN (:job, :base) AND job_id <> '' AND {whose}"
            f" ORDER BY created_at DESC LIMIT {_JOBS}",
            values,
        )
        return {
            "decisions": _and_of(store, decisions, outcomes, values, whose),
            "outcomes": outcomes,
            "next": None,
        }
    later = (
        "(created_at, rowid) < (SELECT created_at, rowid FROM decisions WHERE rowid = :after)"
        if values["after"]
        else "1"
    )
    rows = _rows(
        store,
        f"SELECT rowid AS _at, * FROM decisions WHERE {later} AND {whose.lstrip('+')}"
        f" ORDER BY created_at DESC, rowid DESC LIMIT {_JOBS}",
        values,
    )
    following = rows[-1]["_at"] if len(rows) == _JOBS else None
    for row in rows:
        del row["_at"]
    jobs = [row["job_id"] for row in rows if row["job_id"]]
    names = {f"j{i}": job for i, job in enumerate(jobs)}
    marks = ", ".join(f":{name}" for name in names)
    outcomes = _rows(
        store, f"SELECT * FROM outcomes WHERE job_id IN ({marks}) AND {whose}", values | names
    )
    return {"decisions": rows, "outcomes": outcomes, "next": following}


def _and_of(
    store: StoreConnection,
    decisions: list[TableRow],
    outcomes: list[TableRow],
    values: TableRow,
    whose: str,
) -> list[TableRow]:
    """Return decisions and those that outcomes name besides them."""
    decision_ids = {row["id"] for row in decisions}
    for outcome in outcomes:
        if outcome["decision_id"] and outcome["decision_id"] not in decision_ids:
            decision_ids.add(outcome["decision_id"])
            named = values | {"id": outcome["decision_id"]}
            decisions += _rows(store, f"SELECT * FROM decisions WHERE id = :id AND {whose}", named)
    return decisions
