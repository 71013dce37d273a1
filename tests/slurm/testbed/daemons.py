"""Starts daemons in the background and stops them by pid, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class TestbedError(RuntimeError):
    """The testbed could not do what was asked."""

    __test__ = False


def _start_ticks(pid: int) -> str | None:
    """Return when a live process started (field 22 of its stat), None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def go_first(pid: int) -> None:
    """Let a process, and what it will start, have a processor before the tests around it.

    A site's hosts do nothing else. What takes longer here because other tests run at the same time
    would look like a slow program or a daemon that hangs.
    """
    with contextlib.suppress(OSError):  # gone already, or root may not
        os.setpriority(os.PRIO_PROCESS, pid, -10)


def go_at_once(pid: int) -> None:
    """Let a process, and what it will start, run as soon as it is ready, whatever else is.

    A posed node times the programs on it, as a real one, which they have for themselves: beside six
    clusters on two cores a run of 1.6 s took from 0.05 to 0.18 s more, now from 0.03 to 0.08 s.
    The kernel leaves other processes a twentieth of each core, so that none can be locked out.
    """
    with contextlib.suppress(OSError):  # gone already, or root may not
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def spawn(
    root: Path,
    name: str,
    command: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    timed: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own and note it in `root/run/<name>.pid`.

    `timed` is what runs jobs or meters them.
    """
    with (root / "log" / f"{name}.out").open("ab") as log:
        process = subprocess.Popen(
            list(command),
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    (go_at_once if timed else go_first)(process.pid)
    (root / "run" / f"{name}.pid").write_text(f"{identity(process.pid)}\n")
    return process


def identity(pid: int) -> str:
    """Return what tells a live process from a later one with the same pid."""
    return f"{pid} {_start_ticks(pid) or 0}"


def is_alive(text: str) -> int | None:
    """Return the pid of an `identity` if that very process still runs."""
    words = text.split()
    if len(words) != 2 or not words[0].isdigit():
        return None
    return int(words[0]) if _start_ticks(int(words[0])) == words[1] else None


def alive(pidfile: Path) -> int | None:
    """Return the pid in `pidfile` if that very process still runs."""
    try:
        return is_alive(pidfile.read_text())
    except OSError:
        return None


def _session(pidfile: Path) -> list[int]:
    """Return the daemon of `pidfile` and what it started, as long as the daemon itself lives."""
    leader = alive(pidfile)
    if leader is None:
        return []
    pids = [leader]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                session = os.getsid(int(entry.name))
            except OSError:
                continue
            if session == leader and int(entry.name) != leader:
                pids.append(int(entry.name))
    return pids


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def terminate(pids: Sequence[int], grace_s: float = 3.0) -> None:
    """Ask processes to end, kill those which have not after `grace_s`, return when all are gone."""
    started = {pid: ticks for pid in pids if (ticks := _start_ticks(pid)) is not None}

    def remaining() -> list[int]:
        for pid in started:
            _reap(pid)
        return [pid for pid, ticks in started.items() if _start_ticks(pid) == ticks]

    _signal(remaining(), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := remaining()) and time.monotonic() < deadline:
        time.sleep(0.01)
    _signal(left, signal.SIGKILL)
    deadline = time.monotonic() + 5.0
    while remaining() and time.monotonic() < deadline:
        time.sleep(0.01)


def stop(root: Path, names: Sequence[str], grace_s: float = 3.0) -> None:
    """Stop daemons, and what they started, by their pid files and remove those."""
    files = [root / "run" / f"{name}.pid" for name in names]
    terminate([pid for file in files for pid in _session(file)], grace_s)
    for file in files:
        file.unlink(missing_ok=True)


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll `condition` until it holds; TestbedError naming `what` after `timeout_s`.

    Mostly it is a command, which costs more than the wait: the pauses grow.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"timed out after {timeout_s:g} s: {what}")
        time.sleep(pause_s)
        pause_s = min(0.2, 1.3 * pause_s)
