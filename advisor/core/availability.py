"""What of a cluster can be had now: idle nodes and limits, at most 30 s old. Standard library only.

A child process of the daemon asks the scheduler (``service/watcher.py``); decisions only look it
up here. What is not known counts against a change: the job keeps the node type it was written for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.core.inventory import NodeType
from advisor.core.policy import NodeTypeChange
from advisor.core.request import JobRequest

LATER = "node-type-later"
LIMIT = "node-type-limit"
EARLIER_HOOKS = "earlier hooks"
"""Of PBS's settings: names of the site's hooks that see a job before the advisor's, by blanks."""
MARGIN_S = 60.0
"""A job must end this long before a reservation begins: what is known is a little old."""
_COUNTED = frozenset({"ncpus", "mem", "vmem", "pmem", "pvmem"})
_NOTHING = ("", "")


@dataclass(frozen=True, slots=True)
class Queue:
    """A PBS queue (or, named "", the server) as far as it bears on what may be written.

    Resources by name, values as PBS shows them. ``destinations``: of a routing queue, in
    order; of the server, its default queue.
    """

    name: str
    enabled: bool = True
    started: bool = True
    default: Mapping[str, str] = field(default_factory=dict)
    """``resources_default``: applied after the hook to what the job leaves open."""
    default_chunk: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, str] = field(default_factory=dict)
    """``resources_min``."""
    most: Mapping[str, str] = field(default_factory=dict)
    """``resources_max``."""
    destinations: tuple[str, ...] = ()
    limited: frozenset[str] = frozenset()
    """Resources that any other limit counts (``max_run_res.ncpus``, ``max_queued_res``, ...)."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What of a PBS host a request is matched with; equal hosts are one kind.

    ``resources``: all that select it, as ``model=bro``. ``sharings``: the ``sharing`` attributes
    of its vnodes. ``parted``: a vnode is not the whole host.
    """

    resources: frozenset[str] = frozenset()
    cores: int = 0
    sharings: tuple[str, ...] = ()
    parted: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """The nodes of one node type in one partition.

    ``usable`` are those a job may get at some time: not down, drained, or reserved for years.
    ``idle`` counts those that a job may have now, by the time (seconds since 1970) until which:
    a reservation begins then; infinity where none is planned. ``kinds`` are there for PBS alone.
    """

    nodes: int = 0
    usable: int = 0
    idle: tuple[tuple[float, int], ...] = ()
    kinds: frozenset[NodeKind] = frozenset()

    def idle_until(self, end: float) -> int:
        """Return how many nodes are idle now and nobody else's until ``end``."""
        return sum(count for until, count in self.idle if until >= end)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition, or queue: whether it starts jobs, and what it gives and asks of them.

    ``time_limit_s`` is what a job without a time limit gets, infinity for none, None where that is
    not understood. A job may have ``most`` of a node, and one that names no nodes gets any between
    ``smallest`` and ``largest``: each is CPUs and MB of memory, 0 where nothing is stated. ``qos``
    has more limits. ``default``: a job that names no partition goes here. ``default_memory_mb`` is
    :attr:`JobRequest.default_memory_mb`. ``shared_cores`` is how it says that other jobs may run on
    the cores of every job, whatever that asks for; "" where they may not.
    """

    up: bool = True
    whole_nodes: bool = False
    time_limit_s: float | None = math.inf
    most: tuple[int, int] = (0, 0)
    qos: str = ""
    smallest: tuple[int, int] = (0, 0)
    largest: tuple[int, int] = (0, 0)
    default: bool = False
    default_memory_mb: tuple[float, float] | None = None
    shared_cores: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on cores, memory or what is billed for them, in the scheduler's words.

    ``job`` are those of a single job, with the CPUs and MB they allow it, or allow it per node;
    ``most`` are shared with other jobs or over time; ``least`` is what a job must ask for;
    ``wall_s`` is the longest time limit of a job, infinity for none.
    """

    job: tuple[tuple[str, float, float, bool], ...] = ()
    most: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    """Of an association: the QOS of a job that names none; several where that is not known."""
    wall_s: float = math.inf

    def hit(self, nodes: int, cpus: int, memory_mb: float) -> str:
        """Return what a job may hit that has so much on each of its nodes, "" if nothing."""
        for text, most_cpus, most_mb, per_node in self.job:
            count = 1 if per_node else nodes
            if count * cpus > most_cpus or count * memory_mb > most_mb:
                return text
        # How much of what is shared others have used is not known: such a limit may always be hit.
        return next(iter(self.most), "")


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What accounting allows.

    ``users`` has every user's associations, by account, and by :func:`account_in` those that hold
    in one partition only; ``default_accounts`` the account of a job that names none, by user.
    """

    users: Mapping[str, Mapping[str, Bounds]] = field(default_factory=dict)
    qos: Mapping[str, Bounds] = field(default_factory=dict)
    enforced: bool = True
    default_accounts: Mapping[str, str] = field(default_factory=dict)

    def of(
        self, request: JobRequest, partition_qos: str, partition: str = ""
    ) -> tuple[Bounds, ...] | None:
        """Return all that hold for a job in a partition, None where its user or QOS is not known.

        A job that names no account has its user's default; only where that is not known either, it
        is held to all of its user's accounts.
        """
        if not self.enforced:
            return ()
        accounts = self.users.get(request.user, {})
        account = request.account or self.default_accounts.get(request.user, "")
        bounds = list(accounts.values())
        if account:
            # An association of one partition stands in place of the account's general one, as in
            # Slurm.
            account_bounds = accounts.get(account_in(account, partition)) or accounts.get(account)
            bounds = [account_bounds] if account_bounds is not None else []
        if not bounds:
            return None
        names = {request.qos} if request.qos else {q for b in bounds for q in b.qos}
        if partition_qos:
            names.add(partition_qos)
        # A QOS that was made since the last reading may have any limit.
        if not names <= self.qos.keys():
            return None
        return (*bounds, *(self.qos[name] for name in sorted(names)))


def account_in(account: str, partition: str) -> str:
    """Return the name of an account's associations that hold in one partition only.

    Neither name holds a comma.
    """
    return f"{account},{partition}"


@dataclass(frozen=True, slots=True)
class Availability:
    """The state of a cluster when it was last read.

    ``rooms`` is keyed by node type and partition. ``problem`` says why nothing is known, "" while
    it is; ``limits`` is None where they are not known. ``promised`` are nodes, by node type, that
    jobs submitted since are to get: the scheduler did not know of them yet. ``settings`` are those
    of the scheduler's own configuration by which its translator judges jobs, and
    :data:`EARLIER_HOOKS`.
    """

    scheduler: str = ""
    rooms: Mapping[tuple[str, str], Room] = field(default_factory=dict)
    partitions: Mapping[str, PartitionState] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    limits: JobLimits | None = None
    problem: str = ""
    promised: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""
    """Which one was read, "" where it does not say."""

    def node_type_obstacle(
        self,
        request: JobRequest,
        baseline_type: NodeType,
        target: NodeType,
        partition: str,
        nodes: int,
        change: NodeTypeChange,
    ) -> tuple[str, str]:
        """Return (reason code, detail) of what keeps a job off a node type, ("", "") if nothing.

        ``baseline_type`` is the one the job would run on as it is written; the two may be the same
        where a partition holds several and the job would be bound to one. ``nodes``: how many it
        takes. The code is ``node-type-later`` or ``node-type-limit``. ``change`` ``allow`` lets a
        job wait there, never be refused: where nothing is known, it keeps its node type all the
        same.
        """
        if self.problem:
            return LATER, f"nothing is known of the cluster's nodes: {self.problem}"
        if request.scheduler != self.scheduler:
            return LATER, f"the daemon knows nothing of {request.scheduler}'s nodes"
        place = self.partitions.get(partition)
        room = self.rooms.get((target.name, partition))
        if place is None or room is None:
            return LATER, f"there is no {target.name} node in {partition or 'its partition'}"
        if request.held:
            return LATER, "the job is held or waits, and it is not known which nodes are idle then"
        if room.usable < nodes:
            return LATER, f"{_count_of(room.usable, room.nodes, target)} usable"
        if change == "no-later" and (
            why := self._later_reason(request, target, place, room, nodes)
        ):
            return LATER, why
        why = self._limit_reason(request, baseline_type, target, partition, nodes)
        return (LIMIT, why) if why else _NOTHING

    def _later_reason(
        self, request: JobRequest, target: NodeType, place: PartitionState, room: Room, nodes: int
    ) -> str:
        """Return why a job could start later on a node type, "" if it can start now."""
        if request.array:
            return "not every task of a job array can start now"
        if not place.up:
            return "the partition starts no jobs now"
        promised = self.promised.get(target.name, 0)
        idle = room.idle_until(-math.inf) - promised
        if idle < nodes:
            return f"{_count_of(max(0, idle), room.nodes, target)} idle now"
        limit = place.time_limit_s if request.time_limit_s is None else request.time_limit_s
        # A limit that is not understood counts as no end: then only nodes without any reservation
        # ahead are idle.
        idle = room.idle_until(time.time() + (limit or math.inf) + MARGIN_S) - promised
        if idle < nodes:
            return (
                f"{_count_of(max(0, idle), room.nodes, target)} idle until the job ends: "
                "a reservation"
            )
        return ""

    def _limit_reason(
        self,
        request: JobRequest,
        baseline_type: NodeType,
        target: NodeType,
        partition: str,
        nodes: int,
    ) -> str:
        """Return which limit a job may hit on a node type and not on its own, "" if none."""
        place = self.partitions[partition]
        size, low, high = _size(target), _size(baseline_type), _size(baseline_type)
        # A job that names no nodes may land on the smallest or the largest of its partition.
        if not (request.constraint or request.node_list):
            low, high = _least(low, place.smallest), _most(high, place.largest)
        more = size[0] > low[0] or size[1] > low[1]
        less = size[0] < high[0] or size[1] < high[1]
        if not (more or less):
            return ""
        if self.limits is None:
            return "the limits of accounts and QOS cannot be read"
        bounds = self.limits.of(request, place.qos, partition)
        if bounds is None:
            return f"the limits of {request.user} are not known"
        if more:
            hits = [*self._queue_limits(partition), *(b.hit(nodes, *size) for b in bounds)]
            if size[0] > (place.most[0] or size[0]) or size[1] > (place.most[1] or size[1]):
                hits.append(f"MaxCPUsPerNode or MaxMemPerNode of partition {partition}")
            for hit in filter(None, hits):
                return f"its nodes are larger, and a limit holds: {hit}"
        if less:
            for least in (m for b in bounds for m in b.least):
                return f"its nodes are smaller, and a limit holds: {least}"
        return ""

    def _queue_limits(self, name: str, depth: int = 4) -> list[str]:
        """Return PBS's limits on cores and memory of a queue, its destinations and the server."""
        limits = []
        for queue in (self.queues.get(name), self.queues.get("")):
            if queue is not None:
                where = f"queue {queue.name}" if queue.name else "the server"
                limits += [f"{r} of {where}" for r in sorted(queue.limited & _COUNTED)]
        routed = self.queues.get(name)
        # Routing queues may lead to each other: the depth ends a circle.
        if routed is not None and depth and name:
            for destination in routed.destinations:
                limits += self._queue_limits(destination, depth - 1)
        return limits

    def gives_whole_nodes(self, partition: str) -> bool:
        """Tell whether every job of a partition has its nodes for itself."""
        place = self.partitions.get(partition)
        return place is not None and place.whole_nodes

    def partitions_of(self, request: JobRequest) -> tuple[str, ...]:
        """Return the partitions that a job may go to: those it names, else the default."""
        named = tuple(filter(None, request.partition.split(",")))
        return named or tuple(name for name, place in self.partitions.items() if place.default)

    def time_limit_s(self, request: JobRequest) -> float | None:
        """Return the time limit that a job gets which states none, infinity for none.

        It is the shortest of all partitions that the job may go to and of what its account and QOS
        allow it. None where any of that is not known.
        """
        names = self.partitions_of(request)
        if self.limits is None or not names or request.scheduler != self.scheduler:
            return None
        limits = []
        for name in names:
            place = self.partitions.get(name)
            bounds = self.limits.of(request, place.qos, name) if place is not None else None
            if place is None or place.time_limit_s is None or bounds is None:
                return None
            limits += [place.time_limit_s, *(b.wall_s for b in bounds)]
        return min(limits)

    def default_memory_mb(self, request: JobRequest) -> tuple[float, float] | None:
        """Return what a job gets that states no memory: :attr:`JobRequest.default_memory_mb`."""
        places = {
            place.default_memory_mb if place is not None else None
            for place in map(self.partitions.get, self.partitions_of(request))
        }
        return places.pop() if len(places) == 1 else None

    def shared_cores(self, request: JobRequest) -> str:
        """Return which partition of a job lets others run on its cores, and how; "" for none."""
        names = (n for n in self.partitions_of(request) if n in self.partitions)
        words = ((self.partitions[name].shared_cores, name) for name in names)
        return next((f"{how} of partition {name}" for how, name in words if how), "")

    @property
    def timeless(self) -> bool:
        """Whether an answer lasts as long as this state: no node has a reservation ahead."""
        return all(until == math.inf for room in self.rooms.values() for until, _ in room.idle)


def _size(node_type: NodeType) -> tuple[int, int]:
    return node_type.cores * node_type.threads_per_core, node_type.memory_mb


def _least(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return min(a[0], b[0] or a[0]), min(a[1], b[1] or a[1])


def _most(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return max(a[0], b[0]), max(a[1], b[1])


def _count_of(count: int, total: int, node_type: NodeType) -> str:
    """Return ``1 of 4 skylake nodes is``."""
    verb = "is" if count == 1 else "are"
    return f"{count} of {total} {node_type.name} nodes {verb}"
