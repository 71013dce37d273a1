"""Read from PBS what jobs can have now: hosts, and what queues and the server ask of a request.

Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from advisor.core.availability import EARLIER_HOOKS, JobLimits, NodeKind, PartitionState, Queue
from advisor.core.cluster_name import cluster_name
from advisor.errors import SchedulerError
from advisor.schedulers.node_state import TIMEOUT_S, NodeReading, NodeState
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs.fold import default_walltime_s
from advisor.schedulers.pbs.hooks import QUEUEJOB
from advisor.schedulers.pbs.inventory import Host, features, hosts_of, read_hosts, selecting

_LOST = frozenset(
    {"down", "offline", "stale", "state-unknown", "unresolvable", "maintenance", "Stale"}
)
_HOOK_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
_COUNTING = re.compile(r"(max_run|max_queued|queued_jobs_threshold|max_user|max_group)_res(_soft)?")


def read() -> NodeReading:
    """Return what hosts, queues and the server say now. Raises SchedulerError."""
    server = pbs_control.ask_json("qstat", "-B", "-f", timeout_s=TIMEOUT_S).get("Server")
    queues = pbs_control.ask_json("qstat", "-Q", "-f", timeout_s=TIMEOUT_S).get("Queue")
    nodes = pbs_control.ask_json("pbsnodes", "-a", "-v", timeout_s=TIMEOUT_S)
    if not isinstance(server, dict) or not server:
        raise SchedulerError("qstat -B lists no server")
    name, attributes = next(iter(server.items()))
    return reading_of(
        name,
        attributes if isinstance(attributes, dict) else {},
        nodes,
        queues if isinstance(queues, dict) else {},
        pbs_control.scheduled_resources(),
        {EARLIER_HOOKS: " ".join(earlier_hooks(pbs_control.conf().get("PBS_HOME", "")))},
    )


@cache
def earlier_hooks(home: str) -> tuple[str, ...]:
    """Return :func:`hooks_before` of the server, none where it refuses: it tells root alone.

    It is asked once in a process for each server's ``home``: the answer is for people alone, and
    each refusal is a line in the server's log.
    """
    try:
        return hooks_before(pbs_control.qmgr("list hook", TIMEOUT_S))
    except SchedulerError:
        return ()


def hooks_before(text: str) -> tuple[str, ...]:
    """Return the enabled queuejob hooks of ``list hook`` that may see a job before the advisor's.

    These are those of no higher order: which of one order comes first is not told. None where the
    advisor's is not at work, or for what is no such list; the first dozen of them.
    """
    orders: dict[str, int] = {}
    # qmgr breaks long lists behind a comma.
    for block in re.split(r"(?m)^Hook ", re.sub(r",\s*\n\s+", ",", text))[1:]:
        name, *lines = block.splitlines()
        attributes = dict(re.findall(r"(?m)^ +(\w+) = (\S+)$", "\n".join(lines)))
        order = attributes.get("order", "")
        if (
            _HOOK_NAME.fullmatch(name)
            and attributes.get("enabled", "").lower() == "true"
            and "queuejob" in attributes.get("event", "").strip('"').split(",")
            and re.fullmatch(r"-?\d{1,4}", order, re.ASCII)
        ):
            orders[name] = int(order)
    last = orders.pop(QUEUEJOB, None)
    if last is None:
        return ()
    return tuple(sorted((n for n, o in orders.items() if o <= last), key=orders.__getitem__)[:12])


def read_limits() -> JobLimits:
    """Return no limits of accounts: PBS's own stand with its queues and server."""
    return JobLimits(enforced=False)


def reading_of(
    server_name: str,
    server: Mapping[str, Any],
    nodes: Mapping[str, Any],
    queues: Mapping[str, Any],
    scheduled: frozenset[str] | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> NodeReading:
    """Make the reading of what server, pbsnodes and ``qstat -Q`` say (JSON).

    ``scheduled``: the resources that PBS's scheduler looks at, None where that is not known.
    ``settings`` as :class:`Availability` has them.
    """
    hosts = read_hosts(nodes)
    places = {name: hosts_of(name, queues, hosts) for name in queues}
    vnodes: dict[str, list[Mapping[str, Any]]] = {host.name: [] for host in hosts}
    for vnode, attributes in nodes["nodes"].items():
        has = attributes.get("resources_available") if isinstance(attributes, dict) else None
        if isinstance(has, dict):
            name = str(has.get("host") or vnode).partition("[")[0]
            vnodes.setdefault(name, []).append(attributes)
    states = tuple(
        NodeState(
            host.name,
            tuple(q for q, inside in places.items() if host.name in inside),
            features(host, set(), None),
            idle=all(_idle(v) for v in vnodes[host.name]),
            usable=not any(_LOST & set(_words(v.get("state"))) for v in vnodes[host.name]),
            kind=kind_of(host, scheduled),
        )
        for host in hosts
    )
    queue_states = {"": _queue("", server, server_name)}
    queue_states |= {n: _queue(n, q, server_name) for n, q in queues.items() if isinstance(q, dict)}
    scheduling = pbs_control.truthy(server.get("scheduling", True))
    partitions = {
        name: PartitionState(
            up=scheduling and queue.enabled and queue.started,
            time_limit_s=default_walltime_s(queue, queue_states[""]),
        )
        for name, queue in queue_states.items()
        if name
    }
    return NodeReading(states, partitions, queue_states, settings, cluster_name(server_name))


def kind_of(host: Host, scheduled: frozenset[str] | None) -> NodeKind:
    """Return what of a host a request is matched with."""
    return NodeKind(selecting(host, scheduled), host.ncpus, host.sharings, host.parted)


def _words(state: object) -> list[str]:
    return [word.strip() for word in str(state or "").split(",")]


def _idle(vnode: Mapping[str, Any]) -> bool:
    """Tell whether nothing runs on a vnode and nobody has reserved it.

    When a reservation begins is not read: a host with one counts as not idle.
    """
    assigned = vnode.get("resources_assigned")
    busy = isinstance(assigned, dict) and str(assigned.get("ncpus") or 0) != "0"
    return _words(vnode.get("state")) == ["free"] and not (
        busy or vnode.get("jobs") or vnode.get("resv")
    )


def _queue(name: str, data: Mapping[str, Any], server: str) -> Queue:
    limited = set(_texts(data.get("resources_available")))
    for key, value in data.items():
        if _COUNTING.fullmatch(key):
            limited |= set(_texts(value))
    # the server leads to its default queue
    leads_to = str(data.get("route_destinations") or data.get("default_queue") or "").split(",")
    return Queue(
        name,
        enabled=pbs_control.truthy(data.get("enabled", True)),
        started=pbs_control.truthy(data.get("started", True)),
        default=_texts(data.get("resources_default")),
        default_chunk=_texts(data.get("default_chunk")),
        least=_texts(data.get("resources_min")),
        most=_texts(data.get("resources_max")),
        destinations=tuple(d.strip().removesuffix(f"@{server}") for d in leads_to if d.strip()),
        limited=frozenset(limited),
    )


def _texts(data: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in data.items()} if isinstance(data, dict) else {}
