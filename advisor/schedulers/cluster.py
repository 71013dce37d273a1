"""Nodes and partitions as a scheduler tells of them, in the words of none."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from advisor.core.inventory import HARDWARE, Hardware


@dataclass(frozen=True, slots=True)
class Node(Hardware):
    """One node: what jobs may use of it, cores and memory for the system taken off.

    ``features`` are what may select it: Slurm's features, PBS's resources like ``kind=bdw``.
    """

    features: tuple[str, ...] = ()
    _: KW_ONLY
    weight: int = 1
    partitions: tuple[str, ...] = ()
    gpus: int = 0
    gpu_models: tuple[str, ...] = ()
    """The models of its GPUs, as the scheduler names them; nodes may differ in both."""

    @property
    def hardware(self) -> tuple[int, ...]:
        """The values of HARDWARE."""
        return tuple(getattr(self, name) for name in HARDWARE)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, or queue; ``max_nodes`` bounds a single job, None when nothing does."""

    name: str
    default: bool = False
    max_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a scheduler says about itself."""

    version: str
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    name: str = ""
    """Slurm's ClusterName, PBS's server; "" where it has none."""

    def features(self) -> frozenset[str]:
        """Return every feature of a node that jobs can get."""
        return frozenset(f for n in self.nodes if n.partitions for f in n.features)
