"""An estimate of energy from a node type's stated power: better than nothing, and marked as one."""

from __future__ import annotations

import os
import resource
import time
from typing import ClassVar

from advisor.core.inventory import NodeType
from advisor.core.power import power_w, stated_power_w
from advisor.errors import MeterError
from advisor.meters.base import Covers, EnergyReading, Load, MeteredNode

GENERIC_BASE_W = 45.0
GENERIC_CORE_W = 4.0
"""A round guess per socket and per busy core for a machine nobody described."""


def estimate_j(
    node_type: NodeType, *, nodes: int, busy_cores: float, freq_khz: int, time_s: float
) -> float | None:
    """Return the estimated energy of a run over all its nodes, None without stated power."""
    per_node = stated_power_w(node_type, busy_cores, freq_khz)
    return None if per_node is None else per_node * nodes * time_s


class EstimateMeter:
    """Estimates from the node type's ``base_power_w`` and ``core_power_w``.

    Busy cores are not guessed: they are the CPU time of the finished child processes over the
    elapsed time. Without stated power it is unavailable, unless ``generic`` numbers are asked
    for; the meter's name then says so. The quality is always ``estimated``.
    """

    NAME: ClassVar[str] = "estimate"
    DESCRIPTION: ClassVar[str] = "estimate from the node type's stated power (not a measurement)"
    RANK: ClassVar[int] = 30
    UPDATE_S: ClassVar[float] = 0.0
    COVERS: ClassVar[Covers] = "processors"

    def __init__(self, node: MeteredNode) -> None:
        self._node_type = node.node_type or NodeType("", cores=os.cpu_count() or 1)
        stated = (self._node_type.base_power_w, self._node_type.core_power_w)
        self._generic = node.generic and None in stated
        self._base_w, self._core_w = stated
        if self._generic:
            self._base_w = GENERIC_BASE_W * self._node_type.sockets
            self._core_w = GENERIC_CORE_W
        self._begin: tuple[float, float, Load] | None = None

    @property
    def basis(self) -> str:
        """What the estimate is made from, for people."""
        whose = "generic numbers" if self._generic else f"stated for {self._node_type.name}"
        return f"{self._base_w} W + {self._core_w} W per busy core ({whose})"

    def available(self) -> str | None:
        """Return what to state in the site file to make estimates possible, or None."""
        if self._base_w is None or self._core_w is None:
            what = f"node type {self._node_type.name}" if self._node_type.name else "this machine"
            return (
                f"the power of {what} is not known; give base_power_w and core_power_w of its node "
                "type in the site file, or ask for generic numbers with --meter estimate"
            )
        return None

    def start(self, load: Load) -> None:
        """Begin to count. Raises MeterError without stated power."""
        if reason := self.available():
            raise MeterError(reason)
        self._begin = (time.perf_counter(), _children_cpu_s(), load)

    def stop(self) -> EnergyReading:
        """End counting and estimate from the CPU time of the children that ended since."""
        if self._begin is None or self._base_w is None or self._core_w is None:
            raise MeterError("the estimate was not started")
        (clock, cpu_s, load), self._begin = self._begin, None
        elapsed = max(time.perf_counter() - clock, 1e-9)
        cores = max(load.threads, 1)
        busy = min((_children_cpu_s() - cpu_s) / elapsed, float(cores))
        top = max(self._node_type.freq_khz, default=0)
        watts = power_w(self._base_w, self._core_w, busy, load.freq_khz, top)
        name = f"{self.NAME} (generic)" if self._generic else self.NAME
        detail = f"{self._base_w:g} W + {self._core_w:g} W per busy core ({busy:.1f} busy)"
        return EnergyReading(watts * elapsed, "estimated", name, detail)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
