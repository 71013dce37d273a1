"""Turn ended jobs into measured runs, from which models learn."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence

from advisor.core.cluster_name import is_federated
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.observation import GPU_ENERGY, GPUS, Observation, RunMethod, Scope
from advisor.core.policy import PolicySet, scope_of
from advisor.core.reasons import SEVERAL_PROGRAMS, SEVERAL_RUNS, STEP_PLAN, WHOLE_JOB
from advisor.loop import clock
from advisor.loop.execution import Execution, differs
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import policy_of
from advisor.loop.past_jobs import MOST
from advisor.loop.rebuilt import may_teach
from advisor.loop.verdict import MEASUREMENT_ERROR
from advisor.schedulers.base import JobRecord
from advisor.store.families import family_models
from advisor.store.job_places import JobPlaces, JobsThere, WhoseWorkload, WorkloadNumbers
from advisor.store.rows import PLACE, check_observation
from advisor.store.signature_groups import Named
from advisor.store.transaction import marks
from advisor.store.writer import Writer

_NOT_AS_MEASURED = frozenset(
    {
        "baseline-nearest",
        "workload-fallback",
        SEVERAL_RUNS,
        SEVERAL_PROGRAMS,
        WHOLE_JOB,
        STEP_PLAN,
    }
)
"""Reasons of decisions whose jobs say nothing of one point of a model."""


class RunsOfJobs:
    """Turns jobs into measured runs, each job once.

    Only jobs that had whole nodes for themselves and ran what was decided, and long enough for
    the accounting's whole seconds to be as good as a measurement.
    """

    def __init__(
        self,
        writer: Writer,
        scheduler: str,
        inventory: Inventory,
        policies: PolicySet,
        numbers: WorkloadNumbers | None = None,
    ) -> None:
        self._writer, self._numbers = writer, numbers or WorkloadNumbers(writer)
        self._meter = scheduler
        self._inventory, self._policies = inventory, policies
        self._forgotten: set[tuple[str, str, str]] | None = None
        self._kept = JobPlaces(writer, "observations", "job")
        self._stored: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """Of the jobs of a batch, when they were submitted on which cluster, of those stored."""
        self._looked: set[str] = set()
        self._waiting: list[tuple[Named, Observation]] = []
        self.fresh: set[tuple[str, str, str, Scope, str]] = set()
        """The models that new runs may help: application, workload, node type, scope, owner."""
        self._teaching: dict[tuple[str, str], bool] = {}

    def look(self, jobs: Sequence[JobRecord], whose: Collection[WhoseWorkload]) -> None:
        """Begin a batch of jobs, inside the transaction that stores their runs.

        ``whose`` are the workloads that they are known to be of.
        """
        self._stored.clear()
        self._looked.clear()
        self._look_for_runs([job.job_id for job in jobs])
        self._kept.look(whose)

    def write(self) -> None:
        """Put what waits into the store, in the transaction of its batch."""
        waiting, self._waiting = self._waiting, []
        self._writer.add_runs_of_jobs(
            [(self._numbers.number(named), run) for named, run in waiting],
            {named for named, _ in waiting},
        )

    def drop(self) -> None:
        """Forget what waits: the part of a job that it came from is undone."""
        self._waiting.clear()

    def take(self, job: JobRecord, match: MatchedJob, execution: Execution) -> int:
        """Store a job's run if it is one to learn from; return how many are.

        What is stored waits for :meth:`write`. Raises InputError for an impossible one.
        """
        run = self._observation(job, match, execution)
        if run is None:
            return 0
        if self._is_stored(run, str(run.extra["submitted_at"])):
            return 0
        decision = match.decision
        name = decision.application, decision.workload
        if not self._has_room(*name, run):
            return 0
        check_observation(run)
        self._waiting.append((name, run))
        self._stored[run.job_id].add((run.cluster, str(run.extra["submitted_at"])))
        owner = {"own": run.contributor, "account": run.account, "all": ""}[run.scope]
        self.fresh.add((*name, run.configuration.node_type, run.scope, owner))
        return 1

    def _has_room(self, application: str, workload: str, run: Observation) -> bool:
        """Tell whether a user's jobs at a configuration may become one more; count it."""
        c = run.configuration
        place = (application, workload, run.contributor, *(getattr(c, n) for n in PLACE))
        count = self._kept.at(place).rows
        self._kept.put(place, JobsThere(count + 1))
        return count < MOST

    def _teaches(self, application: str, workload: str) -> bool:
        """Tell whether a workload's model can learn from a job.

        There must be a model, of it or of its family, and no figures of merit: where runs differ in
        length only those can be compared, and the accounting has none.
        """
        key = (application, workload)
        if key not in self._teaching:
            rows = self._writer.rows(
                "SELECT max(o.fom) FROM observations AS o JOIN workloads AS w"
                " ON w.id = o.workload_id WHERE w.application = ? AND w.name = ?",
                key,
            )
            models = self._writer.find_models(*key) or family_models(self._writer, *key)
            self._teaching[key] = rows[0][0] is None and bool(models)
        return self._teaching[key]

    def _is_stored(self, run: Observation, submitted_at: str) -> bool:
        """Tell whether a job's run is stored, or was and is forgotten."""
        if self._forgotten is None:
            rows = self._writer.rows(
                "SELECT json_extract(record, '$.job_id'), json_extract(record, '$.extra'),"
                " coalesce(json_extract(record, '$.cluster'), '')"
                " FROM forgotten WHERE json_extract(record, '$.source') = 'job'"
            )
            self._forgotten = {(str(row[0]), _submitted(row[1]), str(row[2])) for row in rows}
        if any((run.job_id, submitted_at, name) in self._forgotten for name in ("", run.cluster)):
            return True
        if run.job_id not in self._looked:
            self._look_for_runs([run.job_id])
        return any(
            at == submitted_at
            and (cluster in (run.cluster, "") or not run.cluster or is_federated(run.job_id))
            for cluster, at in self._stored.get(run.job_id, ())
        )

    def _look_for_runs(self, ids: Sequence[str]) -> None:
        self._looked.update(ids)
        sql = (
            f"SELECT job_id, cluster, extra FROM observations WHERE job_id IN ({marks(ids)})"
            " AND job_id <> '' AND source = 'job'"
        )
        for job_id, cluster, extra in self._writer.rows(sql, ids):
            self._stored[job_id].add((cluster, _submitted(extra)))

    def _observation(
        self, job: JobRecord, match: MatchedJob, execution: Execution
    ) -> Observation | None:
        decision = match.decision
        configuration = really_ran(match, execution, self._inventory)
        if configuration is None or job.state.split()[:1] != ["COMPLETED"]:
            return None
        if job.restarts or not may_teach(self._writer, decision):
            return None
        if execution.whole_nodes is not True or execution.step_failed or not execution.time_s:
            return None
        if execution.resolution_s > MEASUREMENT_ERROR * execution.time_s:
            return None
        if not self._teaches(decision.application, decision.workload):
            return None
        trust = policy_of(decision, job, self._policies).training.trust
        program = dict(decision.program)
        return Observation(
            configuration,
            execution.time_s,
            execution.energy_j,
            energy_quality="missing" if execution.energy_j is None else "measured",
            meter="" if execution.energy_j is None else self._meter,
            source="job",
            contributor=job.user,
            account=job.account,
            scope=scope_of(trust, job.account),
            job_id=job.job_id,
            cluster=job.cluster,
            extra={
                "submitted_at": clock.utc(job.submitted_at),
                "resolution_s": execution.resolution_s,
                "decision": decision.id,
                **({"program": program} if program else {}),
                **_of_gpus(job, execution),
            },
            method=applied(decision, execution),
        )


def _of_gpus(job: JobRecord, execution: Execution) -> dict[str, object]:
    """Return what a run keeps of its GPUs: how many a node, and what of its energy they took.

    Nothing of an energy that they are not in, or that nobody says they are in.
    """
    extra: dict[str, object] = {}
    if job.gpu_count and job.nodes and job.gpu_count % job.nodes == 0:
        extra[GPUS] = job.gpu_count // job.nodes
    metered = execution.meter_sees in ("gpus", "nodes") and execution.energy_j is not None
    if metered and execution.energy_gpu_j is not None:
        extra[GPU_ENERGY] = execution.energy_gpu_j
    return extra


def really_ran(
    match: MatchedJob, execution: Execution, inventory: Inventory
) -> Configuration | None:
    """Return the configuration a job ran, None when accounting and decision leave it open.

    Cores and ranks are the decision's where the accounting does not tell them; so a decision that
    was made for a neighbouring point, for another workload's model, or for a whole job of several
    programs, does not count. Nor does a job of several runs, whose time is that of all, nor one
    with a plan, whose steps may have run otherwise than it was written.
    """
    decision = match.decision
    if match.trust == "unverified" or not decision.application:
        return None
    if not _NOT_AS_MEASURED.isdisjoint(decision.codes):
        return None
    configuration = decision.configuration
    return (
        None
        if configuration is None or differs(configuration, execution, inventory)
        else configuration
    )


def applied(decision: Decision, execution: Execution) -> RunMethod:
    """Return how a job's threads were changed, "" where they were not.

    A step with fewer cores than the job was written for shows a smaller request, as decisions of
    earlier versions made them.
    """
    cores = decision.baseline.threads_per_node if decision.baseline else 0
    chosen = decision.chosen.configuration.threads_per_node if decision.chosen else 0
    if not decision.changed or chosen == cores:
        return ""
    smaller = 0 < execution.threads_per_node < cores
    return "request" if smaller or "cpus-per-task" in decision.rewrite else "variables"


def _submitted(extra: str) -> str:
    """Return when the job of a stored run was submitted, "" where that is not known."""
    try:
        value = json.loads(extra)
    except ValueError:
        return ""
    return str(value.get("submitted_at", "")) if isinstance(value, dict) else ""
