"""Strategy ``default``: fixed limits of cycles per instruction and memory traffic."""

from __future__ import annotations

from collections.abc import Mapping
from operator import ge, gt, le, lt
from typing import Self

from advisor.classes.base import CPU, MEMORY, MIXED, UNKNOWN, ClassLimits, Measured, Setup, apart

BUILT_IN = "EAR's for Intel before Sapphire Rapids, and anything unknown"
OLD_INTEL = ClassLimits(0.6, 30, 0.8, 100)
SAPPHIRE_RAPIDS = ClassLimits(0.4, 180, 0.4, 250)
ZEN2, ZEN3, ZEN5 = (
    ClassLimits(0.6, 250, 0.9, 350),
    ClassLimits(0.45, 250, 0.6, 350),
    ClassLimits(0.6, 400, 0.9, 500),
)


def limits_of(vendor: str = "", family: int = 0, model: int = 0) -> tuple[ClassLimits, str]:
    """Return the limits in EAR's sources for a processor as /proc/cpuinfo names it, and for whom.

    Zen 4 has the number of Zen 3, family 25.
    """
    if vendor == "GenuineIntel" and family == 6 and model >= 143:
        return SAPPHIRE_RAPIDS, "EAR's for Intel from Sapphire Rapids on"
    if vendor == "AuthenticAMD":
        if family < 25:
            return ZEN2, "EAR's for AMD's family 23"
        return (
            (ZEN5, "EAR's for AMD above family 25")
            if family > 25
            else (ZEN3, "EAR's for AMD's family 25")
        )
    return OLD_INTEL, BUILT_IN


class Default:
    """EAR's default strategy; the CPU's limits are asked first."""

    NAME = "default"
    RANK = 0
    USES = ("cpi", "gbs")

    def __init__(self, limits: ClassLimits, *, strict: bool = False) -> None:
        self.limits = limits
        self._below, self._above = (lt, gt) if strict else (le, ge)

    @classmethod
    def of(cls, setup: Setup) -> Self:
        """Return it; it needs no file."""
        return cls(setup.limits, strict=setup.like == "ear6")

    def class_of(
        self,
        cpi: float | None,
        tpi: float | None,
        gflops: float | None,
        gbs: float | None,
        cpus: int | None,
    ) -> str:
        """Return the class; UNKNOWN where a measure is missing or both are 0."""
        limits = self.limits
        if cpi is None or gbs is None or not (cpi or gbs):
            return UNKNOWN
        if self._below(cpi, limits.cpu_cpi) and self._below(gbs, limits.cpu_gbs):
            return CPU
        if self._above(cpi, limits.memory_cpi) and self._above(gbs, limits.memory_gbs):
            return MEMORY
        return MIXED

    def distances(self, point: Measured) -> Mapping[str, float]:
        """Return nothing: limits are no distances."""
        return {}

    def steady(self, point: Measured, share: float) -> bool:
        """Whether no change of the measures by less than ``share`` of each changes the class."""
        limits = self.limits
        return (
            apart(point.cpi, limits.cpu_cpi, share)
            and apart(point.cpi, limits.memory_cpi, share)
            and apart(point.gbs, limits.cpu_gbs, share)
            and apart(point.gbs, limits.memory_gbs, share)
        )

    def why(self, point: Measured) -> str:
        """Return what was compared."""
        limits = self.limits
        return (
            f"CPI {point.cpi:g} and {point.gbs:g} GB/s against {limits.cpu_cpi:g} and "
            f"{limits.cpu_gbs:g} (CPU), {limits.memory_cpi:g} and {limits.memory_gbs:g} (memory)"
        )
