"""Strategy ``roofline``: operations per byte against the node's peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from advisor.classes.base import CPU, MEMORY, MIXED, UNKNOWN, Measured, Setup, apart
from advisor.classes.files import Peaks

_SHARE, _SHARE_EAR6 = 0.75, 0.6
"""Share of the bandwidth from which a job is bound by memory; that of EAR 6."""


class Roofline:
    """EAR's roofline strategy; the ridge is asked first."""

    NAME = "roofline"
    RANK = 10
    USES = ("gflops", "gbs")

    def __init__(self, peaks: Peaks, *, like_ear6: bool = False) -> None:
        self.peaks = peaks
        self._per_cpu = like_ear6
        self.memory_from_gbs = (_SHARE_EAR6 if like_ear6 else _SHARE) * peaks.gbs

    @classmethod
    def of(cls, setup: Setup) -> Self | None:
        """Return it where there are peaks."""
        peaks = setup.files.peaks
        return None if peaks is None else cls(peaks, like_ear6=setup.like == "ear6")

    def class_of(
        self,
        cpi: float | None,
        tpi: float | None,
        gflops: float | None,
        gbs: float | None,
        cpus: int | None,
    ) -> str:
        """Return the class; UNKNOWN where a measure is missing or both are 0."""
        if gflops is None or gbs is None or not (gflops or gbs):
            return UNKNOWN
        if self._per_cpu and not cpus:
            return UNKNOWN
        if not gbs or gflops / gbs >= self.peaks.ridge:
            return CPU
        reached = gbs / cpus if self._per_cpu and cpus else gbs
        return MEMORY if reached >= self.memory_from_gbs else MIXED

    def distances(self, point: Measured) -> Mapping[str, float]:
        """Return nothing: limits are no distances."""
        return {}

    def steady(self, point: Measured, share: float) -> bool:
        """Whether no change of the measures by less than ``share`` of each changes the class."""
        gbs, ridge = point.gbs, self.peaks.ridge
        intensity = point.gflops / gbs if gbs and point.gflops else 0.0
        reached = gbs / point.cpus if self._per_cpu and gbs and point.cpus else gbs
        return apart(intensity, ridge, 2.5 * share) and apart(reached, self.memory_from_gbs, share)

    def why(self, point: Measured) -> str:
        """Return what was compared."""
        assert point.gbs is not None and point.gflops is not None
        intensity = f"{point.gflops / point.gbs:.4g}" if point.gbs else "unbounded"
        return (
            f"{intensity} operations per byte against the ridge {self.peaks.ridge:.4g}, "
            f"{point.gbs:g} GB/s against {self.memory_from_gbs:g}"
        )
