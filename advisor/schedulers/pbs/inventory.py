"""Read a PBS complex's hosts and queues: pbsnodes and qstat.

A host is one node, however many vnodes it is made of. What selects hosts are their own text and
boolean resources, as ``kind=bdw``; PBS's own (arch, host, vnode), lists of queues, and what
merely groups hosts (``node_group_key``) are left out.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from advisor.core.cluster_name import cluster_name
from advisor.errors import SchedulerError
from advisor.schedulers.cluster import Cluster, Node, Partition
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs.chunks import (
    CHUNK_RESOURCES,
    DEFAULT_SHARING,
    is_amount,
    parse_size_mb,
    truth,
)

_OWN = frozenset({"arch", "host", "vnode", "aoe", "eoe", "current_aoe", "current_eoe", "qlist"})
_STANDARD = frozenset({"ncpus", "mem", "vmem", "hbmem", "naccelerators", "accelerator_memory"})


@dataclass(slots=True)
class Host:
    """What the vnodes of one host have together."""

    name: str
    ncpus: int = 0
    gpus: int = 0
    memory_mb: float = 0.0
    resources: dict[str, str] = field(default_factory=dict)
    queue: str = ""
    vnodes: dict[str, str] = field(default_factory=dict)
    """``sharing`` of its vnodes that have cores, by name."""

    @property
    def parted(self) -> bool:
        """Tell whether a vnode is not the whole host, or of another name."""
        return [_short_name(name) for name in self.vnodes] != [_short_name(self.name)]

    @property
    def sharings(self) -> tuple[str, ...]:
        """The different ``sharing`` attributes of its vnodes."""
        return tuple(sorted(set(self.vnodes.values())))


@dataclass(frozen=True, slots=True)
class HookInventory:
    """What the hooks check a rewrite against.

    ``queues`` maps each queue to classes of equal hosts: how many, what each has (amounts as
    numbers, sizes in bytes), and the ``sharing`` of its vnodes. ``defaults`` maps it to what its
    jobs may be completed with, for each queue that a route may end in: ``place``, of a ``chunk``,
    and of a ``job`` without select. ``unscheduled`` are text resources of hosts that the scheduler
    does not look at. ``away``: queues whose routes lead to another server. ``parted``: hosts made
    of several vnodes, or of one of another name. ``sharings``: of the hosts where it is set.
    """

    default: str
    queues: Mapping[str, Sequence[Mapping[str, Any]]]
    host_resources: tuple[str, ...]
    unscheduled: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    parted: tuple[str, ...] = ()
    sharings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    defaults: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    cluster: str = ""
    """The server's name."""

    def text(self) -> str:
        """Return it as the queuejob hook reads it."""
        settings = {"default": self.default, "queues": self.queues, "defaults": self.defaults}
        return json.dumps(settings, sort_keys=True)


def read_hook_inventory() -> HookInventory:
    """Return what the hook has to know of the complex. Raises SchedulerError."""
    server = pbs_control.server()
    queues = pbs_control.ask_json("qstat", "-Q", "-f").get("Queue")
    return hook_inventory(
        server,
        pbs_control.ask_json("pbsnodes", "-a", "-v"),
        queues if isinstance(queues, dict) else {},
        pbs_control.scheduled_resources(),
    )


def hook_inventory(
    server: Mapping[str, Any],
    nodes: Mapping[str, Any],
    queues: Mapping[str, Any],
    scheduled: frozenset[str] | None = None,
) -> HookInventory:
    """Make the hook's inventory of what server, pbsnodes and ``qstat -Q`` say (JSON)."""
    hosts = read_hosts(nodes)
    site_resources = sorted(
        {k for h in hosts for k in h.resources if k.lower() not in _OWN | _STANDARD}
    )
    text = {
        k for h in hosts for k, v in h.resources.items() if k in site_resources and not is_amount(v)
    }
    text -= {k for h in hosts for k, v in h.resources.items() if truth(v) in ("True", "False")}
    ignored = () if scheduled is None else tuple(sorted(text - scheduled))
    hosts_by_queue: dict[str, list[Mapping[str, Any]]] = {}
    for queue in _usable_queues(queues):
        inside = hosts_of(queue, queues, hosts)
        classes = Counter(
            json.dumps(_host_class(h, ignored), sort_keys=True) for h in hosts if h.name in inside
        )
        hosts_by_queue[queue] = [
            {"nodes": count, **json.loads(kind)} for kind, count in sorted(classes.items())
        ]
    return HookInventory(
        str(server.get("default_queue") or ""),
        hosts_by_queue,
        tuple(site_resources),
        ignored,
        _leading_away(queues, str(server.get("name") or "")),
        tuple(sorted(_short_name(h.name) for h in hosts if h.parted)),
        {_short_name(h.name): h.sharings for h in hosts if h.sharings != (DEFAULT_SHARING,)},
        {name: _defaults(name, queues, server) for name in hosts_by_queue},
        cluster_name(server.get("name")),
    )


def _host_class(host: Host, ignored: Sequence[str]) -> dict[str, Any]:
    """Return what equal hosts have in common, as the hook reads it."""
    return {
        "resources": _limits(host, ignored),
        "sharings": host.sharings,
        "parted": host.parted,
    }


def _defaults(
    name: str, queues: Mapping[str, Any], server: Mapping[str, Any], depth: int = 4
) -> list[dict[str, Any]]:
    """Return what a server may complete a queue's job with: a route has several such."""
    queue = queues.get(name)
    if not isinstance(queue, dict):
        return []
    destinations = str(queue.get("route_destinations") or "").split(",")
    ways: list[dict[str, Any]] = []
    for destination in filter(None, (d.partition("@")[0].strip() for d in destinations)):
        ways += _defaults(destination, queues, server, depth - 1) if depth else []
    if not str(queue.get("queue_type", "")).lower().startswith("r"):
        of_job, of_chunk = (
            {**_texts(server.get(kind)), **_texts(queue.get(kind))}
            for kind in ("resources_default", "default_chunk")
        )
        most = {**_texts(server.get("resources_max")), **_texts(queue.get("resources_max"))}
        asks = {n: v for n, v in {**most, **of_job}.items() if n in (*CHUNK_RESOURCES, "select")}
        ways.append({"place": of_job.get("place", ""), "chunk": of_chunk, "job": asks})
    return [way for index, way in enumerate(ways) if way not in ways[:index]]


def _texts(data: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in data.items()} if isinstance(data, dict) else {}


def _leading_away(queues: Mapping[str, Any], server: str) -> tuple[str, ...]:
    """Return the queues from which a job may be routed to another server."""
    leads: dict[str, set[str]] = {}
    for name, queue in queues.items():
        routes = str(queue.get("route_destinations") or "") if isinstance(queue, dict) else ""
        leads[name] = {d.strip().removesuffix(f"@{server}") for d in routes.split(",") if d.strip()}
    away = {name for name, destinations in leads.items() if any("@" in d for d in destinations)}
    # As often as there are queues, for no chain of routes is longer.
    for _ in leads:  # routes to such a queue
        away |= {name for name, destinations in leads.items() if destinations & away}
    return tuple(sorted(away))


def _short_name(host: str) -> str:
    return host.partition(".")[0]


def _limits(host: Host, ignored: Sequence[str]) -> dict[str, int | str]:
    """Return what one host has, as the hook compares it."""
    limits: dict[str, int | str] = {"ncpus": host.ncpus, "mem": int(host.memory_mb * 2**20)}
    for name, value in host.resources.items():
        if name in limits or name in ignored or name in ("host", "vnode"):
            continue
        limits[name] = int(parse_size_mb(value) * 2**20) if is_amount(value) else truth(value)
    return limits


def read_cluster() -> Cluster:
    """Return the complex of the default server.

    Raises SchedulerError when PBS is not there, does not answer, or has no nodes.
    """
    server = pbs_control.server()
    nodes = pbs_control.ask_json("pbsnodes", "-a", "-v")
    queues = pbs_control.ask_json("qstat", "-Q", "-f").get("Queue")
    cluster = cluster_of(
        server, nodes, queues if isinstance(queues, dict) else {}, pbs_control.scheduled_resources()
    )
    if not any(n.partitions for n in cluster.nodes):
        raise SchedulerError("PBS has no node in any queue", hint="see: pbsnodes -av")
    return cluster


def cluster_of(
    server: Mapping[str, Any],
    nodes: Mapping[str, Any],
    queues: Mapping[str, Any],
    scheduled: frozenset[str] | None = None,
) -> Cluster:
    """Make the cluster of what server, pbsnodes and ``qstat -Q`` say (JSON).

    ``scheduled`` are the resources the scheduler looks at; a text resource it does not look at
    selects nothing. None: not known.
    """
    grouping = {k for k in str(server.get("node_group_key") or "").split(",") if k}
    hosts = read_hosts(nodes)
    places = {name: hosts_of(name, queues, hosts) for name in _usable_queues(queues)}
    cluster_nodes = tuple(
        Node(
            host.name,
            features(host, grouping, scheduled),
            cores=max(1, host.ncpus),
            memory_mb=int(host.memory_mb),
            partitions=tuple(q for q in places if host.name in places[q]),
            gpus=host.gpus,
        )
        for host in hosts
    )
    default = str(server.get("default_queue") or "")
    limits = {name: _limit(queues[name]) for name in places}
    partitions = tuple(Partition(name, name == default, limits[name]) for name in places)
    version = f"PBS {nodes.get('pbs_version', '')}".strip()
    return Cluster(version, cluster_nodes, partitions, cluster_name(server.get("name")))


def read_hosts(nodes: Mapping[str, Any]) -> list[Host]:
    """Return the hosts of ``pbsnodes -av -F json``, vnodes added up. Raises SchedulerError."""
    listed = nodes.get("nodes")
    if not isinstance(listed, dict):
        raise SchedulerError("pbsnodes lists no nodes")
    hosts: dict[str, Host] = {}
    for vnode, attributes in listed.items():
        has = attributes.get("resources_available") if isinstance(attributes, dict) else None
        if not isinstance(has, dict):
            continue
        # The vnodes of a host are n1[0], n1[1] where it does not say its name.
        name = str(has.get("host") or vnode).partition("[")[0]
        host = hosts.setdefault(name, Host(name))
        cores = int(has["ncpus"]) if str(has.get("ncpus", "")).isdecimal() else 0
        host.ncpus += cores
        gpus = str(has.get("ngpus", has.get("naccelerators", "")))
        host.gpus += int(gpus) if gpus.isdecimal() else 0
        if cores:
            host.vnodes[vnode] = str(attributes.get("sharing") or DEFAULT_SHARING)
        with contextlib.suppress(ValueError):
            host.memory_mb += parse_size_mb(str(has.get("mem") or "0"))
        host.queue = host.queue or str(attributes.get("queue") or "")
        host.resources.update({str(k): str(v) for k, v in has.items()})
    # A vnode of memory or devices alone runs no job.
    return [host for host in hosts.values() if host.ncpus]


def features(host: Host, grouping: set[str], scheduled: frozenset[str] | None) -> tuple[str, ...]:
    """Return a host's resources that select it as a node of a type."""
    return tuple(_words(host, _OWN | grouping, scheduled))


def selecting(host: Host, scheduled: frozenset[str] | None) -> frozenset[str]:
    """Return all of a host's resources by which a request may select it, as ``model=bro``."""
    return frozenset(_words(host, {"host", "vnode"}, scheduled))


def _words(host: Host, but: AbstractSet[str], scheduled: frozenset[str] | None) -> Iterator[str]:
    for name, value in host.resources.items():
        if name in but or name.lower() in but or is_amount(value):
            continue
        value = truth(value)
        boolean = value in ("True", "False")
        if scheduled is not None and not boolean and name not in scheduled:
            continue
        yield from (f"{name}={part}" for part in value.split(",") if part and part != "False")


def _usable_queues(queues: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, q in queues.items()
        if isinstance(q, dict) and pbs_control.truthy(q.get("enabled", True))
    ]


def hosts_of(
    name: str, queues: Mapping[str, Any], hosts: Sequence[Host], depth: int = 4
) -> frozenset[str]:
    """Return the hosts a job of a queue may run on; of a routing queue, of all it leads to."""
    queue = queues.get(name)
    if not isinstance(queue, dict):
        return frozenset()
    if str(queue.get("queue_type", "")).lower().startswith("r"):
        leads_to = str(queue.get("route_destinations") or "").split(",") if depth else []
        parts = [hosts_of(q.partition("@")[0].strip(), queues, hosts, depth - 1) for q in leads_to]
        return frozenset().union(*parts)
    # Hosts that belong to a queue run no other's jobs, and its jobs run nowhere else.
    queue_hosts = frozenset(h.name for h in hosts if h.queue == name)
    if queue_hosts:
        return queue_hosts
    chunk = queue.get("default_chunk")
    chunk_resources = {str(k): str(v) for k, v in chunk.items()} if isinstance(chunk, dict) else {}
    return frozenset(
        h.name
        for h in hosts
        if not h.queue
        and all(
            is_amount(value) or truth(value) in truth(h.resources.get(key, "")).split(",")
            for key, value in chunk_resources.items()
        )
    )


def _limit(queue: Mapping[str, Any]) -> int | None:
    most = queue.get("resources_max")
    text = str(most.get("nodect", "")) if isinstance(most, dict) else ""
    return int(text) if text.isdecimal() else None
