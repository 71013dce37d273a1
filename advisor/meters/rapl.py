"""RAPL through Linux' powercap tree: package and DRAM energy of this node."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from advisor.errors import MeterError
from advisor.meters.base import Covers, EnergyReading, Load, MeteredNode

_ZONE = re.compile(r"intel-rapl:\d+(?::\d+)?$")
_COUNTED = re.compile(r"(package-\d+(?:-die-\d+)?|dram)$")
MAX_POWER_W = 1500.0
"""More than any one package or its memory draws: decides how often a counter must be read."""
MAX_INTERVAL_S = 60.0
"""Seconds between two readings of a counter, at most."""
_UNSEEN_S = 10.0
"""What a counter may have moved in beside the time between two readings: one that seems to have
moved more, past its end, was set back."""
_LONG_S, _STILL_S = 30.0, 0.2
"""At the end of a run this long a counter that does not move for so long has stopped: RAPL's move
every millisecond."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One counter: its folder, its name, and the value (microjoules) after which it wraps."""

    path: Path
    name: str
    range_uj: int

    def read_uj(self) -> int:
        """Return the counter. Raises OSError or ValueError."""
        return int((self.path / "energy_uj").read_text())


class Rapl:
    """Counts package and DRAM zones, never a zone that is part of another counted one.

    ``psys`` (the whole platform) holds the packages, ``core`` and ``uncore`` are inside them,
    and ``intel-rapl-mmio`` shows a package a second time: none of these is added. A thread reads
    the counters at least four times per shortest possible wrap, so any number of wraps during a
    run is counted. Counters: Linux, Documentation/power/powercap, below ``node.root``.
    """

    NAME: ClassVar[str] = "rapl"
    DESCRIPTION: ClassVar[str] = "RAPL counters of packages and memory (Linux powercap)"
    RANK: ClassVar[int] = 20
    UPDATE_S: ClassVar[float] = 0.001
    COVERS: ClassVar[Covers] = "processors"

    def __init__(self, node: MeteredNode, *, max_power_w: float = MAX_POWER_W) -> None:
        self._root = node.root
        self._max_power_w = max_power_w
        self._zones: list[Zone] = []
        self._last: list[int] = []
        self._moved_uj: dict[str, int] = {}
        self._begun_s = self._read_s = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure = ""

    def zones(self) -> list[Zone]:
        """Return the zones that are counted, in order. Raises OSError where /sys is closed."""
        zones = []
        folder = self._root / "class" / "powercap"
        if not folder.is_dir():
            return []
        for path in sorted(folder.iterdir()):
            if not _ZONE.match(path.name):
                continue
            try:
                name = (path / "name").read_text().strip()
                limit = int((path / "max_energy_range_uj").read_text())
            except (OSError, ValueError):
                continue
            if _COUNTED.match(name) and limit > 0:
                zones.append(Zone(path, name, limit))
        return zones

    def available(self) -> str | None:
        """Return why RAPL cannot be read here, with the fix, or None."""
        zones = self.zones()
        if not any(zone.name.startswith("package") for zone in zones):
            return f"no RAPL package under {self._root}/class/powercap"
        for zone in zones:
            try:
                zone.read_uj()
            except PermissionError:
                return (
                    f"{zone.path}/energy_uj is readable by root only; "
                    "an admin can allow it: chmod o+r /sys/class/powercap/intel-rapl*/energy_uj "
                    "(again after each boot)"
                )
            except (OSError, ValueError) as error:
                return f"{zone.path}/energy_uj cannot be read: {error}"
        return None

    def interval_s(self) -> float:
        """Return the seconds between two readings that no counter can wrap within."""
        shortest = min((zone.range_uj for zone in self._zones), default=0) / 1e6
        return min(MAX_INTERVAL_S, shortest / self._max_power_w / 4)

    def start(self, load: Load) -> None:
        """Begin to count. Raises MeterError when the counters cannot be read."""
        if reason := self.available():
            raise MeterError(reason)
        self._zones = self.zones()
        self._last = [zone.read_uj() for zone in self._zones]
        self._begun_s = self._read_s = time.monotonic()
        self._moved_uj = {zone.name: 0 for zone in self._zones}
        self._failure = ""
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name="rapl", daemon=True)
        self._thread.start()

    def sample(self) -> None:
        """Add what the counters moved since the last reading, wrapped or not.

        Raises OSError, and ValueError where a counter was set back.
        """
        # The thread and so_far_j() both read: no wrap may be added twice.
        with self._lock:
            read_s = time.monotonic()
            most_uj = 1e6 * self._max_power_w * (read_s - self._read_s + _UNSEEN_S)
            self._read_s = read_s
            for index, zone in enumerate(self._zones):
                count_uj = zone.read_uj()
                moved_uj = count_uj - self._last[index]
                self._last[index] = count_uj
                if moved_uj < 0 and moved_uj + zone.range_uj > most_uj:
                    raise ValueError(f"the counter of {zone.name} was set back")
                self._moved_uj[zone.name] += moved_uj if moved_uj >= 0 else moved_uj + zone.range_uj

    def so_far_j(self) -> float:
        """Return the joules since the start. Raises OSError or ValueError."""
        self.sample()
        return self._total_uj / 1e6

    @property
    def _total_uj(self) -> int:
        return sum(self._moved_uj.values())

    def _has_stopped(self) -> bool:
        """Tell whether no counter moves any more."""
        until = time.monotonic() + _STILL_S
        while time.monotonic() < until:
            if any(z.read_uj() != last for z, last in zip(self._zones, self._last, strict=True)):
                return False
            time.sleep(0.002)
        return True

    def _watch(self) -> None:
        interval = self.interval_s()
        while not self._ended.wait(interval):
            try:
                self.sample()
            except (OSError, ValueError) as error:
                self._failure = str(error)
                return

    def stop(self) -> EnergyReading:
        """End counting. Raises MeterError when a counter failed or stood still."""
        if self._thread is None:
            raise MeterError("the RAPL meter was not started")
        self._ended.set()
        self._thread.join()
        self._thread = None
        try:
            self.sample()
            if (
                self._read_s - self._begun_s > _LONG_S
                and self._total_uj > 0
                and self._has_stopped()
            ):
                self._failure = self._failure or "its counters stopped"
        except (OSError, ValueError) as error:
            self._failure = self._failure or str(error)
        if self._failure:
            raise MeterError(f"RAPL failed during the run: {self._failure}")
        if self._total_uj <= 0:
            raise MeterError("RAPL counters stood still during the run")
        covers = " ".join(zone.name for zone in self._zones)
        parts = tuple((name, moved / 1e6) for name, moved in self._moved_uj.items())
        return EnergyReading(self._total_uj / 1e6, "measured", self.NAME, covers, parts)
