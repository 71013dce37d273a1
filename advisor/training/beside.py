"""The process beside a training run: keeps the complete run's events, or ends others early.

Schedulers start it on the run's first node once the run has begun (``python -m
advisor.training.beside``) and send it SIGTERM when the run has ended. It reads what the preloaded
library keeps, and the node's meter. Whatever goes wrong here, the run goes on to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from advisor.drafts import write_whole
from advisor.phases.complete import (
    BASE,
    BEGIN,
    END,
    MOST_EVENTS,
    STOPS,
    CompleteRun,
    adopt,
    borrowed,
    load_complete,
    thinned,
)
from advisor.phases.ring import EventRings, no_room
from advisor.training.ending import RunProcesses, end_run

if TYPE_CHECKING:
    from advisor.phases.pairing import Baseline, EarlyStop, Pairing
    from advisor.schedulers.base import JobHere

POLL_S = 0.05
"""Between two looks: a ring of 4096 events lasts for 80,000 a second."""
_LATE_S = 5 * POLL_S
"""From one look to the next: this host, or what the meter's counter is kept by, stood still."""
LEAST_S = 5.0
"""A complete run that took less leaves nothing worth ending."""


class _Counting(Protocol):
    def so_far_j(self) -> float:
        """Return the joules since the meter was started."""


class Follower(Protocol):
    """Takes a run's events and readings in the order of their times."""

    reason: str

    def read(self, time_s: float, energy_j: float) -> None:
        """Take a reading of the counter of joules."""

    def feed(self, time_s: float, site: str) -> EarlyStop | None:
        """Take an event; return a stop where the run may be ended."""


@dataclass(slots=True)
class Beside:
    """Takes a run's events and readings as they come, and hands them to ``pairing`` once there.

    It never is for a complete run with no earlier one; else it takes as long as to load it.
    """

    rings: EventRings
    counter: _Counting | None
    pairing: Follower | None = None
    job: JobHere | None = None
    run: CompleteRun = field(default_factory=CompleteRun)
    _joules: float = -1.0
    _looked: float = math.inf
    _left_out: bool = False
    _fed: int = 0
    _read: int = 0

    def look(self, *, ended: bool = False) -> EarlyStop | None:
        """Take what came since the last look; return a stop where the run may be ended."""
        run = self.run
        if reading := self._reading():
            run.readings.append(reading)
            if self.pairing is None:
                thinned(run.readings)
        events = self.rings.poll(ended=ended)
        # A run begins with its process, before anything that it calls.
        if events and not run.times:
            first = min(p.begin_s for p in self.rings.leading())
            events.insert(0, (min(first, events[0][0]), BEGIN))
        if self.rings.lost:
            run.why = (
                run.why or f"events came faster than they could be read ({self.rings.lost} lost)"
            )
        if len(run.times) + len(events) > MOST_EVENTS:
            run.why = run.why or f"it has more than {MOST_EVENTS} events"
        if run.why:
            return None
        run.times += [t for t, _ in events]
        run.sites += [s for _, s in events]
        return None if self.pairing is None else self._feed(self.pairing)

    def _feed(self, pairing: Follower) -> EarlyStop | None:
        """Hand on what was not handed on yet, in the order of its times."""
        run = self.run
        while self._fed < len(run.times):
            time_s = run.times[self._fed]
            while self._read < len(run.readings) and run.readings[self._read][0] <= time_s:
                pairing.read(*run.readings[self._read])
                self._read += 1
            self._fed += 1
            if stop := pairing.feed(time_s, run.sites[self._fed - 1]):
                return stop
        return None

    def _reading(self) -> tuple[float, float] | None:
        """Return the time and the meter's counter where it has moved.

        That of one look is left out where this host stood still since the look before: what is
        read first after that may be what the counter was before it, or the time may be.
        """
        if self.counter is None:
            return None
        begin = time.monotonic()
        try:
            joules = self.counter.so_far_j()
        except (OSError, ValueError):
            self.counter = None
            return None
        end = time.monotonic()
        self._left_out = end - self._looked > _LATE_S and not self._left_out
        self._looked = end
        if self._left_out or joules == self._joules:
            return None
        self._joules = joules
        return begin, joules

    def ended(self) -> CompleteRun:
        """Return the whole run, after its end."""
        from advisor.phases.ranks import ranks_apart

        self.look(ended=True)
        # The last reading was left out: without another one the run's energy would lack its end.
        if self._left_out:
            time.sleep(POLL_S)
            self.look(ended=True)
        run = self.run
        if not run.times:
            run.why = run.why or no_room(self.rings.folder)
            run.why = run.why or "it called neither OpenMP nor MPI where that can be seen"
            return run
        ends = [p.end_s for p in self.rings.leading() if p.end_s is not None]
        run.times.append(max(run.times[-1], *ends) if ends else run.times[-1])
        run.sites.append(END)
        if self.pairing is not None:
            self._feed(self.pairing)
        run.why = run.why or ranks_apart(self.rings.folder)
        return run

    @property
    def by(self) -> str:
        """Whose events stand for the run: ``rank 0 of 4 on the first of 2 nodes``; "": all's."""
        from advisor.phases.ranks import ranks_here

        ranks, nodes = ranks_here(self.rings), self.job.nodes() if self.job else 1
        if len(ranks) < 2 and nodes < 2:
            return ""
        where = f"the first of {nodes} nodes" if nodes > 1 else "this node"
        who = f"rank {ranks[0]} of {len(ranks)}" if ranks else "what ran"
        return f"{who} on {where}"


def job_of_run() -> JobHere | None:
    """Return the job that the run is in, None in none; what asks schedulers takes time to load."""
    from advisor.errors import AdvisorError
    from advisor.schedulers.choose import job_here

    with contextlib.suppress(AdvisorError):
        return job_here()
    return None


def counter_of(name: str, root: Path) -> _Counting | None:
    """Return a started meter of this node that can be read while a run goes on, else None."""
    from advisor.errors import AdvisorError
    from advisor.meters.base import Load
    from advisor.meters.choose import best_meter

    try:
        meter = best_meter(None, name=name, root=root).meter
        if meter is None or not hasattr(meter, "so_far_j"):
            return None
        meter.start(Load())
    except (AdvisorError, OSError, ValueError):
        return None
    return meter  # type: ignore[return-value]


def _make_pairing(watcher: Beside, base: CompleteRun, within: float, metered: bool) -> None:
    """Find the job and make the pairing while the run goes on: what they need is slow to load.

    Readings of the meter come meanwhile: a gap in them would hide what the first iterations took.
    """
    from advisor.phases.pairing import Pairing

    watcher.job = job_of_run()
    baseline = baseline_of(base)
    watcher.pairing = Pairing(baseline, within=within, metered=metered, beside=True)


def baseline_of(base: CompleteRun) -> Baseline:
    """Return a complete run as others are paired with it."""
    from advisor.phases.metered import Metered
    from advisor.phases.pairing import Baseline, RunEvents

    meter = Metered()
    for time_s, joules in base.readings:
        meter.feed(time_s, joules)
    events = RunEvents(tuple(base.times), tuple(base.sites))
    return Baseline(events, meter if base.readings else None, phases=base.phases)


def _stop_json(stop: EarlyStop, base: CompleteRun, watcher: Beside) -> dict[str, object]:
    spent_j, leading_rank = spent_j_of(watcher), watcher.by
    energy, begin_j = stop.energy, base.readings[0][1] if base.readings else 0.0
    return {
        "time_s": stop.time.total,
        "time_half_s": stop.time.half,
        "base_time_s": base.span_s,
        "energy_j": None if energy is None else energy.total,
        "energy_half_j": None if energy is None else energy.half,
        "base_energy_j": base.readings[-1][1] - begin_j if base.readings else None,
        "elapsed_s": stop.stop_s,
        "spent_j": spent_j,
        "iterations": stop.iterations,
        "share": stop.stop_s / stop.time.total,
        "reason": f"{stop.reason}, by {leading_rank}" if leading_rank else stop.reason,
        **_plugin_facts(watcher),
    }


def _plugin_facts(watcher: Beside) -> dict[str, object]:
    """Return what installed packages keep of the run; a package that fails keeps nothing."""
    from advisor import plugins

    watched = cast("Pairing", watcher.pairing).watched() if watcher.pairing else None
    more: dict[str, object] = {}
    if watched is not None:
        for name in plugins.names("early_stops"):
            with contextlib.suppress(Exception):
                value = plugins.load("early_stops", name)(watched)
                # What cannot be written as JSON is a package's failure, and is found here, not
                # later.
                json.dumps(value)
                more[name] = value
    return more


def main(argv: Sequence[str] | None = None) -> int:
    """Stand beside one run until it has ended, or end it."""
    parser = argparse.ArgumentParser(prog="beside")
    parser.add_argument("role", choices=("complete", "paired", "none"))
    parser.add_argument("--rings", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--metered", action="store_true")
    parser.add_argument("--meter", default="auto")
    parser.add_argument("--sys", type=Path, default=Path("/sys"))
    args = parser.parse_args(argv)
    over = False

    def end(number: int, frame: object) -> None:
        nonlocal over
        # between any two steps of the program, so nothing but a word to it
        over = True

    signal.signal(signal.SIGTERM, end)
    parent = os.getppid()
    base = None
    if args.role == "paired":
        base = load_complete(args.folder / BASE)
    elif args.role == "complete":
        base = borrowed(args.folder, metered=args.metered)
    if base is not None and (base.why or base.span_s < LEAST_S):
        base = None
    if args.role == "paired" and base is None:
        return 0
    counter = counter_of(args.meter, args.sys) if args.metered else None
    watcher = Beside(EventRings(args.rings), counter)
    watcher.look()
    # The run has waited for this: its time begins.
    (args.rings / "ready").touch()
    if args.role == "none":
        return 0
    if base is not None:
        threading.Thread(
            target=_make_pairing, args=(watcher, base, args.within, args.metered), daemon=True
        ).start()
    # Without its parent nobody tells it any more when the run ends.
    while not over and os.getppid() == parent:
        stop = watcher.look()
        if stop is not None and base is not None:
            run = RunProcesses(args.rings, watcher.job)
            if run.alive():
                if args.role == "complete":
                    adopt(args.folder)
                data = json.dumps(_stop_json(stop, base, watcher))
                write_note(args.folder / STOPS / args.name, data)
                end_run(run)
            return 0
        reason = watcher.run.why or (watcher.pairing.reason if watcher.pairing else "")
        if base is not None and reason:
            write_note(args.folder / "whole" / args.name, reason)
            if args.role == "paired":
                return 0
            base, watcher.pairing = None, None  # the one to pair others with is this
        time.sleep(POLL_S)
    if not over:
        return 0
    complete = watcher.ended()
    if base is not None and watcher.pairing and complete.times:
        ended = cast("Pairing", watcher.pairing).ended()
        write_note(args.folder / "whole" / args.name, ended.reason)
    if args.role == "complete":
        if complete.span_s < LEAST_S:
            complete.why = complete.why or f"it took less than {LEAST_S:g} s"
        complete.save(args.folder / BASE)
    return 0


def spent_j_of(watcher: Beside) -> float | None:
    """Return the joules that the run has taken so far, None without a meter."""
    readings = watcher.run.readings
    return readings[-1][1] - readings[0][1] if readings else None


def write_note(path: Path, text: str) -> None:
    """Write what is known of a run before it is ended: a run ended without a word has failed."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, text, sync=True)


if __name__ == "__main__":
    raise SystemExit(main())
