"""What the meters of a node's accelerators share: one counter of joules a device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from advisor.core.power import device_is_possible
from advisor.errors import MeterError
from advisor.meters.base import Covers, EnergyReading, Load, MeteredNode

_INTERVAL_S = 30.0
"""Seconds between two readings while a run goes on: Intel's driver misses a wrap of its device's
32 bits that takes less than about a thousand seconds, and a lost device is noticed."""


@dataclass(frozen=True, slots=True)
class DeviceCounter:
    """A device's counter of energy: its name, as in ``GPU 0 Tesla V100``, and how it is read.

    ``read_j`` returns joules since some time before the run. It raises OSError, ValueError or
    MeterError.
    """

    name: str
    read_j: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Devices:
    """A node's devices of one kind: those with a counter, and what is to be said of others."""

    counters: tuple[DeviceCounter, ...]
    notes: tuple[str, ...] = ()


class Accelerators:
    """Counts the joules of all devices of one kind that this user may read, each by its name.

    A kind defines ``present`` (whether the node has such devices at all) and ``devices``. Devices
    without a counter are named in the reading's detail; none is guessed at.
    """

    NAME: ClassVar[str]
    UPDATE_S: ClassVar[float] = 0.0
    COVERS: ClassVar[Covers] = "accelerators"

    def __init__(self, node: MeteredNode) -> None:
        self._root = node.root
        self._devices = Devices(())
        self._begin_j: list[float] = []
        self._begun_s = 0.0
        self._failure = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def present(self) -> bool:
        """Tell whether the node has such devices."""
        raise NotImplementedError

    def devices(self) -> Devices:
        """Return the devices. Raises MeterError where nothing can be said of any."""
        raise NotImplementedError

    def available(self) -> str | None:
        """Return why no device can be read here, or None."""
        try:
            devices = self.devices()
        except MeterError as error:
            return str(error)
        if devices.counters:
            return None
        return "; ".join(devices.notes) or "no such device"

    def start(self, load: Load) -> None:
        """Begin to count. Raises MeterError when no device can be read."""
        self._devices = self.devices()
        if not self._devices.counters:
            raise MeterError("; ".join(self._devices.notes) or "no such device")
        self._begin_j = self._read()
        self._begun_s = time.monotonic()
        self._failure = ""
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name=self.NAME, daemon=True)
        self._thread.start()

    def _read(self) -> list[float]:
        readings = []
        for counter in self._devices.counters:
            try:
                readings.append(counter.read_j())
            except (OSError, ValueError, MeterError) as error:
                raise MeterError(f"{counter.name}: {error}") from error
        return readings

    def _moved_joules(self) -> dict[str, float]:
        """Return the joules since the start by device. Raises MeterError for what cannot be."""
        elapsed_s = time.monotonic() - self._begun_s
        moved: dict[str, float] = {}
        for counter, begin, end in zip(
            self._devices.counters, self._begin_j, self._read(), strict=True
        ):
            if end < begin:
                raise MeterError(f"the counter of {counter.name} was set back")
            if not device_is_possible(end - begin, elapsed_s):
                raise MeterError(f"{counter.name} says {end - begin:.4g} J, which is impossible")
            moved[counter.name] = end - begin
        return moved

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            try:
                self._moved_joules()
            except MeterError as error:
                self._failure = str(error)
                return

    def so_far_j(self) -> float:
        """Return the joules since the start. Raises OSError: whoever looks goes on without."""
        try:
            return sum(self._moved_joules().values())
        except MeterError as error:
            raise OSError(str(error)) from error

    def stop(self) -> EnergyReading:
        """End counting. Raises MeterError when a device failed, or none moved."""
        if self._thread is None:
            raise MeterError(f"the {self.NAME} meter was not started")
        self._ended.set()
        self._thread.join()
        self._thread = None
        if self._failure:
            raise MeterError(f"{self.NAME} failed during the run: {self._failure}")
        try:
            moved = self._moved_joules()
        except MeterError as error:
            raise MeterError(f"{self.NAME} failed during the run: {error}") from error
        total_j = sum(moved.values())
        if total_j <= 0:
            raise MeterError(f"{self.NAME}: the devices' counters stood still during the run")
        notes = "; ".join(self._devices.notes)
        return EnergyReading(total_j, "measured", self.NAME, notes, tuple(moved.items()))


def pci_displays(root: Path, vendor: str) -> bool:
    """Tell whether a PCI bus has a display or 3D controller of a vendor, like ``0x10de``."""
    for device in (root / "bus/pci/devices").glob("*"):
        # PCI's class 03 are display controllers, 3D controllers among them.
        if text_of(device / "vendor") == vendor and text_of(device / "class").startswith("0x03"):
            return True
    return False


def text_of(path: Path) -> str:
    """Return a file's text without blanks around it, "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
