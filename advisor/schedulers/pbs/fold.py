"""What a PBS server will make of a request after the hook: defaults, limits and routes.

PBS applies ``resources_default``, ``default_chunk`` and a default ``place`` only once the hook is
through, checks ``resources_min`` and ``resources_max`` then, and tries a routing queue's
destinations with what the hook left. So what a job leaves open is not free: here it is folded in
before anything is written. Whether it has its hosts for itself is said by its place together with
the ``sharing`` of the vnodes where it may land. Standard library only: the daemon uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from advisor.core.availability import Availability, NodeKind, Queue
from advisor.core.request import JobRequest
from advisor.schedulers.pbs.chunks import (
    CHUNK_RESOURCES,
    PART_OF_CORES,
    Asked,
    asked,
    edited,
    has_host_alone,
    resource_names,
    shape_of,
    uses_part_of_cores,
)
from advisor.schedulers.pbs.table import FREE, FREQ, GPU_SPEED, NODES, RESOURCES, SIZE, WORK

_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)")
_DEEPEST = 8
"""PBS follows no longer chain of routes sensibly."""


def fold(request: JobRequest, availability: Availability | None) -> JobRequest:
    """Return the request as the server will complete it; what the site's limits bind is bound.

    Without knowledge of the queues, whatever a default or limit could touch is kept.
    """
    queues = availability.queues if availability is not None else {}
    server = queues.get("", Queue(""))
    name = request.partition or next(iter(server.destinations), "")
    reached = _reached_queues(name, queues)
    if reached is None:
        why = f"queue {name or 'of the server'} leads where nothing is known of limits"
        chunk = asked(request.options, request.host_resources).resources
        axes = ["node_type", "cores"]
        if "ompthreads" not in chunk:
            axes.append("threads")
        if name in queues:  # a route to another server, which may not know the cap's resource
            axes.append("frequency")
        return _with_binds(request, dict.fromkeys(axes, why))
    # A routing queue runs nothing: its jobs get the defaults of where they end up.
    ends = [queue for queue in reached if not queue.destinations]
    try:
        completed = [_completed_options(request, queue, server) for queue in ends]
        shapes = [shape_of(options, request.host_resources) for options in completed]
        chunks = [asked(options, request.host_resources) for options in completed]
    except ValueError as error:
        return _with_binds(request, {"all": f"a default of the queue ({error})"})
    outcomes = [(shape, chunk.ncpus) for shape, chunk in zip(shapes, chunks, strict=True)]
    if any(outcome != outcomes[0] for outcome in outcomes[1:]):
        return _with_binds(request, {"all": f"the routes of queue {name}, whose defaults differ,"})
    binds = _limits(request, [*reached, server])
    if len(ends) > 1:
        binds.setdefault("node_type", f"the route of queue {name}")
    if len(reached) > 1 and any("ncpus" in {**q.least, **q.most} for q in reached):
        binds.setdefault("cores", f"the route of queue {name}")
    as_written, job = asked(request.options, request.host_resources), chunks[0]
    if job.form != as_written.form:
        binds["threads"] = "the queue's default of select"
    elif "ompthreads" in job.resources and "ompthreads" not in as_written.resources:
        binds["threads"] = "the queue's default of ompthreads"
    elif job.mpiprocs > 1 and "ompthreads" not in job.resources:
        binds.setdefault("threads", "mpiprocs without ompthreads")
    if (
        job.count > 1
        or job.mpiprocs > 1
        or job.place.sharing
        or "ncpus" not in as_written.resources
    ):
        binds.setdefault("cores", "the queue's defaults")
    limit_s = request.time_limit_s
    if limit_s is None:
        limit_s = _shortest(default_walltime_s(queue, server) for queue in ends)
    completion = _difference(request, completed[0])
    request = replace(request, **shapes[0], completed=completion, time_limit_s=limit_s)
    if uses_part_of_cores(job):
        binds["shape"] = PART_OF_CORES
    elif request.binds.get("shape") == PART_OF_CORES:
        request = replace(request, binds={a: w for a, w in request.binds.items() if a != "shape"})
    kinds = _kinds(availability, {queue.name for queue in ends})
    if kinds:
        request, bound = _landing(request, job, kinds)
        binds = bound | binds
    return _with_binds(request, binds)


def _difference(request: JobRequest, completed: Mapping[str, str]) -> Mapping[str, str]:
    """Return what a request's nodes are asked for by, where the server fills in any of it."""
    names = resource_names(completed, request.host_resources)
    asks = {name: completed[name] for name in names}
    return {} if asks.items() <= request.options.items() else asks


def _kinds(
    availability: Availability | None, queues: Collection[str]
) -> Mapping[NodeKind, frozenset[str]]:
    """Return the kinds of hosts of queues, with the names of their node types."""
    types_by_kind: dict[NodeKind, frozenset[str]] = {}
    for (node_type, queue), room in availability.rooms.items() if availability else ():
        for kind in room.kinds if queue in queues else ():
            types_by_kind[kind] = types_by_kind.get(kind, frozenset()) | {node_type}
    return types_by_kind


def _landing(
    request: JobRequest, job: Asked, kinds: Mapping[NodeKind, frozenset[str]]
) -> tuple[JobRequest, dict[str, str]]:
    """Return the request with the node types it may land on and whether it is alone there.

    A job is exclusive where it is so on every host that has what a chunk asks for. The second is
    what that binds.
    """
    selectors = job.selectors()
    fit = [kind for kind in kinds if kind.cores >= job.ncpus and _has_selected(kind, selectors)]
    alone = [has_host_alone(job.place, kind.sharings, parted=kind.parted) for kind in fit]
    types = sorted({name for kind in fit for name in kinds[kind] if name})
    request = replace(request, exclusive=bool(fit) and all(alone))
    if selectors or not fit:  # no node type where no host has as many cores
        request = replace(request, node_types=tuple(types))
    return request, {"cores": "sharing of the nodes"} if any(alone) else {}


def _has_selected(kind: NodeKind, selectors: Mapping[str, str]) -> bool:
    """Tell whether a host has all that a chunk selects by; what is not there is False."""
    return all(
        f"{name}=True" not in kind.resources
        if value == "False"
        else f"{name}={value}" in kind.resources
        for name, value in selectors.items()
    )


def default_walltime_s(queue: Queue, server: Queue) -> float | None:
    """Return how long a job may run that states no walltime, infinity where nothing ends it.

    PBS takes the queue's default, else the server's, else what either allows at most. None where
    that is not a time.
    """
    for resources in (queue.default, server.default, queue.most, server.most):
        if "walltime" in resources:
            match = _CLOCK.fullmatch(resources["walltime"])
            if not match:
                return None
            hours, minutes, seconds = (int(part or 0) for part in match.groups())
            return float((hours * 60 + minutes) * 60 + seconds)
    return math.inf


def _shortest(limits: Iterable[float | None]) -> int | None:
    """Return the shortest limit of several queues in seconds, 0 for none, None where not known."""
    limits_s = list(limits)
    shortest = min((limit for limit in limits_s if limit is not None), default=None)
    if shortest is None or None in limits_s:
        return None
    return 0 if shortest == math.inf else int(shortest) or None


def _with_binds(request: JobRequest, binds: Mapping[str, str]) -> JobRequest:
    return replace(request, binds={**binds, **request.binds})


def _reached_queues(
    name: str, queues: Mapping[str, Queue], depth: int = _DEEPEST
) -> list[Queue] | None:
    """Return a queue and all that its routes lead to, None where one of them is not known."""
    queue = queues.get(name.partition("@")[0]) if name else None
    if queue is None or not depth or ("@" in name and "@" not in queue.name):
        return None
    reached = [queue]
    for destination in queue.destinations:
        further = _reached_queues(destination, queues, depth - 1)
        if further is None:
            return None
        reached += further
    return reached


def _completed_options(request: JobRequest, queue: Queue, server: Queue) -> dict[str, str]:
    """Return the options with the defaults of a queue, then of the server, where left open.

    A maximum is a default, too: PBS gives it to a job that asks for none.
    """
    options = dict(request.options)
    defaults = _merged(queue.default, server.default)
    if not options.get("select") and not options.get("nodes"):
        if defaults.get("select"):
            options["select"] = defaults["select"]
        else:  # PBS makes a chunk of these, and packs it whatever a default says
            for name, value in _merged(defaults, queue.most, server.most).items():
                if name in request.host_resources or name in _CHUNKED:
                    options.setdefault(name, value)
    if options.get("select") and defaults.get("place"):
        options["place"] = options.get("place") or defaults["place"]
    chunk = asked(options, request.host_resources)
    more = _merged(queue.default_chunk, server.default_chunk)
    chunk_defaults = {n: v for n, v in more.items() if n not in chunk.resources and n != "nchunk"}
    if chunk_defaults and options.get("select"):
        options["select"] = edited(options["select"], chunk_defaults)
    elif chunk_defaults and not options.get("nodes"):
        options = {**chunk_defaults, **options}
    return options


_CHUNKED = CHUNK_RESOURCES - {"ngpus"} | {"software", "aoe", "eoe"}
"""Built-in resources that PBS moves into the chunk it makes for a job without select."""


def _merged(*maps: Mapping[str, str]) -> dict[str, str]:
    """Return all entries; of the same name the first counts."""
    merged: dict[str, str] = {}
    for entries in maps:
        merged = {**entries, **merged}
    return merged


def _limits(request: JobRequest, queues: Sequence[Queue]) -> dict[str, str]:
    """Return the axes that a default or limit of a queue binds, with what binds them."""
    binds: dict[str, str] = {}
    for queue in queues:
        where = f"of queue {queue.name}" if queue.name else "of the server"
        checked: Iterable[tuple[str, Iterable[str]]] = (
            ("default", queue.default),
            ("default chunk", queue.default_chunk),
            ("minimum", queue.least),
            ("maximum", queue.most),
            ("limit", queue.limited),
        )
        for kind, names in checked:
            for name in names:
                for axis in _touched_axes(name, kind, request.host_resources):
                    binds.setdefault(axis, f"the {kind} of {name} {where}")
    return binds


_GIVEN = ("default", "default chunk", "maximum")
"""What PBS gives to a job that asks for none: a limit on processor time, say."""


def _touched_axes(name: str, kind: str, host_resources: Sequence[str]) -> Sequence[str]:
    """Return the axes whose rewriting a default or limit of a resource would meet."""
    if name == FREQ:
        return ("frequency",)
    if RESOURCES.get(name) == GPU_SPEED:
        return GPU_SPEED
    if name == "ompthreads":
        return ("threads",)
    if name == "ncpus":
        return ("cores",) if kind in ("minimum", "limit") else FREE
    if RESOURCES.get(name) == WORK and kind in _GIVEN:
        return WORK
    if name in host_resources or RESOURCES.get(name) in (NODES, SIZE):
        return NODES
    return FREE
