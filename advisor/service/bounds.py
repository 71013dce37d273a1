"""What bounds the choice for a job: what its user, its script and the cluster bind.

Of other node types also what keeps the job off them now (:class:`JobPlace`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.core.feasible import Constraints
from advisor.core.inventory import NodeType
from advisor.core.policy import NodeTypeChange
from advisor.core.reasons import reason
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import (
    bound,
    cores_kept,
    states_what_it_has,
    threads_kept,
    unset_kept,
)
from advisor.core.thread_use import is_filled
from advisor.schedulers.translators import translator
from advisor.service.axes import axes_of, cap_kept
from advisor.service.baseline import JobBaseline
from advisor.service.conclusion import Conclusion
from advisor.service.snapshot import Snapshot
from advisor.service.understand import UnderstoodJob


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job runs as it is written, and the node types (``names``) it might be moved to.

    ``possible`` are the node types it may land on, the likeliest first: where one is the only one,
    the job need not be bound to it. ``nodes`` is how many it takes.
    """

    names: tuple[str, ...]
    possible: tuple[NodeType, ...]
    partition: str
    nodes: int


def with_obstacles(job: UnderstoodJob, baseline: JobBaseline) -> UnderstoodJob:
    """Return the job with what keeps it off other node types now, to be kept for another policy."""
    several = len(baseline.models.by_node_type) > 1 or len(job.node_types) > 1
    if not (baseline.whole and several) or job.reading.obstacles:
        return job
    obstacles = _obstacles_now_and_later(job.request, job.snapshot, _place(job, baseline))
    return replace(job, reading=replace(job.reading, obstacles=obstacles))


def bounds_of(job: UnderstoodJob, baseline: JobBaseline) -> Constraints | Conclusion:
    """Return all that bounds the choice."""
    request, use, whole_nodes = job.request, job.use, baseline.whole
    node_type = bound(request, "node_type", "nodes") or use.node_type
    if not request.exclusive:
        node_type = node_type or "the job fills its nodes by its own count of cores"
    if len(job.node_types) > 1 and (job.policy.axes.node_type == "keep" or node_type):
        why = reason("mixed-partition", job.partition, node_type or "policy keeps it")
        return baseline.conclude(job, why)
    once = _started_once(job, baseline)
    axes, axes_kept = axes_of(job, baseline.model)
    return Constraints(
        _without_its_own_cores(job, baseline),
        baseline.configuration,
        job.policy,
        job.snapshot.inventory,
        job.partition,
        landing=job.node_types,
        whole=whole_nodes,
        threads_kept=threads_kept(request, use, job.recognised.threads_from) or once,
        threads_unset=threads_unset(job, baseline),
        freq_kept=(
            bound(request, "frequency")
            or use.frequency
            or job.reading.frequency_kept
            or cap_kept(job, baseline.model)
        ),
        shared_caps=_caps_own_cores(job, baseline),
        axes=axes,
        axes_kept=axes_kept,
        node_type_kept=node_type,
        cores_kept="" if whole_nodes else _cores_kept(job, baseline) or once,
        obstacles=_obstacles(job, baseline),
        freq_cap_khz=request.freq_khz or 0,
        need_mb=job.snapshot.families.need_mb(baseline.model, baseline.configuration),
        use=use,
        as_written_s=(baseline.row.time_s, baseline.row.time_hi_s),
    )


def _without_its_own_cores(job: UnderstoodJob, baseline: JobBaseline) -> JobRequest:
    """Return the request without its word on threads where that only says what the job has.

    A program that reads how many cores its task has may start as many workers. So a run that knew
    them must have used all threads as one process a rank, or the site vouches for the program.
    Where the scheduler itself sets the variable, it is never left unset.
    """
    request, asked = job.request, baseline.asked
    filled = baseline.model.stats.get("threads_of_cores")
    vouched = job.recognised.fills_cores or is_filled(filled, asked)
    if not (baseline.whole and vouched) or translator(request.scheduler).SETS_THREADS:
        return request
    if not states_what_it_has(request, asked, job.node_types, job.use):
        return request
    return replace(request, explicit=request.explicit - {"threads"})


def _caps_own_cores(job: UnderstoodJob, baseline: JobBaseline) -> bool:
    """Tell whether a cap of a job that shares its nodes is on its own cores alone, by the site."""
    node_type = job.snapshot.inventory.node_types[baseline.configuration.node_type]
    own_cores = translator(job.request.scheduler).CAPS_OWN_CORES
    return own_cores and node_type.shared_caps == "accept"


def _started_once(job: UnderstoodJob, baseline: JobBaseline) -> str:
    """Return why the threads of a rank are kept where the script starts its program by itself.

    It then runs once, and may use all of the job's cores, however many tasks the job has.
    """
    ranks = baseline.configuration.ranks_per_node
    if ranks == 1 or job.request.kind == "run" or job.use.launcher:
        return ""
    return f"the script starts its program without a launcher, so once for a node's {ranks} tasks"


def threads_unset(job: UnderstoodJob, baseline: JobBaseline, *, states_cores: bool = False) -> str:
    """Return why variables of threads that the job leaves unset stay so.

    ``states_cores``: a step's job states cores a task, of which its scheduler tells the program.
    One that reads this may start as many workers, so a run that knew them must speak.
    """
    follows = not baseline.whole and job.reading.counts_threads  # the request alone is changed
    if follows or job.recognised.fills_cores:
        return ""
    by_scheduler = translator(job.request.scheduler).SETS_THREADS
    unset = [name for name in job.recognised.threads_from if name not in by_scheduler]
    knows_cores = states_cores and not by_scheduler
    filled = baseline.model.stats.get("threads_of_cores" if knows_cores else "threads_unset")
    return unset_kept(unset, baseline.asked, filled)


def _cores_kept(job: UnderstoodJob, baseline: JobBaseline) -> str:
    """Return why a request that shares its nodes does not become smaller."""
    if job.policy.allocation == "keep":
        return "policy says allocation: keep"
    if job.request.hook == "job_submit":
        return "in the controller a request is never made smaller"
    if baseline.model.method == "variables":
        return "its model was measured with whole nodes"
    return cores_kept(job.request, job.use)


def _obstacles(job: UnderstoodJob, baseline: JobBaseline) -> Mapping[str, tuple[str, str]]:
    """Return what keeps a job with whole nodes off node types, as far as the policy lets it."""
    if not baseline.whole or job.policy.axes.node_type == "keep":
        return {}
    change = job.policy.node_type_change
    if job.request.hook == "job_submit":  # which does not see whether a deadline lets it wait
        change = "no-later"
    return _node_type_obstacles(job.request, change, job.snapshot, _place(job, baseline))


def _place(job: UnderstoodJob, baseline: JobBaseline) -> JobPlace:
    nodes = baseline.configuration.nodes
    return JobPlace(tuple(baseline.models.by_node_type), job.node_types, job.partition, nodes)


def _node_type_obstacles(
    request: JobRequest, change: NodeTypeChange, snapshot: Snapshot, place: JobPlace
) -> dict[str, tuple[str, str]]:
    """Return (reason code, detail) for each of the named node types that is not to be taken."""
    obstacles: dict[str, tuple[str, str]] = {}
    for name in place.names:
        target = snapshot.inventory.node_types.get(name)
        # The only node type that it may land on: it need not be bound to that.
        if target is None or (target,) == place.possible:
            continue
        obstacle = ("", "")
        if request.held:
            obstacle = ("node-type-later", "the job is held and may be altered before it starts")
        elif snapshot.availability is not None:
            obstacle = snapshot.availability.node_type_obstacle(
                request, place.possible[0], target, place.partition, place.nodes, change
            )
        elif change == "no-later":
            obstacle = ("node-type-later", "which nodes are idle is not known")
        if obstacle[0]:
            obstacles[name] = obstacle
    return obstacles


def _obstacles_now_and_later(
    request: JobRequest, snapshot: Snapshot, place: JobPlace
) -> dict[str, tuple[str, str]]:
    """Return for each node type what keeps the job off it: if it must not wait, and if it may.

    These are reason codes, "" where nothing does; see :class:`advisor.core.reading.JobReading`.
    """
    at_once = _node_type_obstacles(request, "no-later", snapshot, place)
    waiting = _node_type_obstacles(request, "allow", snapshot, place)
    free = ("", "")
    return {n: (at_once.get(n, free)[0], waiting.get(n, free)[0]) for n in place.names}
