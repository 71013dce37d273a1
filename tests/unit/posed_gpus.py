"""GPUs that are not there: an NVML built from nvml.c, and trees of /sys as drivers show them."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
SONAME = "libnvidia-ml.so.1"


@cache
def nvml_library(*renamed: str) -> Path:
    """Return the folder of a libnvidia-ml.so.1, built once a process, for LD_LIBRARY_PATH.

    ``renamed`` calls, ``NAME=OTHER``, are there by another name only, as older drivers have them.
    """
    folder = Path(mkdtemp(prefix="nvml-"))
    source = Path(__file__).with_name("nvml.c")
    words = [
        "cc",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        f"-Wl,-soname,{SONAME}",
        *(f"-D{r}" for r in renamed),
    ]
    subprocess.run([*words, "-o", folder / SONAME, source], check=True)
    return folder


def load_nvml() -> None:
    """Have nvidia-ml-py find the posed library in this very process.

    A library of that name is then there already. Without POSED_NVML it says: driver not loaded.
    """
    ctypes.CDLL(str(nvml_library() / SONAME), mode=ctypes.RTLD_GLOBAL)


def pose(path: Path, *devices: dict[str, object], **library: object) -> None:
    """Write what the posed NVML answers from: keys of each device, as nvml.c names them."""
    lines = [f"-1 count {len(devices)}"] + [f"-1 {k} {v}" for k, v in library.items()]
    lines += [f"{i} {k} {v}" for i, device in enumerate(devices) for k, v in device.items()]
    draft = path.with_suffix(".draft")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(path)


def pci_device(root: Path, address: str, vendor: str, kind: str = "0x030200") -> None:
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def amd_card(root: Path, number: int, revision: tuple[int, int], steps: int, **more: str) -> Path:
    """Write an AMD card of the drm tree; return its table of metrics."""
    device = root / f"class/drm/card{number}/device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    for name, text in more.items():
        (device / name).write_text(f"{text}\n")
    set_steps(device / "gpu_metrics", revision, steps)
    return device / "gpu_metrics"


def set_steps(path: Path, revision: tuple[int, int], steps: int) -> None:
    """Write a table of metrics whose accumulator stands at so many steps of 2^-16 J."""
    place = 88 if revision == (1, 5) else 24
    table = bytearray(place + 40)
    struct.pack_into("<HBB", table, 0, len(table), *revision)
    struct.pack_into("<Q", table, place, steps)
    draft = path.with_suffix(".draft")
    draft.write_bytes(bytes(table))
    draft.replace(path)


def hwmon(root: Path, number: int, name: str, **files: object) -> Path:
    """Write a folder of hwmon."""
    folder = root / f"class/hwmon/hwmon{number}"
    folder.mkdir(parents=True)
    for file, value in {"name": name, **files}.items():
        (folder / file).write_text(f"{value}\n")
    return folder
