"""Graphics devices of AMD and Intel by what their drivers show in /sys.

AMD's driver has a table of binary values (``gpu_metrics``: kgd_pp_interface.h), among them an
accumulator of energy, which amd-smi reads, too. Intel's drivers have a counter of microjoules in
hwmon, of discrete devices only: RAPL counts those in a processor.
"""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import ClassVar

from advisor.meters.accelerators import (
    Accelerators,
    DeviceCounter,
    Devices,
    pci_displays,
    text_of,
)

_AMD = "0x1002"
_ENERGY_AT = {(1, 1): 24, (1, 2): 24, (1, 3): 24, (1, 4): 24, (1, 5): 88}
"""Where the accumulator stands in the table, by its format and content revision."""
_UNIT_J = 2.0**-16
"""Joules of one step of the accumulator: 15.3 microjoules."""
_UNKNOWN = 0xFFFF_FFFF_FFFF_FFFF
"""What the driver writes for a value that a device does not have."""
_WITH_PROCESSOR = frozenset({"0x74a0"})
"""PCI numbers of devices whose accumulator counts processor cores, too: MI300A."""
_INTEL_DRIVERS = ("xe", "i915")


class AmdGpu(Accelerators):
    """Counts the energy of all AMD GPUs by their drivers' accumulators."""

    NAME: ClassVar[str] = "amdgpu"
    DESCRIPTION: ClassVar[str] = "energy accumulators of AMD GPUs (gpu_metrics)"
    RANK: ClassVar[int] = 41

    def present(self) -> bool:
        """Tell whether the node has an AMD GPU."""
        return pci_displays(self._root, _AMD)

    def devices(self) -> Devices:
        """Return the GPUs, numbered as the kernel numbers its cards."""
        counters, notes = [], []
        cards = (p for p in (self._root / "class/drm").glob("card*") if p.name[4:].isdecimal())
        for card in sorted(cards, key=lambda p: int(p.name[4:])):
            device = card / "device"
            if text_of(device / "vendor") != _AMD:
                continue
            label = f"GPU {card.name[4:]} {text_of(device / 'product_name') or 'AMD'}"
            if text_of(device / "device") in _WITH_PROCESSOR:
                notes.append(f"without {label}: its accumulator counts processor cores, too")
                continue
            try:
                energy_j = _accumulated_j(device / "gpu_metrics")
            except (OSError, ValueError) as error:
                notes.append(f"without {label}: {error}")
                continue
            if not energy_j:  # the second die of a module, whose first one counts for both
                notes.append(f"without {label}: its accumulator stands at 0")
                continue
            counters.append(DeviceCounter(label, partial(_accumulated_j, device / "gpu_metrics")))
        return Devices(tuple(counters), tuple(notes))


def _accumulated_j(path: Path) -> float:
    """Return an accumulator's joules. Raises OSError, and ValueError for a table without it."""
    table = path.read_bytes()
    if len(table) < 4:
        raise ValueError("its table gpu_metrics is empty")
    size, *revision = struct.unpack_from("<HBB", table)
    place = _ENERGY_AT.get((revision[0], revision[1]))
    if place is None:
        raise ValueError(
            f"gpu_metrics {revision[0]}.{revision[1]} has no energy that is understood"
        )
    if min(size, len(table)) < place + 8:
        raise ValueError("its table gpu_metrics is cut off")
    steps: int = struct.unpack_from("<Q", table, place)[0]
    if steps == _UNKNOWN:
        raise ValueError("it has no energy accumulator")
    return steps * _UNIT_J


class IntelGpu(Accelerators):
    """Counts the energy of discrete Intel GPUs, of the whole card where the driver tells it."""

    NAME: ClassVar[str] = "intelgpu"
    DESCRIPTION: ClassVar[str] = "energy counters of discrete Intel GPUs (hwmon)"
    RANK: ClassVar[int] = 42

    def present(self) -> bool:
        """Tell whether the node has a discrete Intel GPU whose driver counts."""
        return bool(self._folders())

    def _folders(self) -> list[Path]:
        """Return the hwmon folders of whole devices: ``i915_gt0`` is a part of one."""
        folders = (self._root / "class/hwmon").glob("hwmon*")
        return sorted(f for f in folders if text_of(f / "name") in _INTEL_DRIVERS)

    def devices(self) -> Devices:
        """Return the GPUs in the order of their hwmon folders."""
        counters, notes = [], []
        for number, folder in enumerate(self._folders()):
            label = f"GPU {number} Intel"
            by_part = {
                text_of(folder / f"energy{n}_label") or default: folder / f"energy{n}_input"
                for n, default in ((1, "card"), (2, "pkg"))
                if (folder / f"energy{n}_input").exists()
            }
            path = by_part.get("card") or by_part.get("pkg")
            if path is None:
                notes.append(f"without {label}: {folder} has no counter of energy")
                continue
            try:
                _microjoules(path)
            except (OSError, ValueError) as error:
                notes.append(f"without {label}: {error}")
                continue
            if "card" not in by_part:
                notes.append(f"{label}: its package without the card's memory")
            counters.append(DeviceCounter(label, partial(_microjoules, path)))
        return Devices(tuple(counters), tuple(notes))


def _microjoules(path: Path) -> float:
    """Return a counter's joules. Raises OSError or ValueError."""
    return int(path.read_text()) / 1e6
