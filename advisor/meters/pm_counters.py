"""Cray's pm_counters: the energy of the whole node, as HPE's out-of-band sensors see it."""

from __future__ import annotations

import contextlib
import re
import time
from typing import ClassVar

from advisor.errors import MeterError
from advisor.meters.base import ACCELERATOR, EnergyReading, Load, MeteredNode

STALE_S = 2.0
"""The files are refreshed ten times a second; no change for this long means a dead sensor."""
_PART = re.compile(r"(cpu|memory|accel(\d+))_energy")


class PmCounters:
    """Reads ``/sys/cray/pm_counters/energy`` (like ``1000 J``) before and after a run.

    Where the node has ``freshness`` (changes with each refresh) it is read on both sides of the
    energy, so that a value is not taken in the middle of a refresh, and compared over the run,
    so that a sensor that stopped is noticed. A changed ``startup`` means that the counters began
    again in between. What the node's counter holds of processors, memory and accelerators is read
    from theirs, and shown apart. The counters are those of ``node.root``.
    """

    NAME: ClassVar[str] = "pm_counters"
    DESCRIPTION: ClassVar[str] = "Cray pm_counters: energy of the whole node"
    RANK: ClassVar[int] = 10
    UPDATE_S: ClassVar[float] = 0.1

    def __init__(self, node: MeteredNode) -> None:
        self._folder = node.root / "cray" / "pm_counters"
        self._begin: tuple[float, str, str] | None = None
        self._begin_parts: dict[str, float] = {}
        self._clock = 0.0

    def available(self) -> str | None:
        """Return why the counters cannot be read here, or None."""
        if not self._folder.is_dir():
            return f"no {self._folder}: not a Cray node"
        try:
            energy_j = self._energy()
        except PermissionError:
            return f"{self._folder}/energy may not be read by this user"
        except (OSError, ValueError) as error:
            return f"{self._folder}/energy cannot be read: {error}"
        return None if energy_j > 0 else f"{self._folder}/energy shows 0 J: the sensor is dead"

    def _text(self, name: str) -> str:
        try:
            return (self._folder / name).read_text().strip()
        except FileNotFoundError:
            return ""

    def _energy(self, file: str = "energy") -> float:
        text = (self._folder / file).read_text()
        words = text.split()
        if len(words) < 2 or words[1] != "J":
            raise ValueError(f"not like '1000 J': {text.strip()[:40]!r}")
        return float(words[0])

    def power_w(self) -> float:
        """Return the node's power now, in watts. Raises MeterError."""
        try:
            words = self._text("power").split()
            if len(words) >= 2 and words[1] == "W":
                return float(words[0])
        except (OSError, ValueError) as error:
            raise MeterError(f"{self._folder}/power cannot be read: {error}") from error
        raise MeterError(f"{self._folder}/power is not like '100 W'")

    def _parts(self) -> dict[str, float]:
        """Return the counters of parts that the node has, in joules by the parts' names."""
        parts = {}
        for path in sorted(self._folder.glob("*_energy")):
            part = _PART.fullmatch(path.name)
            if part is None:
                continue
            name = f"{ACCELERATOR}{part[2]}" if part[2] else part[1]
            with contextlib.suppress(OSError, ValueError):
                parts[name] = self._energy(path.name)
        return parts

    def _snapshot(self) -> tuple[float, str, str]:
        """Return energy, freshness and startup from one refresh (five tries)."""
        for _ in range(5):
            freshness_before = self._text("freshness")
            energy_j = self._energy()
            freshness_after = self._text("freshness")
            if freshness_before == freshness_after:
                break
        return energy_j, freshness_after, self._text("startup")

    def start(self, load: Load) -> None:
        """Begin to count. Raises MeterError when the counters cannot be read."""
        if reason := self.available():
            raise MeterError(reason)
        self._begin = self._snapshot()
        self._begin_parts = self._parts()
        self._clock = time.monotonic()

    def so_far_j(self) -> float:
        """Return what the counter shows. Raises OSError or ValueError."""
        return self._energy()

    def stop(self) -> EnergyReading:
        """End counting. Raises MeterError when the counters restarted or stood still."""
        if self._begin is None:
            raise MeterError("the pm_counters meter was not started")
        begin, self._begin = self._begin, None
        try:
            end = self._snapshot()
        except (OSError, ValueError) as error:
            raise MeterError(f"pm_counters failed during the run: {error}") from error
        elapsed = time.monotonic() - self._clock
        if begin[2] != end[2] or end[0] < begin[0]:
            raise MeterError("pm_counters restarted during the run")
        if begin[1] and begin[1] == end[1] and elapsed > STALE_S:
            raise MeterError(f"pm_counters were not refreshed for {elapsed:.0f} s")
        if end[0] == begin[0]:
            raise MeterError("pm_counters stood still during the run (1 J steps)")
        total_j = end[0] - begin[0]
        moved = {
            n: j - self._begin_parts[n] for n, j in self._parts().items() if n in self._begin_parts
        }
        parts = {name: part_j for name, part_j in moved.items() if 0 <= part_j <= total_j}
        if parts and (rest_j := total_j - sum(parts.values())) >= 0:
            parts["rest of the node"] = rest_j
        return EnergyReading(total_j, "measured", self.NAME, "whole node", tuple(parts.items()))
