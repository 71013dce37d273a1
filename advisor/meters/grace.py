"""NVIDIA Grace and Grace Hopper: the modules' power by ACPI's power meters, added up over time.

There is no counter of energy. A Grace Hopper module's own sensor holds the processor, both
memories and the GPU, so NVML's GPUs are not added to it; without that sensor the Grace sockets'
own count, and the GPUs come from NVML.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import ClassVar

from advisor.errors import MeterError
from advisor.meters.accelerators import text_of
from advisor.meters.base import Covers, EnergyReading, Load, MeteredNode

_SENSOR = re.compile(r"(Module|Grace) Power Socket (\d+)")
_INTERVAL_S = 0.1
"""Seconds between two readings of the power; the sensors average over 50 ms."""
_LONGEST_GAP_S = 5.0
"""A power that was not read for so long says nothing of what was used meanwhile."""


class Grace:
    """Adds up the power of modules, or where there are none of Grace sockets."""

    NAME: ClassVar[str] = "grace"
    DESCRIPTION: ClassVar[str] = "power of Grace modules, added up (ACPI power meters)"
    RANK: ClassVar[int] = 25
    UPDATE_S: ClassVar[float] = 0.0

    def __init__(self, node: MeteredNode) -> None:
        self._root = node.root
        self._sensors: dict[str, Path] = {}
        self._watts: list[float] = []
        self._joules: list[float] = []
        self._read_s = 0.0
        self._failure = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def COVERS(self) -> Covers:  # noqa: N802 - a class variable of other meters
        """What the sensors hold: all of the node's modules, or their processors alone."""
        has_modules = any(name.startswith("module") for name in self.sensors())
        return "node" if has_modules else "processors"

    def sensors(self) -> dict[str, Path]:
        """Return the files of power in microwatts by part: ``module 0``, or ``processor 0``."""
        modules, sockets = {}, {}
        for folder in sorted((self._root / "class/hwmon").glob("hwmon*")):
            for place in (folder / "device", folder):
                sensor = _SENSOR.search(text_of(place / "power1_oem_info"))
                if sensor and (place / "power1_average").exists():
                    kind, number = sensor.groups()
                    if kind == "Module":
                        modules[f"module {number}"] = place / "power1_average"
                    else:
                        sockets[f"processor {number}"] = place / "power1_average"
                    break
        return modules or sockets

    def available(self) -> str | None:
        """Return why no sensor can be read here, or None."""
        sensors = self.sensors()
        if not sensors:
            return f"no power sensor of a Grace module under {self._root}/class/hwmon"
        try:
            _watts(sensors)
        except (OSError, ValueError) as error:
            return f"the Grace sensors cannot be read: {error}"
        return None

    def start(self, load: Load) -> None:
        """Begin to add up. Raises MeterError when the sensors cannot be read."""
        if reason := self.available():
            raise MeterError(reason)
        self._sensors = self.sensors()
        self._watts = _watts(self._sensors)
        self._joules = [0.0] * len(self._watts)
        self._read_s = time.monotonic()
        self._failure = ""
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name=self.NAME, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        """Add what was used since the last reading. Raises OSError or ValueError."""
        with self._lock:
            watts, now_s = _watts(self._sensors), time.monotonic()
            gap_s = now_s - self._read_s
            if gap_s > _LONGEST_GAP_S:
                raise ValueError(f"the power was not read for {gap_s:.1f} s")
            for i, (previous_w, current_w) in enumerate(zip(self._watts, watts, strict=True)):
                self._joules[i] += gap_s * (previous_w + current_w) / 2
            self._watts, self._read_s = watts, now_s

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            try:
                self._sample()
            except (OSError, ValueError) as error:
                self._failure = str(error)
                return

    def so_far_j(self) -> float:
        """Return the joules since the start. Raises OSError or ValueError."""
        self._sample()
        return sum(self._joules)

    def stop(self) -> EnergyReading:
        """End adding up. Raises MeterError when a sensor failed."""
        if self._thread is None:
            raise MeterError("the grace meter was not started")
        self._ended.set()
        self._thread.join()
        self._thread = None
        try:
            if not self._failure:
                self._sample()
        except (OSError, ValueError) as error:
            self._failure = str(error)
        if self._failure:
            raise MeterError(f"the Grace sensors failed during the run: {self._failure}")
        parts = tuple(zip(self._sensors, self._joules, strict=True))
        return EnergyReading(sum(self._joules), "measured", self.NAME, "power added up", parts)


def _watts(sensors: dict[str, Path]) -> list[float]:
    return [int(path.read_text()) / 1e6 for path in sensors.values()]
