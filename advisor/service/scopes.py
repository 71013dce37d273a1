"""What the daemon starts leaves the daemon's cgroup and priority, where systemd manages processes.

The unit's memory and tasks are for answers alone. A sweep goes into a scope below its user's slice,
where the limits of that user hold, and what stores users' runs into one below the system's. That a
scope cannot be made keeps nothing from running.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

SYSTEMD = Path("/run/systemd/system")
"""There while systemd manages the host (sd_booted(3))."""

_MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
_WAIT_S = 5.0
"""How long systemd may take; what was started runs meanwhile."""


def move_to_scope(pid: int, purpose: str, uid: int) -> str:
    """Move a process that was just started into a scope of its own; return why not, "" if it was.

    ``uid``: whose slice the scope is in, 0 for the system's. Where no systemd runs, or this process
    is not root, nothing is to be moved: "".
    """
    if os.geteuid() != 0 or not SYSTEMD.is_dir():
        return ""
    try:
        moved = subprocess.run(
            call_of(pid, purpose, uid),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return moved.stderr.strip() if moved.returncode else ""


def call_of(pid: int, purpose: str, uid: int) -> list[str]:
    """Return the command that makes a scope and moves a process into it (StartTransientUnit)."""
    slice_name = f"user-{uid}.slice" if uid else "system.slice"
    processes, place = ("PIDs", "au", "1", str(pid)), ("Slice", "s", slice_name)
    # one that failed is forgotten, too: its number may come again
    properties = (*processes, *place, "CollectMode", "s", "inactive-or-failed")
    unit = ("ssa(sv)a(sa(sv))", f"advisor-{purpose}-{pid}.scope", "fail", "3", *properties, "0")
    return ["busctl", "--system", "call", *_MANAGER, "StartTransientUnit", *unit]


def take_usual_priority() -> None:
    """Give back a priority above the usual one, as a child of the daemon has it.

    Schedulers may hand a submitter's priority on to the job.
    """
    with suppress(OSError):
        os.nice(max(0, -os.getpriority(os.PRIO_PROCESS, 0)))
