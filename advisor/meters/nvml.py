"""NVIDIA's GPUs by NVML: the driver's own counter of each device's energy.

The counter (millijoules since the driver was loaded) exists from Volta on. It is the whole
GPU's: where the GPU is cut into MIG instances, or others compute on it, their energy is in it, and
the reading says so. Needs the package nvidia-ml-py, which is only imported here.
"""

from __future__ import annotations

import math
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from advisor.core.inventory import Gpus
from advisor.errors import MeterError, install_command
from advisor.meters.accelerators import Accelerators, DeviceCounter, Devices, pci_displays

PACKAGE = "nvidia-ml-py"
_VENDOR = "0x10de"
_MOST_LIMITS = 40
"""Steps that the range of a power limit is divided into."""


def opened() -> tuple[ModuleType, int]:
    """Return NVML's module, initialised, and the number of devices. Raises MeterError."""
    try:
        import pynvml
    except ImportError:
        raise MeterError(
            f"the Python package {PACKAGE} is not installed", hint=install_command(PACKAGE)
        ) from None
    try:
        pynvml.nvmlInit()
        return pynvml, int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        raise MeterError(f"NVML cannot be used: {error}") from error


class Nvml(Accelerators):
    """Counts the energy of all NVIDIA GPUs that this user may open."""

    NAME: ClassVar[str] = "nvml"
    DESCRIPTION: ClassVar[str] = "NVML's energy counters of NVIDIA GPUs"
    RANK: ClassVar[int] = 40
    UPDATE_S: ClassVar[float] = 0.1

    def present(self) -> bool:
        """Tell whether the node has an NVIDIA GPU."""
        return pci_displays(self._root, _VENDOR)

    def devices(self) -> Devices:
        """Return the GPUs. Raises MeterError without package, library or driver."""
        nvml, count = opened()
        counters, notes = [], []
        for index in range(count):
            label = f"GPU {index}"
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                label = f"{label} {name_of(nvml, handle)}"
                nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            except nvml.NVMLError_NotSupported:
                notes.append(f"without {label}, which has no energy counter")
                continue
            except nvml.NVMLError as error:
                notes.append(f"without {label}: {error}")
                continue
            counters.append(DeviceCounter(label, partial(_energy_j, nvml, handle)))
            notes += [f"{label}: {note}" for note in _shared(nvml, handle)]
        return Devices(tuple(counters), tuple(notes))


def name_of(nvml: ModuleType, handle: Any) -> str:
    """Return a device's product name. Raises NVMLError."""
    name = nvml.nvmlDeviceGetName(handle)
    # Older releases of the package return bytes.
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def gpus_here() -> tuple[Gpus, list[str]]:
    """Return this machine's NVIDIA GPUs, and notes on what is not known of them.

    Clocks and limits are those that all of them have; of several models only the number is told.
    What one takes idle is read now, of those on which nobody computes. Raises MeterError.
    """
    nvml, count = opened()
    models: set[str] = set()
    clocks: list[set[int]] = []
    limits: list[tuple[int, int]] = []
    idle_w: list[float] = []
    notes = []
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            models.add(name_of(nvml, handle))
            if nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                notes.append(f"GPU {index}: its idle power is not known, it computes")
            else:
                idle_w.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        except nvml.NVMLError as error:
            notes.append(f"GPU {index}: {error}")
            continue
        try:
            clocks.append(_clocks_khz(nvml, handle))
        except nvml.NVMLError as error:
            notes.append(f"GPU {index}: its clocks are not known: {error}")
        try:
            least, most = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            # whole watts inside of the range: NVML refuses what is outside
            limits.append((-(-least // 1000), most // 1000))
        except nvml.NVMLError as error:
            notes.append(f"GPU {index}: its power limits are not known: {error}")
    if len(models) > 1:
        notes.append(f"GPUs of several models: {', '.join(sorted(models))}; nothing is set on them")
        return Gpus(count=count), notes
    shared_khz = set.intersection(*clocks) if len(clocks) == count and clocks else set()
    span_w = (
        (max(least for least, _ in limits), min(most for _, most in limits))
        if len(limits) == count and limits
        else (1, 0)
    )
    return (
        Gpus(
            next(iter(models), ""),
            count,
            tuple(sorted(shared_khz)),
            tuple(_limits_w(*span_w)),
            round(max(idle_w), 1) if idle_w else None,
        ),
        notes,
    )


def cautions_here() -> list[str]:
    """Return a line for each of this machine's NVIDIA GPUs that is cut into MIG instances, or whose
    energy nobody counts. Raises MeterError."""
    nvml, count = opened()
    lines = []
    for index in range(count):
        label = f"GPU {index}"
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            label = f"{label} {name_of(nvml, handle)}"
            if _is_cut(nvml, handle):
                lines.append(
                    f"{label} is cut into MIG instances: nothing is set on it, and what it takes "
                    "is the energy of all of them"
                )
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except nvml.NVMLError_NotSupported:
            lines.append(f"{label} has no energy counter: what jobs take on it is not known")
        except nvml.NVMLError as error:
            lines.append(f"{label} does not tell its energy: {error}")
    return lines


def _is_cut(nvml: ModuleType, handle: Any) -> bool:
    """Tell whether a device is cut into MIG instances."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE)
    except nvml.NVMLError:
        return False  # a device without MIG says so by an error


def _clocks_khz(nvml: ModuleType, handle: Any) -> set[int]:
    """Return the clocks that a GPU has at its memory's highest one. Raises NVMLError."""
    memory = max(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))
    return {1000 * mhz for mhz in nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory)}


def _limits_w(least: int, most: int) -> list[int]:
    """Return power limits in whole steps of 5 W or more, at most 41, both ends included."""
    step = 5 * max(1, math.ceil((most - least) / _MOST_LIMITS / 5))
    return sorted({*range(most, least - 1, -step), least} if least <= most else ())


def _energy_j(nvml: ModuleType, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except nvml.NVMLError as error:
        raise MeterError(str(error)) from error


def _shared(nvml: ModuleType, handle: Any) -> list[str]:
    """Return what else than this run may be in a device's counter."""
    notes = []
    if _is_cut(nvml, handle):
        notes.append("the energy of all its MIG instances")
    try:
        if process_count := len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)):
            notes.append(f"others compute on it, too: {process_count}")
    except nvml.NVMLError:
        pass  # then nobody says who computes there
    return notes
