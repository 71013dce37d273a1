"""Strategy ``kmedoids``: the nearest of three representatives of the site's own jobs."""

from __future__ import annotations

from collections.abc import Mapping
from math import dist
from typing import Self

from advisor.classes.base import CPU, MEMORY, MIXED, UNKNOWN, Measured, Setup
from advisor.classes.files import Extremes, Medoids

_FAR = 10
"""Standard deviations that no job of the same kind of nodes is away from every medoid."""


class KMedoids:
    """EAR's k-medoids strategy; a tie of CPU and memory is mixed, however far that is."""

    NAME = "kmedoids"
    RANK = 20
    USES = ("cpi", "tpi", "gflops", "gbs")

    def __init__(self, extremes: Extremes, medoids: Medoids, *, per_cpu: bool = False) -> None:
        self.extremes, self.medoids = extremes, medoids
        self._per_cpu = per_cpu

    @classmethod
    def of(cls, setup: Setup) -> Self | None:
        """Return it where there are both files."""
        extremes, medoids = setup.files.extremes, setup.files.medoids
        if extremes is None or medoids is None:
            return None
        return cls(extremes, medoids, per_cpu=setup.like == "ear6")

    def _distances(
        self,
        cpi: float | None,
        tpi: float | None,
        gflops: float | None,
        gbs: float | None,
        cpus: int | None,
    ) -> tuple[float, float, float] | None:
        """Return the distances to cpu-bound, memory-bound and mixed, None where one is unknown."""
        if cpi is None or tpi is None or gflops is None or gbs is None:
            return None
        if not (cpi or tpi or gflops or gbs) or (self._per_cpu and not cpus):
            return None
        divisor = cpus if self._per_cpu and cpus else 1
        (s1, s2, s3, s4), (m1, m2, m3, m4) = self.extremes
        vector = (
            (cpi / divisor - m1) / s1,
            (tpi / divisor - m2) / s2,
            (gflops / divisor - m3) / s3,
            (gbs / divisor - m4) / s4,
        )
        cpu, memory, mixed = self.medoids
        return dist(vector, cpu), dist(vector, memory), dist(vector, mixed)

    def class_of(
        self,
        cpi: float | None,
        tpi: float | None,
        gflops: float | None,
        gbs: float | None,
        cpus: int | None,
    ) -> str:
        """Return the class; UNKNOWN where a measure is missing or all are 0."""
        three = self._distances(cpi, tpi, gflops, gbs, cpus)
        if three is None:
            return UNKNOWN
        cpu, memory, mixed = three
        if cpu < memory and cpu < mixed:
            return CPU
        return MEMORY if memory < cpu and memory < mixed else MIXED

    def distances(self, point: Measured) -> Mapping[str, float]:
        """Return the distance to each class's medoid."""
        three = self._distances(*point)
        return {} if three is None else dict(zip((CPU, MEMORY, MIXED), three, strict=True))

    def steady(self, point: Measured, share: float) -> bool:
        """Whether no change of the measures by less than ``share`` of each changes the class."""
        three = self._distances(*point)
        if three is None:
            return True
        divisor = point.cpus if self._per_cpu and point.cpus else 1
        reach = [
            share * (x or 0.0) / divisor / s
            for x, s in zip(point[:4], self.extremes.std, strict=True)
        ]
        best = three.index(min(three))
        for rival, far in enumerate(three):
            apart = far * far - three[best] * three[best]  # linear in the point
            pairs = zip(reach, self.medoids[best], self.medoids[rival], strict=True)
            if rival != best and apart < 2 * sum(r * abs(a - b) for r, a, b in pairs):
                return False
        return True

    def why(self, point: Measured) -> str:
        """Return what was compared."""
        distances = self.distances(point)
        text = "distance to " + ", ".join(f"{name} {d:.3g}" for name, d in distances.items())
        if min(distances.values()) > _FAR:
            text += "; far from all: are they of this node type, and TPI of the same EAR release?"
        return text
