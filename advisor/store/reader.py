"""Read the store: sqlite3 only, so that the daemon's path stays light.

Works on a live store, whoever owns it, and on a published copy; :meth:`Reader.changed` says
when to look again. One thread at a time may use a Reader.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.core.cluster_name import is_federated
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory, NodeType
from advisor.core.observation import Scope
from advisor.core.policy import PolicySet
from advisor.core.request import understood_of
from advisor.errors import AdvisorError, StoreError
from advisor.store import rows as _rows
from advisor.store.connection import StoreConnection
from advisor.store.marks import marks
from advisor.store.records import (
    CLASS,
    HISTORY,
    SIZES,
    TRANSFER,
    ConfigKind,
    ConfigVersion,
    Outcome,
    StoredModel,
    StoredObservation,
    TrainingRequest,
    TrainingRun,
    Workload,
)

_BATCH = 500
"""Models read at once: few enough to stay small, many enough to stay fast."""


class Reader(StoreConnection):
    """Everything that can be asked of a store. Every method may raise StoreError."""

    # -- policy, site, inventory ---------------------------------------------------------------

    def policy(self) -> PolicySet:
        """Return the applied policy; the built-in default when none was applied."""
        applied = self.config("policy")
        if applied is None:
            return PolicySet()
        try:
            return PolicySet.from_compiled(applied.compiled, applied.version)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self.path}: policy version {applied.version} cannot be used: {error}",
                hint="apply it again: advisor policy apply",
            ) from None

    def site(self) -> dict[str, object]:
        """Return the compiled site file; empty when none was applied."""
        applied = self.config("site")
        return {} if applied is None else dict(applied.compiled)

    def inventory(self, cluster: str = "") -> Inventory:
        """Return all node types of the site, or those that a cluster's jobs may run on."""
        inventories = self.inventories()
        return (
            inventory_of(inventories, cluster)
            if cluster
            else Inventory.joined(inventories.values())
        )

    def inventories(self) -> dict[str, Inventory]:
        """Return the node types by cluster; "" are those of no cluster."""
        types: defaultdict[str, list[NodeType]] = defaultdict(list)
        for row in self.rows("SELECT cluster, name, spec FROM node_types ORDER BY cluster, name"):
            try:
                types[row["cluster"]].append(NodeType.from_dict(json.loads(row["spec"])))
            except (TypeError, ValueError):
                raise StoreError(
                    f"{self.path}: node type {row['name']} is damaged",
                    hint="read the inventory again: advisor site discover",
                ) from None
        return {cluster: Inventory.of(of_cluster) for cluster, of_cluster in types.items()}

    def inventory_sources(self, cluster: str = "") -> dict[str, str]:
        """Return where a cluster's node types are from: a scheduler's name, or ``site`` for the
        site file."""
        sql = "SELECT name, source FROM node_types WHERE cluster = ?"
        return {r["name"]: r["source"] for r in self.rows(sql, (cluster,))}

    def config(self, kind: ConfigKind, version: int | None = None) -> ConfigVersion | None:
        """Return one version of the policy or site file, the active one by default."""
        if version is None:
            versions = self.rows(
                "SELECT * FROM config_versions WHERE kind = ? AND active = 1", (kind,)
            )
        else:
            versions = self.rows(
                "SELECT * FROM config_versions WHERE kind = ? AND version = ?", (kind, version)
            )
        return _rows.config(versions[0]) if versions else None

    def config_history(self, kind: ConfigKind) -> list[ConfigVersion]:
        """Return every version of the policy or site file, oldest first."""
        sql = "SELECT * FROM config_versions WHERE kind = ? ORDER BY version"
        return [_rows.config(row) for row in self.rows(sql, (kind,))]

    def marks(self) -> tuple[object, ...]:
        """Return what differs as soon as anything a decision depends on has been written.

        Decisions and outcomes themselves do not count, so that a busy site does not look new.
        """
        return marks(self)

    # -- models --------------------------------------------------------------------------------

    def model_stamps(self) -> dict[int, str]:
        """Return id and updated_at of every current model, from an index alone."""
        sql = "SELECT id, updated_at FROM models WHERE state <> 'replaced'"
        return {row[0]: row[1] for row in self.rows(sql)}

    def models(self, ids: Iterable[int] | None = None) -> Iterator[StoredModel]:
        """Yield models: the given ones whatever their state, else all current ones, by id.

        Families' models (:meth:`size_models`) are of no workload; only the given ones are yielded.
        """
        if ids is not None:
            model_ids = sorted(set(ids))
            for start in range(0, len(model_ids), _BATCH):
                part = model_ids[start : start + _BATCH]
                marks = ",".join("?" * len(part))
                yield from self._models(f"m.id IN ({marks}) ORDER BY m.id", part)
            return
        last = -1
        while True:
            page = self._models(
                "m.state <> 'replaced' AND m.name <> 'sizes' AND m.id > ?"
                f" ORDER BY m.id LIMIT {_BATCH}",
                [last],
            )
            if not page:
                return
            yield from page
            last = page[-1].id

    def modelled(self) -> set[tuple[str, str]]:
        """Return each application with each node type that a current model of it is for."""
        sql = (
            "SELECT DISTINCT w.application, m.node_type FROM models AS m"
            " JOIN workloads AS w ON w.id = m.workload_id WHERE m.state <> 'replaced'"
        )
        return {(row[0], row[1]) for row in self.rows(sql)}

    def find_models(
        self, application: str, workload: str | None = None, node_type: str | None = None
    ) -> list[StoredModel]:
        """Return the current models (suspended ones too) of an application."""
        where = ["w.application = ?", "m.state <> 'replaced'", "m.name <> 'sizes'"]
        values = [application]
        if workload is not None:
            where.append("w.name = ?")
            values.append(workload)
        if node_type is not None:
            where.append("m.node_type = ?")
            values.append(node_type)
        return self._models(" AND ".join(where) + " ORDER BY w.name, m.node_type, m.id", values)

    def size_models(self, application: str) -> list[StoredModel]:
        """Return the current models (suspended ones too) of an application's families."""
        where = "w.application = ? AND m.state <> 'replaced' AND m.name = 'sizes' ORDER BY m.id"
        return self._models(where, [application])

    def fit_stats(self, node_type: str) -> Iterator[tuple[str, str, Scope, str, dict[str, Any]]]:
        """Give what the current fits on a node type keep of themselves, the newest first.

        Application, workload, scope, owner and the fit's stats; options are not read. Models that
        follow from others' are left out: nothing ran for them.
        """
        derived = (TRANSFER, CLASS, SIZES, HISTORY)
        sql = (
            "SELECT m.id, w.application, w.name, m.scope, m.owner, m.stats FROM models AS m"
            " JOIN workloads AS w ON w.id = m.workload_id"
            " WHERE m.node_type = ? AND m.state <> 'replaced'"
            f" AND m.name NOT IN ({', '.join('?' * len(derived))}) ORDER BY m.id DESC"
        )
        for number, *place, stats in self.rows(sql, (node_type, *derived)):
            application, workload, scope, owner = place
            yield application, workload, scope, owner, _rows.from_json(stats, f"model {number}")

    def _models(self, where: str, values: list[Any]) -> list[StoredModel]:
        sql = (
            f"SELECT {_rows.MODEL_COLUMNS} FROM models AS m"
            f" JOIN workloads AS w ON w.id = m.workload_id WHERE {where}"
        )
        return [_rows.model(row) for row in self.rows(sql, values)]

    # -- workloads and observations ------------------------------------------------------------

    def workloads(self, application: str | None = None) -> list[Workload]:
        """Return the workloads of one application, or of all, with their number of runs.

        Those that were forgotten are left out.
        """
        where = "" if application is None else "AND application = ?"
        sql = (
            "SELECT id, application, name, (SELECT count(*) FROM observations AS o"
            f" WHERE o.workload_id = w.id) FROM workloads AS w WHERE hidden = 0 {where}"
            " ORDER BY application, name"
        )
        values = () if application is None else (application,)
        return [Workload(*row) for row in self.rows(sql, values)]

    def observations(
        self,
        application: str,
        workload: str | None = None,
        node_type: str | None = None,
        *,
        user: str | None = None,
        account: str = "",
    ) -> list[StoredObservation]:
        """Return an application's measured runs, oldest first.

        With ``user``, only those that may advise that user's jobs: scope ``all``, scope
        ``account`` of the same (named) account, and the user's own.
        """
        where, values = ["w.application = ?"], [application]
        if workload is not None:
            where.append("w.name = ?")
            values.append(workload)
        if node_type is not None:
            where.append("o.node_type = ?")
            values.append(node_type)
        if user is not None:
            where.append(
                "(o.scope = 'all' OR o.contributor = ?"
                " OR (o.scope = 'account' AND o.account = ? AND o.account <> ''))"
            )
            values += [user, account]
        sql = (
            f"SELECT {_rows.OBSERVATION_COLUMNS} FROM observations AS o"
            " JOIN workloads AS w ON w.id = o.workload_id"
            f" WHERE {' AND '.join(where)} ORDER BY o.id"
        )
        return [_rows.observation(row) for row in self.rows(sql, values)]

    # -- decisions and outcomes ----------------------------------------------------------------

    def decision(self, id: str) -> Decision | None:
        """Return a decision, None when it is not known."""
        return next(iter(self._decisions("id = ?", (id,))), None)

    def decision_for_job(self, job_id: str, cluster: str = "") -> Decision | None:
        """Return the latest decision for a job of a cluster, or of any.

        ``4711_3`` (a task of a job array) finds the decision for ``4711`` when it has none of
        its own.
        """
        for name in dict.fromkeys((job_id, array_of(job_id))):
            condition, values = of_job(name, cluster)
            where = f"{condition} AND job_id <> '' ORDER BY created_at DESC LIMIT 1"
            for decision in self._decisions(where, values):
                return decision
        return None

    def decisions_of(
        self, job_id: str, user: str, cluster: str = "", *, brief: bool = False
    ) -> list[Decision]:
        """Return the decisions that are linked to a job of a user, newest first.

        ``cluster``: the job's, "" for any.

        ``brief`` leaves the request, alternatives, sentences and what was read out: most of the
        work.
        """
        condition, values = of_job(job_id, cluster)
        where = f"{condition} AND job_id <> '' AND user = ? ORDER BY created_at DESC"
        return self._decisions(where, (*values, user), brief)

    def decisions(
        self, *, user: str | None = None, offset: int = 0, limit: int = 1000
    ) -> list[Decision]:
        """Return decisions, a user's or everybody's, newest first."""
        where, values = ("1", []) if user is None else ("user = ?", [user])
        order = "ORDER BY created_at DESC, rowid DESC LIMIT ? OFFSET ?"
        return self._decisions(f"{where} {order}", [*values, limit, offset])

    def decisions_since(
        self, moment: str, user: str | None, cluster: str = "", *, newest: int
    ) -> list[Decision]:
        """Return the last decisions since a moment (UTC) whose job is known: a user's or all, of a
        cluster or any."""
        where, values = ("", []) if user is None else (" AND user = ?", [user])
        if cluster:
            where, values = f"{where} AND cluster = ?", [*values, cluster]
        where = f"created_at >= ? AND job_id <> ''{where} ORDER BY created_at DESC LIMIT ?"
        return self._decisions(where, [moment, *values, newest], True)

    def _decisions(
        self, where: str, values: Sequence[object], brief: bool = False
    ) -> list[Decision]:
        columns = _rows.BRIEF_DECISION_COLUMNS if brief else _rows.DECISION_COLUMNS
        sql = f"SELECT {columns} FROM decisions WHERE {where}"
        return [_rows.decision(row) for row in self.rows(sql, values)]

    def outcome(self, job_id: str, cluster: str = "") -> Outcome | None:
        """Return the latest outcome of a job of a cluster, or of any; None where none was
        collected."""
        return next(iter(self.outcomes(*of_job(job_id, cluster))[::-1]), None)

    def outcomes(
        self, where: str = "1", values: Sequence[object] = (), *, newest: int | None = None
    ) -> list[Outcome]:
        """Return the outcomes of a condition in SQL, in the order the jobs were submitted.

        ``newest``: at most so many of them, the last one first.
        """
        order = "submitted_at, job_id"
        if newest is not None:
            order = f"submitted_at DESC, job_id DESC LIMIT {newest}"
        sql = f"SELECT * FROM outcomes WHERE {where} ORDER BY {order}"
        return [_rows.outcome(row) for row in self.rows(sql, values)]

    # -- training ------------------------------------------------------------------------------

    def training_requests(self, state: str | None = None) -> list[TrainingRequest]:
        """Return the training requests in a state, or all, oldest first."""
        sql = (
            f"SELECT {_rows.REQUEST_COLUMNS} FROM training_requests AS r"
            " JOIN workloads AS w ON w.id = r.workload_id WHERE :state IS NULL OR r.state = :state"
            " ORDER BY r.created_at, r.id"
        )
        return [_rows.request(row) for row in self.rows(sql, {"state": state})]

    def swept_baseline(
        self, application: str, workload: str, node_type: str
    ) -> Configuration | None:
        """Return the job as it was in the latest sweep of a workload, None without any."""
        where = "w.application = ? AND w.name = ? AND r.node_type = ?"
        baselines = self._baselines(where, (application, workload, node_type))
        return next(iter(baselines.values()), None)

    def swept_baselines(self) -> dict[tuple[str, str, str], Configuration]:
        """Return every swept job as it was, by application, workload and node type."""
        return self._baselines("1", ())

    def _baselines(
        self, where: str, values: tuple[str, ...]
    ) -> dict[tuple[str, str, str], Configuration]:
        sql = (
            "SELECT w.application, w.name, r.node_type, t.* FROM training_runs AS t"
            " JOIN training_requests AS r ON r.id = t.request_id"
            " JOIN workloads AS w ON w.id = r.workload_id"
            f" WHERE t.role = 'baseline' AND {where} ORDER BY r.created_at, t.seq DESC"
        )
        rows = self.rows(sql, values)
        # Of several rows the last one stays: the first run of the latest sweep.
        return {(row[0], row[1], row[2]): _rows.run(row).configuration for row in rows}

    def training_runs(self, request_id: str) -> list[TrainingRun]:
        """Return the runs of a sweep in order."""
        sql = "SELECT * FROM training_runs WHERE request_id = ? ORDER BY seq"
        return [_rows.run(row) for row in self.rows(sql, (request_id,))]


def of_job(job_id: str, cluster: str) -> tuple[str, tuple[str, ...]]:
    """Return the condition in SQL, and its values, that rows are of a job.

    ``cluster`` "" is any. Rows that name none may be of every cluster, and a federated job's id is
    the same on all.
    """
    if not cluster or is_federated(job_id):
        return "job_id = ?", (job_id,)
    return "job_id = ? AND cluster IN (?, '')", (job_id, cluster)


def inventory_of(inventories: Mapping[str, Inventory], cluster: str) -> Inventory:
    """Return the node types of one cluster, with those of no cluster that it has not itself.

    Where no inventory is of a cluster, or it is not known which one is asked for (""), all count.
    """
    named = [name for name in inventories if name]
    if not named or (not cluster and len(named) > 1):
        return Inventory.joined(inventories.values())
    of_cluster = inventories.get(cluster or named[0], Inventory()).node_types
    unnamed = inventories.get("", Inventory()).node_types
    return Inventory.of({**unnamed, **of_cluster}.values())


def array_of(job_id: str) -> str:
    """Return the job that a task of an array or a part of a heterogeneous job belongs to."""
    if job_id.isdecimal():
        return job_id
    return job_id.partition("_")[0].partition("+")[0].partition("[")[0]


def understood_options(path: Path) -> dict[str, tuple[str, ...]]:
    """Return what a store's site file says of options in no table; nothing without a store."""
    try:
        with Reader(path) as reader:
            return understood_of(reader.site())
    except AdvisorError:
        return {}
