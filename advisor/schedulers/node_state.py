"""What nodes do now, in the words of no scheduler, and what room that leaves per node type."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from advisor.core.availability import NodeKind, PartitionState, Queue, Room
from advisor.core.inventory import Inventory

TIMEOUT_S = 10.0
"""A scheduler's command that takes longer is given up."""
FOR_EVER_S = 30 * 86400.0
"""A node that is reserved for longer than this counts as lost: no job waits for it."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node: whether a job may have it now (until when, seconds since 1970), or ever."""

    name: str
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    idle: bool = False
    usable: bool = False
    until: float = math.inf
    kind: NodeKind | None = None


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A cluster as it was when it was read."""

    nodes: tuple[NodeState, ...]
    partitions: Mapping[str, PartitionState] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """As :class:`Availability` has them."""
    cluster: str = ""


def rooms(inventory: Inventory, nodes: Iterable[NodeState]) -> dict[tuple[str, str], Room]:
    """Return the room per node type and partition.

    A node that lost its node type's feature counts as one that cannot be had. Nodes of no known
    node type have rooms named "", which say only what kinds there are.
    """
    type_of = {name: t for t in inventory.node_types.values() for name in t.nodes}
    counts: Counter[tuple[str, str]] = Counter()
    usable: Counter[tuple[str, str]] = Counter()
    idle: defaultdict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    kinds: defaultdict[tuple[str, str], set[NodeKind]] = defaultdict(set)
    for node in nodes:
        kind = type_of.get(node.name)
        if node.kind is not None:
            for partition in node.partitions:
                kinds[kind.name if kind else "", partition].add(node.kind)
        if kind is None:
            continue
        selected = not kind.feature or kind.feature in node.features
        for partition in node.partitions:
            key = (kind.name, partition)
            counts[key] += 1
            usable[key] += selected and node.usable
            if selected and node.usable and node.idle:
                idle[key][node.until] += 1
    return {
        key: Room(counts[key], usable[key], tuple(sorted(idle[key].items())), frozenset(kinds[key]))
        for key in dict.fromkeys((*counts, *kinds))
    }


def sized(
    inventory: Inventory, partitions: Mapping[str, PartitionState]
) -> dict[str, PartitionState]:
    """Return the partitions with the sizes of the nodes a job may get there."""
    by_name = {}
    for name, state in partitions.items():
        types = inventory.in_partition(name)
        cpus = [t.cores * t.threads_per_core for t in types] or [0]
        memory = [t.memory_mb for t in types] or [0]
        by_name[name] = replace(
            state, smallest=(min(cpus), min(memory)), largest=(max(cpus), max(memory))
        )
    return by_name
