"""What the site has: node types and the partitions they are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Annotated, Literal

from advisor.core.axes import AXES
from advisor.core.codec import Record, wire
from advisor.core.keys import Between, ByHand, Written

# Each key of site.yaml that says something of a node is defined once, here (core/keys.py says how).


@dataclass(frozen=True, slots=True)
class Gpus(Record):
    """The GPUs of a node; `advisor site discover --scheduler local` on such a node tells them.

    ``freq_khz`` and ``power_w`` are ascending, empty where none can be set or nobody said.
    """

    model: Annotated[str, Written.GPU_MODEL, "the GPUs' name, as the driver has it"] = ""
    count: Annotated[
        int, Between(1, 256), "GPUs per node; default: as many as the scheduler says, else 1"
    ] = 0
    freq_khz: Annotated[
        tuple[int, ...],
        Written.FREQUENCIES,
        "clocks that can be set: a list, or {min, max, step}; kHz or with a unit",
    ] = ()
    power_w: Annotated[
        tuple[int, ...],
        Written.WATTS,
        "power limits of one GPU that can be set, in W: a list, or {min, max, step}",
    ] = ()
    idle_w: Annotated[float | None, Between(0, 5000), "power of an idle GPU in W"] = None

    def steps(self, axis: str) -> tuple[int, ...]:
        """Return the values of a further axis that can be set, () where that is not known."""
        values = {"gpu_freq_khz": self.freq_khz, "gpu_power_w": self.power_w}
        return values.get(axis, ())


NO_GPUS = Gpus()


@dataclass(frozen=True, slots=True)
class Hardware:
    """What equal nodes share; of unequal ones of a node type the smallest counts."""

    name: str
    _: KW_ONLY
    sockets: Annotated[int, Between(1, 1024), "sockets per node"] = 1
    cores: Annotated[
        int,
        Between(1, 1 << 20),
        "physical cores per node, all sockets together, that jobs may use",
    ] = 1
    threads_per_core: Annotated[int, Between(1, 16), "hardware threads per core"] = 1
    memory_mb: Annotated[int, Written.MEMORY, "memory per node in MB, or with a unit"] = 0


HARDWARE = tuple(f.name for f in fields(Hardware) if f.kw_only)
"""The names of what equal nodes share."""


@dataclass(frozen=True, slots=True)
class NodeType(Hardware, Record):
    """A class of equal nodes.

    Steps of ``freq_khz`` are ascending. ``partition_nodes`` says how many of the nodes one job can
    have in a partition, where that is less than all; ``default_partition`` is the partition of a
    job that names none, if these nodes are in it. Power is None where nobody said.
    """

    feature: Annotated[
        str, Written.FEATURE, "the constraint that selects these nodes and no others"
    ] = ""
    partitions: Annotated[tuple[str, ...], Written.WORDS, "partitions with these nodes"] = ()
    freq_khz: Annotated[
        tuple[int, ...],
        ByHand(),
        Written.FREQUENCIES,
        "caps that can be set: a list, or {min, max, step}; kHz or with a unit",
    ] = ()
    default_freq_khz: Annotated[
        int,
        ByHand(),
        Written.FREQUENCY,
        "the frequency of a job that asks for none; default: the highest step",
    ] = 0
    nodes: Annotated[tuple[str, ...], Written.NODES, "node list, like bdw[1-4,7]"] = ()
    weight: Annotated[
        int,
        Between(0, 1 << 31),
        "the scheduler's weight: nodes with a lower one are handed out first",
    ] = 1
    base_power_w: Annotated[
        float | None, ByHand(), Between(0, 1e6), "power of an idle node in W, for estimates"
    ] = None
    core_power_w: Annotated[
        float | None,
        ByHand(),
        Between(0, 1e4),
        "additional power of one busy core in W, for estimates",
    ] = None
    partition_nodes: tuple[tuple[str, int], ...] = ()
    default_partition: str = ""
    shared_caps: Annotated[
        Literal["refuse", "accept"],
        ByHand(),
        "caps for jobs that share these nodes: `accept` where each core has a clock of its own",
    ] = field(default="refuse", metadata=wire(omit=True))
    gpus: Annotated[Gpus, ByHand(), "the GPUs of a node"] = field(
        default=NO_GPUS, metadata=wire(omit=True)
    )

    @property
    def hardware(self) -> str:
        """What models of it depend on, in words; memory only says which jobs it can take."""
        gpus = f", {self.gpus.count} GPUs {self.gpus.model}".rstrip() if self.gpus.count else ""
        cores = f"{self.sockets} x {self.cores // max(1, self.sockets)} cores"
        return f"{cores}, {self.threads_per_core} threads each{gpus}"

    def joined(self, other: NodeType) -> NodeType:
        """Return the type with another cluster's nodes; the smaller memory counts."""
        if not other.nodes and not other.partitions:
            return self
        limits = {
            p: self.nodes_in(p) + other.nodes_in(p) for p in (*self.partitions, *other.partitions)
        }
        nodes = tuple(dict.fromkeys((*self.nodes, *other.nodes)))
        return replace(
            self,
            nodes=nodes,
            partitions=tuple(limits),
            partition_nodes=tuple((p, n) for p, n in limits.items() if n < len(nodes)),
            memory_mb=min(self.memory_mb, other.memory_mb) or self.memory_mb,
            default_partition=self.default_partition or other.default_partition,
        )

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

    @classmethod
    def joined(cls, inventories: Iterable[Inventory]) -> Inventory:
        """Return the node types of several clusters; those of one name are one type."""
        types: dict[str, NodeType] = {}
        for inventory in inventories:
            for name, node_type in inventory.node_types.items():
                types[name] = types[name].joined(node_type) if name in types else node_type
        return cls(dict(sorted(types.items())))

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
            # Backwards, so that of several types which name a node the first one stays.
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

    def axis_steps(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return what the nodes' GPUs can be set to by axis and feature; of equal ones all."""
        steps: dict[str, dict[str, tuple[int, ...]]] = {}
        for t in self.node_types.values():
            for axis in AXES:
                if values := t.gpus.steps(axis):
                    of_axis = steps.setdefault(axis, {})
                    of_axis[t.feature] = tuple(sorted({*of_axis.get(t.feature, ()), *values}))
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
