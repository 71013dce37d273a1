"""Jobs that ran before the advisor knew them, as measured runs of source ``job``.

Only what the accounting tells whole: one application on whole nodes of one type, its ranks and
cores, its cap, and long enough for the accounting's clock. What it ran is the site's rules' or its
name's word, so other inputs may hide under it; :mod:`advisor.models.job_runs` reckons with that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory
from advisor.core.observation import Observation, Scope
from advisor.core.reasons import STEP_PLAN
from advisor.core.recognise import ApplicationRule, clean_name, recognise
from advisor.core.requested_configuration import default_freq
from advisor.loop import clock
from advisor.loop.execution import IMPOSSIBLE, Execution, ran
from advisor.loop.match import stamp_of
from advisor.schedulers.base import JobRecord

COARSEST = 0.05
"""Shares of a job's time that the accounting's resolution may make."""
IDLE = 0.5
"""A job that used less of its processors' time ran fewer threads than it had cores."""
MOST = 20
"""Jobs of one user at one configuration that are kept: the latest."""


@dataclass(slots=True)
class PastRuns:
    """Runs by application and workload, and how many jobs were left out, by why."""

    runs: dict[tuple[str, str], list[Observation]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    impossible: int = 0
    """Runs whose meter said what their nodes cannot have used: they have no energy."""


@dataclass(frozen=True, slots=True)
class JobNaming:
    """What tells the application of a job: a name given, else the site's rules, else its own."""

    rules: Sequence[ApplicationRule] = ()
    application: str = ""
    workload: str = "default"

    def of(self, job: JobRecord) -> tuple[str, str]:
        """Return application and workload, "" where nothing tells."""
        if self.application:
            return self.application, self.workload
        recognised = recognise(
            None, job_name=job.name, submit_line=job.submit_line, rules=self.rules
        )
        name = recognised.application or clean_name(job.name)
        return name, recognised.workload if recognised.application else self.workload


def past_jobs(
    jobs: Iterable[JobRecord],
    inventory: Inventory,
    naming: JobNaming,
    *,
    meter: str,
    scope: Scope,
    user: str | None = None,
) -> PastRuns:
    """Return what jobs say as runs; ``user``: only that user's. ``meter`` names the accounting."""
    past = PastRuns()
    per_configuration: Counter[object] = Counter()
    ordered = sorted(jobs, key=lambda job: clock.utc(job.ended_at), reverse=True)
    for job in ordered:
        if user is not None and job.user != user:
            past.left_out["another user's"] += 1
            continue
        name = naming.of(job)
        execution = ran(job, inventory)
        why = _obstacle(job, execution, name[0])
        if why:
            past.left_out[why] += 1
            continue
        configuration = _configuration(execution, inventory)
        key = (*name, configuration, job.user)
        per_configuration[key] += 1
        if per_configuration[key] > MOST:
            past.left_out[f"the latest {MOST} of a user and configuration are enough"] += 1
            continue
        past.impossible += execution.energy_note == IMPOSSIBLE
        past.runs.setdefault(name, []).append(_run(job, execution, configuration, meter, scope))
    return past


def _obstacle(job: JobRecord, execution: Execution, name: str) -> str:
    """Return why a job says nothing, "" where it does."""
    if not name:
        return "nothing tells its application"
    if job.state.split()[:1] != ["COMPLETED"] or execution.step_failed:
        return "it did not end well"
    if job.restarts:
        return "it was started again"
    if not execution.node_type:
        return "its nodes are of no single known node type"
    if execution.whole_nodes is not True:
        return "it shared its nodes, or that is not known"
    if (stamp := stamp_of(job)) and STEP_PLAN in stamp.codes:
        return "its steps were planned: with how many threads they ran is not known"
    if sum(step.numbered for step in job.steps) != 1:
        return "it is not one step: srun started none, or several"
    if not execution.ranks_per_node or not execution.threads_per_node:
        return "its ranks or cores on each node are not known"
    if not execution.time_s or execution.resolution_s > COARSEST * execution.time_s:
        return "it is too short for the accounting's clock"
    used = job.cpu_s / (execution.time_s * job.cpus) if job.cpu_s and job.cpus else None
    if used is not None and used < IDLE:
        return "its processors were mostly idle: how many threads it ran is not known"
    return ""


def _configuration(execution: Execution, inventory: Inventory) -> Configuration:
    node_type = inventory.node_types[execution.node_type]
    threads = execution.threads_per_rank * execution.ranks_per_node or execution.threads_per_node
    cores = max(execution.ranks_per_node, min(threads, node_type.cores))
    cap = execution.cap_khz or default_freq(node_type)
    return Configuration(execution.node_type, execution.nodes, execution.ranks_per_node, cores, cap)


def _run(
    job: JobRecord, execution: Execution, configuration: Configuration, meter: str, scope: Scope
) -> Observation:
    return Observation(
        configuration,
        execution.time_s or 0.0,
        execution.energy_j,
        energy_quality="missing" if execution.energy_j is None else "measured",
        meter="" if execution.energy_j is None else meter,
        source="job",
        contributor=job.user,
        account=job.account,
        scope="own" if scope == "account" and not job.account else scope,
        job_id=job.job_id,
        extra={"submitted_at": clock.utc(job.submitted_at), "resolution_s": execution.resolution_s},
    )
