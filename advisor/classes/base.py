"""The classes, what is known of a node type to tell them apart, and what a strategy offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self

from advisor.classes.files import ClassFiles, FileOrder

CPU, MEMORY, MIXED, UNKNOWN = "cpu-bound", "memory-bound", "mixed", "unknown"
MPI, IO, BUSY, GPU = "mpi-bound", "io-bound", "busy-waiting", "gpu"
CLASSES = (CPU, MEMORY, MIXED, MPI, IO, BUSY, GPU, UNKNOWN)

Like = Literal["page", "ear6"]
"""Whose rules hold where EAR's page of October 2025 and the sources of EAR 6 differ."""


class ClassLimits(NamedTuple):
    """ClassLimits of the strategy ``default``: cycles per instruction, and GB/s of one node."""

    cpu_cpi: float
    cpu_gbs: float
    memory_cpi: float
    memory_gbs: float


class Measured(NamedTuple):
    """What the strategies look at, of one node; None is not measured."""

    cpi: float | None = None
    tpi: float | None = None
    gflops: float | None = None
    gbs: float | None = None
    cpus: int | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What is known of a node type to classify its jobs.

    ``limits_from`` says where the limits are from; ``cpus`` are those of one node.
    """

    node_type: str
    tag: str
    files: ClassFiles
    limits: ClassLimits
    limits_from: str = ""
    cpus: int | None = None
    like: Like = "page"
    order: FileOrder = "page"
    notes: tuple[str, ...] = field(default=())


def apart(value: float | None, limit: float, share: float) -> bool:
    """Whether a measure stays on its side of a limit if it changes by less than ``share``."""
    return not value or abs(limit / value - 1) >= share


class Strategy(Protocol):
    """One way to tell cpu-bound, memory-bound and mixed apart; entry point advisor.strategies.

    ``NAME`` is its entry point's; of those that are available the one with the greatest ``RANK`` is
    taken. ``USES`` are the measures it cannot do without.
    """

    NAME: str
    RANK: int
    USES: tuple[str, ...]

    @classmethod
    def of(cls, setup: Setup) -> Self | None:
        """Return it for a node type; None where the files it needs are not there or not valid."""

    def class_of(
        self,
        cpi: float | None,
        tpi: float | None,
        gflops: float | None,
        gbs: float | None,
        cpus: int | None,
    ) -> str:
        """Return the class; UNKNOWN where a measure is missing, or nothing was counted."""

    def distances(self, point: Measured) -> Mapping[str, float]:
        """Return how far a point is from each class; empty for a strategy without distances."""

    def steady(self, point: Measured, share: float) -> bool:
        """Whether no change of the measures by less than ``share`` of each changes the class."""

    def why(self, point: Measured) -> str:
        """Return the comparison that decided, for people."""
