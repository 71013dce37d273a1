"""Ask whether a file on a shared file system can be read at all, before anything waits for it.

What touches a file system that hangs cannot even be killed. So a child does, which is left to
itself; where all folders on the way lie on disks of this host nobody asks. Standard library only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from advisor.errors import StoreError

WAIT_S = 10.0
"""A file system that does not answer for so long hangs, as messages call it."""
_MOUNTS = Path("/proc/self/mounts")
_HERE = frozenset({"tmpfs", "ramfs", "overlay", "zfs", "rootfs", "squashfs", "devtmpfs"})
"""File systems of this host that name no device."""
_MOST_LINKS = 40
"""Symbolic links followed in one path, as many as Linux follows."""


ANOTHER_STORE = "jobs are submitted as ever; try again later, or name another store with --db"
"""What to do where the file is the store."""


def check_answers(path: Path, *, hint: str = "try again later, or name another file") -> None:
    """Raise StoreError with a hint when a file's file system does not answer within ten seconds."""
    if not is_shared(path):
        return
    import subprocess

    nothing = subprocess.DEVNULL  # else who reads our output would wait for a child that hangs
    try:
        child = subprocess.Popen(
            ["head", "-c", "1", str(path)], stdin=nothing, stdout=nothing, stderr=nothing
        )
    except OSError:
        return
    try:
        child.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        raise StoreError(f"{path}: its file system does not answer", hint=hint) from None


def is_shared(path: Path) -> bool:
    """Tell whether a path lies on a file system that others serve; it is not touched there."""
    shared = {place for place, is_local in _mounts().items() if not is_local}
    reached, rest, links = Path("/"), list(Path(os.path.abspath(path)).parts[1:]), 0  # noqa: PTH100
    while rest and links < _MOST_LINKS:
        reached = reached / rest.pop(0)
        if str(reached) in shared:
            return True
        try:
            target = Path(os.readlink(reached))  # noqa: PTH115
        except OSError:  # no link
            continue
        links += 1
        rest = [*Path(os.path.normpath(reached.parent / target)).parts[1:], *rest]
        reached = Path("/")
    return False


def _mounts() -> dict[str, bool]:
    """Return where file systems are mounted, and whether they are this host's own."""
    try:
        lines = _MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    mounts = {}
    for line in lines:
        device, place, kind = line.split(" ")[:3]
        place = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), place)
        is_local = kind in _HERE or (device.startswith("/dev/") and not kind.startswith("fuse"))
        mounts[place] = is_local or place.startswith(("/proc", "/sys", "/dev"))
    return mounts
