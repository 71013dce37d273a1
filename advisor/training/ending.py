"""How a training run is ended: SIGTERM to all of it, ten seconds, SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.schedulers.base import JobHere

GRACE_S = 10.0
"""How long a run may take to end when asked."""


class RunProcesses:
    """The processes of a run: the group it was started as, what left it, its job's steps.

    Shells, ``timeout`` and launchers put programs into groups of their own. What ``rings`` a
    process is watched in says whose it is, whatever it has become.
    """

    def __init__(self, rings: Path, job: JobHere | None, proc: Path = Path("/proc")) -> None:
        self._rings = rings
        self._proc = proc
        self._mark = b"ADVISOR_WATCH=" + os.fsencode(rings)
        self._job = job

    @property
    def _group(self) -> int:
        """The process group, as whoever started the run noted it; 0 where nobody did."""
        try:
            return int((self._rings / "group").read_text())
        except (OSError, ValueError):
            return 0

    def _strays(self, group: int) -> Iterator[int]:
        """Yield the run's processes on this node that are in another group."""
        for folder in self._proc.glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(folder.name)
                if self._mark not in (folder / "environ").read_bytes().split(b"\0"):
                    continue
                state, _, group_of_process = (
                    # The name in parentheses may hold blanks and parentheses: fields are counted
                    # behind the last.
                    (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                )
                # A zombie has ended and waits for its parent alone.
                if state != "Z" and int(group_of_process) != group and pid != os.getpid():
                    yield pid

    def alive(self) -> bool:
        """Tell whether any of it is left."""
        group = self._group
        if not group:
            return False
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return bool(self._job and self._job.steps()) or any(self._strays(group))
        except PermissionError:
            return True
        return True

    def send(self, number: signal.Signals) -> None:
        """Signal all of it. The script of a step that ends does not go on meanwhile."""
        group, job = self._group, self._job
        steps = job.steps() if job else []
        if group and steps:
            # Else the script would start its next step while the steps of now are signalled.
            _signal(os.killpg, group, signal.SIGSTOP)
        if job:
            for step in steps:
                job.signal(step, number)
        if not group:  # 0 would be our own
            return
        strays = list(self._strays(group))  # before their parents go
        _signal(os.killpg, group, number)
        if steps:
            _signal(os.killpg, group, signal.SIGCONT)
        for pid in strays:
            _signal(os.kill, pid, number)


def _signal(send: Callable[[int, int], None], which: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(which, number)


def end_run(run: RunProcesses) -> None:
    """End a run: SIGTERM, ten seconds, SIGKILL."""
    run.send(signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        if not run.alive():
            return
        time.sleep(0.2)
    run.send(signal.SIGKILL)
