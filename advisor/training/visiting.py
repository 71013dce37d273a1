"""The process beside a sweep's run that goes through several values of a further axis.

It stands where ``advisor.training.beside`` stands beside other runs. It asks the node's setter
(``hooks/slurm/advisor-node-gpus``) for one value after the other, by their numbers, between the
run's iterations (:mod:`advisor.phases.visits`), and ends the run once each value is known, or once
nothing can come of it. What it leaves for each value is what beside leaves of a run that it ends.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.phases.complete import BASE, STOPS, load_complete
from advisor.phases.ring import EventRings
from advisor.training.beside import (
    LEAST_S,
    POLL_S,
    Beside,
    baseline_of,
    counter_of,
    job_of_run,
    spent_j_of,
    write_note,
)
from advisor.training.ending import RunProcesses, end_run

if TYPE_CHECKING:
    from advisor.phases.visits import ValuePoint, Visits

_ANSWER_S = 10.0
"""From when a value is asked for to when the driver counts as hanging."""
_ROOT = 0
"""The user id of whoever may set clocks."""


class Setter:
    """The node's setter: sets one value of a list on all of the job's devices, by its number.

    ``why`` says why it does not, "" while it does.
    """

    def __init__(self, path: Path, owner: int = _ROOT) -> None:
        self._path, self._owner = path, owner
        self._socket: socket.socket | None = None
        self._asked_s = 0.0
        self._said = b""
        self.number: int | None = None
        """What stands, or was asked for last."""
        self.why = ""

    @property
    def waits(self) -> bool:
        """Tell whether an answer is due."""
        return self._socket is not None

    def ask(self, number: int) -> None:
        """Ask for a value; ``answered`` tells when it stands."""
        client = socket.socket(socket.AF_UNIX)
        try:
            client.settimeout(_ANSWER_S)
            client.connect(str(self._path))
            peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            # What it says is believed: it must be who may set clocks.
            if struct.unpack("3i", peer)[1] != self._owner:
                raise OSError("another user's process listens there")
            client.sendall(b"%d\n" % number)
            client.setblocking(False)
        except OSError as error:
            client.close()
            self.why = f"nothing sets it as a job runs: {error.strerror or error}"
            return
        self._socket, self._asked_s, self._said, self.number = client, time.monotonic(), b"", number

    def answered(self) -> bool:
        """Tell whether the value that was asked for stands since the last call."""
        client = self._socket
        if client is None:
            return False
        try:
            part = client.recv(512)
        except BlockingIOError:
            if time.monotonic() - self._asked_s > _ANSWER_S:
                self._end("the driver does not answer")
            return False
        except OSError as error:
            self._end(f"its setter is gone: {error.strerror}")
            return False
        self._said += part
        if part and b"\n" not in self._said:
            return False
        answer = self._said.decode("ascii", "replace").strip()
        why = answer.removeprefix("no ") if answer.startswith("no GPU") else answer
        self._end("" if answer == "ok" else why or "its setter is gone")
        return not self.why

    def _end(self, why: str) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self.why = None, why


def _make_visits(
    watcher: Beside, baseline_path: Path, count: int, within: float, metered: bool
) -> None:
    """Find the job and plan the visits while the run goes on: what they need is slow to load."""
    from advisor.phases.visits import Visits

    base = load_complete(baseline_path)
    if base is None or base.why or base.span_s < LEAST_S:
        why = (base.why if base else "") or "no complete run was kept"
        watcher.run.why = watcher.run.why or why
        return
    watcher.job = job_of_run()
    watcher.pairing = Visits(baseline_of(base), count, within=within, metered=metered)


def visit(watcher: Beside, setter: Setter) -> str | None:
    """Look once, and have the value set that is due; return why it is over, "" for done."""
    watcher.look()
    visits: Visits | None = watcher.pairing  # type: ignore[assignment]
    if watcher.run.why or visits is None:
        return watcher.run.why or None
    if setter.answered():
        visits.changed(time.monotonic())
    if visits.done:
        return ""
    if (why := visits.reason or setter.why) or setter.waits:
        return why or None
    due = visits.wanted
    if due is not None and due != setter.number and watcher.run.times:
        setter.ask(due)
    return setter.why or None


def _point_json(point: ValuePoint, watcher: Beside, values: int) -> dict[str, object]:
    """Return a value's whole run as beside has that of a run it ends.

    Each value has its part of what the run took: all are visited as often.
    """
    elapsed_s = (watcher.run.times[-1] - watcher.run.times[0]) / values
    spent_j, energy, by = spent_j_of(watcher), point.energy, watcher.by
    reason = f"one of {values + 1} values in one run, {point.iterations} iterations of it"
    return {
        "time_s": point.time.total,
        "time_half_s": point.time.half,
        "base_time_s": point.time.base,
        "energy_j": None if energy is None else energy.total,
        "energy_half_j": None if energy is None else energy.half,
        "base_energy_j": None if energy is None else energy.base,
        "elapsed_s": elapsed_s,
        "spent_j": None if spent_j is None else spent_j / values,
        "iterations": point.iterations,
        "share": elapsed_s / point.time.total,
        "reason": f"{reason}, by {by}" if by else reason,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Stand beside one run until each value is known, or until it has ended."""
    parser = argparse.ArgumentParser(prog="visiting")
    parser.add_argument("role", choices=("values", "none"))
    parser.add_argument("--rings", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--names", required=True, help="of the values but the job's own, by commas")
    parser.add_argument("--setter", type=Path, required=True)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--metered", action="store_true")
    parser.add_argument("--meter", default="auto")
    parser.add_argument("--sys", type=Path, default=Path("/sys"))
    args = parser.parse_args(argv)
    names = args.names.split(",")
    over = False

    def end(number: int, frame: object) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, end)
    parent = os.getppid()
    counter = counter_of(args.meter, args.sys) if args.metered else None
    watcher, setter = Beside(EventRings(args.rings), counter), Setter(args.setter)
    watcher.look()
    (args.rings / "ready").touch()
    words = (watcher, args.folder / BASE, 1 + len(names), args.within, args.metered)
    threading.Thread(target=_make_visits, args=words, daemon=True).start()
    why: str | None = None
    while why is None and not over and os.getppid() == parent:
        why = visit(watcher, setter)
        time.sleep(POLL_S)
    visits: Visits | None = watcher.pairing  # type: ignore[assignment]
    if why is None and visits is not None:  # the run has come to its end
        watcher.look(ended=True)
        visits.ended()
        why = "" if visits.done else visits.reason
    if why is None:
        why = "it ended before anything was known"
    known = {p.value: p for p in visits.points()} if visits is not None and not why else {}
    for number, name in enumerate(names, 1):
        if number in known and math.isfinite(known[number].time.half):
            data = json.dumps(_point_json(known[number], watcher, len(known)))
            write_note(args.folder / STOPS / name, data)
        else:
            left_out = "the run has too few iterations for so many values"
            write_note(args.folder / "whole" / name, why or left_out)
    run = RunProcesses(args.rings, watcher.job)
    if not over and run.alive():
        end_run(run)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
