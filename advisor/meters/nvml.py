"""NVIDIA's GPUs by NVML: the driver's own counter of each device's energy.

The counter (millijoules since the driver was loaded) exists from Volta on. It is the whole
GPU's: where the GPU is cut into MIG instances, or others compute on it, their energy is in it, and
the reading says so. Needs the package nvidia-ml-py, which is only imported here.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from advisor.errors import MeterError, install_command
from advisor.meters.accelerators import Accelerators, DeviceCounter, Devices, pci_displays

PACKAGE = "nvidia-ml-py"
_VENDOR = "0x10de"


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
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _energy_j(nvml: ModuleType, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    except nvml.NVMLError as error:
        raise MeterError(str(error)) from error


def _shared(nvml: ModuleType, handle: Any) -> list[str]:
    """Return what else than this run may be in a device's counter."""
    notes = []
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            notes.append("the energy of all its MIG instances")
    except nvml.NVMLError:
        pass  # a device without MIG says so by an error
    try:
        if others := len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)):
            notes.append(f"others compute on it, too: {others}")
    except nvml.NVMLError:
        pass  # then nobody says who computes there
    return notes
