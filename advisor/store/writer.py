"""Write the store: every method is one transaction, all of it or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

from advisor.core.configuration import SearchSpace
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory, NodeType
from advisor.core.observation import Observation, Scope
from advisor.core.program import joined
from advisor.errors import InputError
from advisor.store import rows as _rows
from advisor.store.port import Database
from advisor.store.records import ConfigKind, Outcome, TrainingRequest, TrainingRun
from advisor.store.signature_groups import Named
from advisor.store.transaction import StoreTransaction, insert, insertion, marks

_SAME_RUN = (
    "node_type",
    "nodes",
    "ranks_per_node",
    "threads_per_node",
    "freq_khz",
    "time_s",
    "energy_j",
    "fom",
    "contributor",
    "extra",
)
_COLUMNS = attrgetter(*Outcome.__slots__)  # of an outcome, record and collected_at last
_SAVE_OUTCOME = insertion("outcomes", Outcome.__slots__, _rows.OUTCOME_KEY)
_STEP = 2000
"""Runs between two looks at how far an import is."""


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file that runs come from: its name, its digest, and the user who imports it."""

    file: str
    sha256: str
    imported_by: str


class Writer(StoreTransaction):
    """Everything that is written by itself. Every method may raise StoreError.

    Nothing is changed then.
    """

    # -- observations --------------------------------------------------------------------------

    def add_observations(
        self, application: str, workload: str, observations: Sequence[Observation]
    ) -> list[int]:
        """Add measured runs and return their ids. Raises InputError on an impossible one."""
        with self.transaction() as db:
            workload_id = self.workload_id(db, application, workload)
            created_at = _rows.now()
            if any(run.source == "job" for run in observations):  # their family knows more by them
                self.touch_sizes([(application, workload)])
            return [
                insert(db, "observations", _rows.observation_row(workload_id, run, created_at))
                for run in observations
            ]

    def add_runs_of_jobs(
        self, runs: Sequence[tuple[int, Observation]], named: Iterable[Named]
    ) -> None:
        """Add runs of jobs by their workloads' numbers, inside a transaction.

        ``named`` are these workloads, whose families know more by them.
        """
        if not runs:
            return
        created_at = _rows.now()
        rows = [_rows.observation_row(number, run, created_at) for number, run in runs]
        sql = insertion("observations", tuple(rows[0]))
        self.change_many(sql, [_rows.cleaned(row.values()) for row in rows])
        self.touch_sizes(named)

    def import_observations(
        self,
        application: str,
        workload: str,
        observations: Sequence[Observation],
        source: ImportedFile,
        *,
        again: bool = False,
        step: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Add the runs of one file and return how many were new.

        Unless ``again``, a run equal to one from a file of this name or content counts as
        the same run; repeats inside the file are kept. ``step`` is called now and then with how
        many are looked at.
        """
        source = replace(source, file=_rows.clean(source.file))
        with self.transaction() as db:
            workload_id = self.workload_id(db, application, workload)
            imported_counts = Counter() if again else self._imported(db, workload_id, source)
            fresh, imported_at = [], _rows.now()
            for number, run in enumerate(observations):
                if number % _STEP == 0:
                    step(number)
                row = _rows.observation_row(workload_id, run, imported_at)
                run_key = tuple(row[name] for name in _SAME_RUN) if imported_counts else ()
                # One stored run takes the place of one in the file: a repeat there is a run of its
                # own.
                if imported_counts[run_key]:
                    imported_counts[run_key] -= 1
                else:
                    fresh.append(row)
            if fresh:
                values = {**asdict(source), "imported_at": imported_at}
                import_id = insert(db, "imports", values)
                columns = [*fresh[0], "import_id"]
                db.executemany(
                    f"INSERT INTO observations ({', '.join(columns)}) VALUES ({marks(columns)})",
                    ([*row.values(), import_id] for row in fresh),
                )
            return len(fresh)

    def _imported(
        self, db: Database, workload_id: int, source: ImportedFile
    ) -> Counter[tuple[Any, ...]]:
        sql = (
            f"SELECT {', '.join(f'o.{name}' for name in _SAME_RUN)} FROM observations AS o"
            " JOIN imports AS i ON i.id = o.import_id"
            " WHERE o.workload_id = ? AND (i.file = ? OR i.sha256 = ?)"
        )
        return Counter(map(tuple, db.execute(sql, (workload_id, source.file, source.sha256))))

    def save_space(self, ids: Iterable[int], space: SearchSpace) -> None:
        """Keep with runs the grid that their model is evaluated on."""
        text = _rows.to_json(space.to_dict())
        self.change_many(
            "UPDATE observations SET space = ? WHERE id = ?", [(text, number) for number in ids]
        )

    def promote(
        self,
        application: str,
        workload: str | None = None,
        *,
        scope: Scope,
        contributor: str | None = None,
    ) -> int:
        """Widen whose jobs an application's runs advise; return how many were widened."""
        return self.widen(
            "observations", application, workload, scope=scope, contributor=contributor
        )

    # -- models --------------------------------------------------------------------------------

    def add_program(self, id: int, facts: Mapping[str, object]) -> None:
        """Let one more program count as the one a model was measured with."""
        with self.transaction() as db:
            model = self._models("m.id = ?", [id])[0]
            stored_programs = model.stats.get("program")
            programs = joined(
                [*(stored_programs if isinstance(stored_programs, list) else ()), facts]
            )
            db.execute(
                "UPDATE models SET stats = ?, updated_at = ? WHERE id = ?",
                (_rows.to_json({**model.stats, "program": programs}), _rows.now(), id),
            )

    # -- policy, site, inventory ---------------------------------------------------------------

    def apply_config(
        self, kind: ConfigKind, *, path: str, text: str, compiled: Mapping[str, Any], by: str
    ) -> int:
        """Store and activate a policy or site file and return its version.

        What is already active is not stored twice.
        """
        stored = _rows.to_json(dict(compiled))
        with self.transaction() as db:
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
            insert(db, "config_versions", values)
            return int(version)

    def activate_config(self, kind: ConfigKind, version: int, by: str) -> None:
        """Make an older version the active one. Raises InputError when there is none such."""
        with self.transaction() as db:
            db.execute("UPDATE config_versions SET active = 0 WHERE kind = ?", (kind,))
            cursor = db.execute(
                "UPDATE config_versions SET active = 1, applied_by = ?, applied_at = ?"
                " WHERE kind = ? AND version = ?",
                (by, _rows.now(), kind, version),
            )
            if not cursor.rowcount:
                versions = [str(c.version) for c in self.config_history(kind)]
                raise InputError(
                    f"there is no {kind} version {version}",
                    hint=f"known: {', '.join(versions)}" if versions else "none was ever applied",
                )

    def save_node_types(
        self,
        node_types: Sequence[NodeType],
        *,
        source: str,
        replace: bool = False,
        cluster: str = "",
        hardware: Mapping[str, str] | None = None,
    ) -> None:
        """Add or update a cluster's node types; "" is of no cluster.

        With ``replace``, those of this source that are not named are dropped. Those that stood for
        no cluster and have its nodes become the cluster's. ``hardware``: what its scheduler says of
        them; raises InputError where another cluster's says otherwise of the same name.
        """
        with self.transaction() as db:
            former_inventories = self.inventories()
            unnamed = [
                t.name
                for t in (former_inventories.get("") or Inventory()).node_types.values()
                if cluster and _have_nodes_of(node_types, t)
            ]
            db.executemany(
                "DELETE FROM node_types WHERE cluster = '' AND source = ? AND name = ?",
                [(source, name) for name in unnamed],
            )
            if replace:
                names = [t.name for t in node_types]
                db.execute(
                    "DELETE FROM node_types WHERE cluster = ? AND source = ?"
                    f" AND name NOT IN ({marks(names)})",
                    [cluster, source, *names],
                )
            for node_type in node_types:
                _rows.check_name("node type", node_type.name)
                stated = (hardware or {}).get(node_type.name, "")
                self._check_hardware(node_type.name, cluster, stated)
                values = {
                    "cluster": cluster,
                    "name": node_type.name,
                    "spec": _rows.to_json(node_type.to_dict()),
                    "source": source,
                    "updated_at": _rows.now(),
                    **({"hardware": stated} if stated else {}),
                }
                insert(db, "node_types", values, key=("cluster", "name"))
            if former_inventories != self.inventories():
                self.touch_ranked()

    def _check_hardware(self, name: str, cluster: str, stated: str) -> None:
        sql = (
            "SELECT cluster, hardware FROM node_types"
            " WHERE name = ? AND cluster NOT IN ('', ?) AND hardware NOT IN ('', ?) LIMIT 1"
        )
        differing = self.rows(sql, (name, cluster, stated)) if stated else ()
        for other_cluster, its_hardware in differing:
            raise InputError(
                f"node type {name} of cluster {cluster} has {stated}; "
                f"on {other_cluster} it has {its_hardware}",
                hint="models go by the node type: name one of them otherwise in site.yaml "
                "(node_types: NAME: {nodes: ...})",
            )

    # -- decisions and outcomes ----------------------------------------------------------------

    def save_decision(self, decision: Decision, *, job_id: str = "") -> None:
        """Store a decision; of one that is there already the fuller record is kept."""
        self.change(_rows.SAVE_DECISION, _rows.decision_row(decision, job_id))

    def link_job(self, decision_id: str, job_id: str, cluster: str = "") -> bool:
        """Note which job a decision was for, and of which cluster, where that is known.

        False when the decision is not known.
        """
        link = {"id": decision_id, "job_id": job_id, "cluster": cluster}
        return self.change(_rows.LINK_DECISION, link) > 0

    def link_jobs(self, links: Sequence[tuple[str, str, str]]) -> None:
        """Note which jobs decisions were for: each decision, its job and its cluster."""
        names = ("id", "job_id", "cluster")
        self.change_many(
            _rows.LINK_DECISION, [dict(zip(names, link, strict=True)) for link in links]
        )

    def save_outcome(self, outcome: Outcome) -> None:
        """Store how a job came out, in place of what is stored of it."""
        self.save_outcomes([outcome_row(outcome)])

    def save_outcomes(self, rows: Sequence[Sequence[object]]) -> None:
        """Store how jobs came out, by their :func:`outcome_row`, in one transaction."""
        self.change_many(_SAVE_OUTCOME, rows)

    # -- training ------------------------------------------------------------------------------

    def save_training_request(self, request: TrainingRequest) -> None:
        """Store a training request, or its new state; ``updated_at`` is set here."""
        _rows.check_name("node type", request.node_type)
        updated_at = _rows.now()
        with self.transaction() as db:
            columns = ("id", "node_type", "user", "scheduler", "state", "detail")
            values = {
                **{name: getattr(request, name) for name in columns},
                "workload_id": self.workload_id(db, request.application, request.workload),
                "plan": _rows.to_json(request.plan),
                "created_at": request.created_at or updated_at,
                "updated_at": updated_at,
            }
            insert(db, "training_requests", values, key=("id",))

    def save_training_run(self, run: TrainingRun) -> None:
        """Store one run of a sweep, or its new state."""
        values = {name: getattr(run, name) for name in TrainingRun.__slots__}
        values["configuration"] = _rows.to_json(run.configuration.to_dict())
        with self.transaction() as db:
            insert(db, "training_runs", values, key=("request_id", "seq"))


def outcome_row(outcome: Outcome) -> tuple[object, ...]:
    """Return an outcome as :meth:`Writer.save_outcomes` stores it."""
    *facts, record, collected_at = _COLUMNS(outcome)
    return (*_rows.cleaned(facts), _rows.to_json(record), collected_at or _rows.now())


def _have_nodes_of(node_types: Sequence[NodeType], unnamed: NodeType) -> bool:
    """Tell whether a cluster has nodes of a type that stood for no cluster, or one of its name."""
    nodes = {node for t in node_types for node in t.nodes}
    return not nodes.isdisjoint(unnamed.nodes) or any(
        t.name == unnamed.name and not unnamed.nodes for t in node_types
    )
