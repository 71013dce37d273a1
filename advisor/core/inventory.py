"""What the site has: node types and the partitions they are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from advisor.core.codec import Record, wire


@dataclass(frozen=True, slots=True)
class Gpus(Record):
    """A node's GPUs: their model, how many, and what can be set on each.

    ``freq_khz`` are its clocks, ``power_w`` its power limits (both ascending, empty where none can
    be set or nobody said), ``idle_w`` what one takes idle.
    """

    model: str = ""
    count: int = 0
    freq_khz: tuple[int, ...] = ()
    power_w: tuple[int, ...] = ()
    idle_w: float | None = None

    def steps(self, axis: str) -> tuple[int, ...]:
        """Return the values of a further axis that can be set, () where that is not known."""
        values = {"gpu_freq_khz": self.freq_khz, "gpu_power_w": self.power_w}
        return values.get(axis, ())


NO_GPUS = Gpus()


@dataclass(frozen=True, slots=True)
class NodeType(Record):
    """A class of equal nodes.

    ``feature`` is the scheduler's constraint that selects it; ``cores`` are physical cores per
    node; ``freq_khz`` are the frequency caps that can be set, ascending, empty when none can;
    ``default_freq_khz`` is what a job gets without asking. ``weight`` is the scheduler's node
    weight: lower is handed out first. ``partition_nodes`` says how many of the nodes one job can
    have in a partition, where that is less than all; ``default_partition`` is the partition of a
    job that names none, if these nodes are in it.
    """

    name: str
    feature: str = ""
    partitions: tuple[str, ...] = ()
    sockets: int = 1
    cores: int = 1
    threads_per_core: int = 1
    memory_mb: int = 0
    freq_khz: tuple[int, ...] = ()
    default_freq_khz: int = 0
    nodes: tuple[str, ...] = ()
    weight: int = 1
    base_power_w: float | None = None
    core_power_w: float | None = None
    partition_nodes: tuple[tuple[str, int], ...] = ()
    default_partition: str = ""
    gpus: Gpus = field(default=NO_GPUS, metadata=wire(omit=True))

    def nodes_in(self, partition: str) -> int:
        """Return how many of these nodes one job can have in a partition."""
        if partition not in self.partitions:
            return 0
        return min(len(self.nodes), dict(self.partition_nodes).get(partition, len(self.nodes)))


def _prefixes(nodes: Iterable[str]) -> set[str]:
    return {node.rstrip("0123456789").rstrip("-_") for node in nodes}


@dataclass(frozen=True, slots=True)
class Inventory:
    """All node types of a site, by name."""

    node_types: Mapping[str, NodeType] = field(default_factory=dict)
    _of_node: dict[str, NodeType] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, node_types: Iterable[NodeType]) -> Inventory:
        """Build an inventory from node types."""
        return cls({t.name: t for t in node_types})

    @property
    def default_partition(self) -> str:
        """The partition of a job that names none, "" when the scheduler has no such."""
        partitions = (t.default_partition for t in self.node_types.values() if t.default_partition)
        return next(partitions, "")

    def in_partition(self, partition: str) -> tuple[NodeType, ...]:
        """Return the node types of a partition in the order the scheduler hands them out."""
        types = [t for t in self.node_types.values() if partition in t.partitions]
        return tuple(sorted(types, key=lambda t: (t.weight, -len(t.nodes), t.name)))

    def type_of_node(self, node: str) -> NodeType | None:
        """Return the node type of a node, the first one that has it; None for an unknown one."""
        if not self._of_node:
            for node_type in reversed(list(self.node_types.values())):
                self._of_node.update(dict.fromkeys(node_type.nodes, node_type))
        return self._of_node.get(node)

    def resolve(self, name: str) -> NodeType | None:
        """Return the node type a name stands for: its own, else a feature or the nodes' prefix.

        ``bdw`` finds the type ``broadwell`` of the nodes bdw1 to bdw4 if no other type has such
        nodes; None when nothing, or more than one, fits.
        """
        if name in self.node_types:
            return self.node_types[name]
        candidates = [t for t in self.node_types.values() if t.feature == name]
        if not candidates:
            candidates = [
                t for t in self.node_types.values() if name and name in _prefixes(t.nodes)
            ]
        return candidates[0] if len(candidates) == 1 else None

    def frequency_steps(self) -> dict[str, tuple[int, ...]]:
        """Return the caps that can be set, kHz, by feature; of equal features all of them."""
        steps: dict[str, tuple[int, ...]] = {}
        for t in self.node_types.values():
            steps[t.feature] = tuple(sorted({*steps.get(t.feature, ()), *t.freq_khz}))
        return steps

    def by_feature(self, feature: str) -> tuple[NodeType, ...]:
        """Return the node types a constraint selects: by feature, else by the type's own name.

        Of PBS's several resources (``node_type=bdw:bigmem=True``) one that is a feature does.
        """
        types = self.node_types.values()
        matching = tuple(t for t in types if feature in (t.feature, t.name))
        if matching or ":" not in feature:
            return matching
        parts = set(feature.split(":"))
        return tuple(t for t in types if t.feature in parts)
