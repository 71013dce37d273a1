"""The daemon's child that reads the scheduler's state and hands it over, one JSON line per read.

It alone waits for the scheduler's commands. It ends when the daemon does: then its standard
input ends, and it ends itself with every command it has started.

A line has ``at`` (when the read began, on the monotonic clock), and ``error`` with ``hint`` or
what changed since the line before: ``state``, ``limits`` (null when they cannot be read, with
``limits_error``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from advisor.core.availability import Availability, JobLimits
from advisor.core.inventory import Inventory
from advisor.database import store_at
from advisor.errors import AdvisorError, SchedulerError
from advisor.schedulers.base import Watched
from advisor.schedulers.choose import every
from advisor.schedulers.node_state import NodeReading, rooms, sized
from advisor.service.handover import pack, pack_limits
from advisor.store.reader import Reader

T = TypeVar("T")

_LIMITS_SHARE = 20
"""Reading limits takes at most one part in so many of the time: accounting may be slow."""
_LIMITS_LAST_S = 60.0
"""Limits that could not be read again hold for so long."""


class Watcher:
    """Reads state and limits, and tells what changed."""

    def __init__(self, store: Path, out: IO[str]) -> None:
        self._store, self._out = store, out
        self._inventory = Inventory()
        self._schedulers = {s.NAME: s for s in every()}
        self._scheduler = ""
        self._sent: dict[str, object] = {}
        self._limits_at = -_LIMITS_LAST_S
        self._limits_due = 0.0

    def look(self) -> None:
        """Read once and tell. Raises OSError when nobody listens."""
        read_s = time.monotonic()
        try:
            state = pack(_read_or_fail(self._read_nodes))
        except AdvisorError as error:
            self._scheduler = ""
            self._write_line(read_s, {"error": error.message, "hint": error.hint})
            return
        self._tell_part(read_s, "state", state)
        if read_s >= self._limits_due:
            self._look_at_limits()

    def _look_at_limits(self) -> None:
        read_s = time.monotonic()
        try:
            limits: JobLimits = _read_or_fail(self._watched(self._scheduler).read_limits)
        except AdvisorError as error:
            if read_s - self._limits_at > _LIMITS_LAST_S:
                self._sent.pop("limits", None)
                text = error.message + (f"; {error.hint}" if error.hint else "")
                self._write_line(read_s, {"limits": None, "limits_error": text})
        else:
            self._limits_at = read_s
            self._tell_part(read_s, "limits", pack_limits(limits))
        self._limits_due = read_s + _LIMITS_SHARE * (time.monotonic() - read_s)

    def _read_nodes(self) -> Availability:
        name, reading = self._ask_scheduler()
        self._scheduler = name
        with contextlib.suppress(AdvisorError), Reader(self._store) as reader:
            self._inventory = reader.inventory(reading.cluster)
        return Availability(
            name,
            rooms(self._inventory, reading.nodes),
            sized(self._inventory, reading.partitions),
            reading.queues,
            settings=reading.settings,
            cluster=reading.cluster,
        )

    def _ask_scheduler(self) -> tuple[str, NodeReading]:
        """Ask the scheduler that answered last, else the first of those installed that does."""
        watched = {n: s for n, s in self._schedulers.items() if s.watched() is not None}
        errors = []
        for name in [self._scheduler] if self._scheduler else watched:
            if watched[name].installed():
                try:
                    return name, self._watched(name).read()
                except SchedulerError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        raise SchedulerError(
            f"no commands of {' or '.join(s.LABEL for s in watched.values())} are here",
            hint="install them here, or start the daemon with --watch 0",
        )

    def _watched(self, name: str) -> Watched:
        watched = self._schedulers[name].watched()
        assert watched is not None, name
        return watched

    def _tell_part(self, read_s: float, part: str, data: dict[str, object]) -> None:
        changed = data != self._sent.get(part)
        self._sent[part] = data
        self._write_line(read_s, {part: data} if changed else {})

    def _write_line(self, read_s: float, data: dict[str, object]) -> None:
        self._out.write(json.dumps({"at": read_s, **data}, separators=(",", ":")) + "\n")
        self._out.flush()


def _read_or_fail(read: Callable[[], T]) -> T:
    """Return what was read; SchedulerError also for what the scheduler was never seen to say."""
    try:
        return read()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SchedulerError(f"the scheduler printed something unexpected: {error!r}") from error


def _end_with(daemon: IO[bytes]) -> None:
    """Wait until the daemon's end of the pipe is closed, then end with all that was started."""
    daemon.read()
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main(arguments: list[str] | None = None) -> None:
    """Read every so often, until the daemon ends."""
    parser = argparse.ArgumentParser(prog="advisor.service.watcher")
    parser.add_argument("--db", type=store_at, required=True)
    parser.add_argument("--every", type=float, required=True)
    args = parser.parse_args(arguments)
    # What the scheduler's commands say is read, errors included.
    os.environ.update(LC_ALL="C")
    with contextlib.suppress(OSError):
        # the daemon's answers go first
        os.nice(10)
    if os.getpgid(0) != os.getpid():  # started by hand: who started it must not end with it
        os.setpgid(0, 0)
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    watcher = Watcher(args.db, sys.stdout)
    while True:
        began = time.monotonic()
        try:
            watcher.look()
        except OSError:
            return
        time.sleep(max(0.0, began + args.every - time.monotonic()))


if __name__ == "__main__":
    main()
