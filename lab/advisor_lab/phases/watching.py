"""A command run under the preloaded library: its calls of OpenMP and MPI, and its lines."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.core.codec import JsonForm
from advisor.errors import AdvisorError, SchedulerError
from advisor.instruments.characterise_runs import timing_library
from advisor.phases.complete import BEGIN, END, CompleteRun, load_complete
from advisor.phases.ranks import ranks_apart
from advisor.phases.ring import EventRings, no_room
from advisor_lab.phases.burst_counters import VARIABLE, BurstsBeside
from advisor_lab.phases.bursts import BurstTable
from advisor_lab.phases.counted import CountedBeside
from advisor_lab.phases.inside import Counted
from advisor_lab.phases.routines import RunningCode, running_code
from advisor_lab.phases.sampled import SampledBeside

CALLS, LINES, NOTHING = "calls of OpenMP and MPI", "lines on stdout", "nothing that repeats"
_POLL_S = 0.02
"""Seconds between two looks for output."""
_NUMBER = re.compile(r"[-+]?\d[\d.,:]*(?:[eEdD][-+]?\d+)?%?")
_LONGEST = 80
"""Characters of a line that name its kind."""


@dataclass(frozen=True, slots=True)
class SeenProcess(JsonForm):
    """A process that was watched: how many events its ring has, and how many were lost."""

    program: str
    pid: int
    rank: int | None
    events: int
    lost: int


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """What was seen of a run: its events from begin to end, and which source they are of.

    ``counted`` are readings of counters beside it, by name; ``why_not`` what could not be counted.
    ``running`` is which routine its threads were in, None where that could not be sampled.
    ``bursts`` are those whose counters were read in the program, None where none were.
    ``processes`` are all that were watched;
    ``notes`` say what is missing and why.
    """

    run: CompleteRun
    source: str
    processes: tuple[SeenProcess, ...]
    notes: tuple[str, ...]
    exit_code: int = 0
    counted: Counted = field(default_factory=dict)
    why_not: str = ""
    running: RunningCode | None = None
    bursts: BurstTable | None = None


def watched_command(argv: Sequence[str], *, quiet: bool) -> WatchedRun:
    """Run a command and watch it; ``quiet`` sends what it prints to stderr.

    Its stdout is a terminal of ours, so that lines come as they are printed. Where the library
    cannot be built, lines are all there is. Raises SchedulerError when it cannot be started.
    """
    notes: list[str] = []
    environment = dict(os.environ)
    bursts = BurstsBeside()
    with tempfile.TemporaryDirectory(prefix="advisor-watch-") as name:
        try:
            library = timing_library()
            preload = environment.get("LD_PRELOAD", "")
            environment |= {
                "ADVISOR_WATCH": name,
                "LD_PRELOAD": f"{library} {preload}".strip(),
                VARIABLE: bursts.choose(),
            }
        except AdvisorError as error:
            notes.append(f"calls are not watched: {error.message}")
        watched_run = _watch(
            argv, environment, EventRings(Path(name)), bursts, notes, 2 if quiet else 1
        )
    more = bursts.notes if watched_run.source == CALLS else []
    return replace(watched_run, bursts=bursts.table(), notes=(*watched_run.notes, *more))


def _watch(
    argv: Sequence[str],
    environment: dict[str, str],
    rings: EventRings,
    bursts: BurstsBeside,
    notes: list[str],
    out: int,
) -> WatchedRun:
    calls, lines = CompleteRun(), CompleteRun()
    controller, terminal = pty.openpty()
    os.set_blocking(controller, False)
    begin = time.monotonic()
    with CountedBeside() as counters, SampledBeside() as samples:
        try:
            child = subprocess.Popen(argv, env=environment, stdout=terminal)
        except OSError as error:
            raise SchedulerError(f"cannot run {argv[0]}: {error.strerror}") from error
        finally:
            os.close(terminal)
        reader = _LineReader(controller, out, lines)
        try:
            while child.poll() is None:
                reader.read()
                _append_events(calls, rings.poll())
                bursts.take(rings)
                counters.read()
                samples.read()
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.wait()
        samples.read()
    reader.read()
    os.close(controller)
    _append_events(calls, rings.poll(ended=True))
    bursts.take(rings)
    end = time.monotonic()
    if samples.why_not:
        notes.append(samples.why_not)
    if samples.lost:
        notes.append(f"{samples.lost} samples of where threads were came too fast to be read")
    running = None if samples.why_not else running_code(samples.places())
    watched_run = _watched_run(calls, lines, rings, notes, (begin, end), child.returncode)
    return replace(
        watched_run, counted=counters.readings, why_not=counters.why_not, running=running
    )


def _append_events(run: CompleteRun, events: Sequence[tuple[float, str]]) -> None:
    run.times += [t for t, _ in events]
    run.sites += [s for _, s in events]


def _watched_run(
    calls: CompleteRun,
    lines: CompleteRun,
    rings: EventRings,
    notes: list[str],
    span: tuple[float, float],
    code: int,
) -> WatchedRun:
    """Choose the source: calls where there are any, else lines."""
    processes = tuple(
        SeenProcess(p.exe.name, p.pid, p.rank, p.made, p.lost) for p in rings.processes
    )
    notes += lost_notes(rings)
    if apart := ranks_apart(rings.folder):
        notes.append(f"{apart}: what is shown is of the lowest rank only")
    source, run = (CALLS, calls) if calls.times else (LINES, lines)
    if not calls.times and not any("not watched" in n for n in notes):
        notes.append(
            no_room(rings.folder)
            or "no call of OpenMP or MPI was seen: the program makes none, is static or setuid, or "
            "runs where the library is not (a container, another node)"
        )
    if not run.times:
        return WatchedRun(run, NOTHING, processes, tuple(notes), code)
    begins = [p.begin_s for p in rings.leading()] if source == CALLS else [span[0]]
    ends = [p.end_s for p in rings.leading() if p.end_s] if source == CALLS else [span[1]]
    run.times = (
        [min(*begins, run.times[0]), *run.times, max(*ends, run.times[-1])]
        if ends
        else [min(*begins, run.times[0]), *run.times, run.times[-1]]
    )
    run.sites = [BEGIN, *run.sites, END]
    return WatchedRun(run, source, processes, tuple(notes), code)


def lost_notes(rings: EventRings) -> list[str]:
    """Say which events were not seen."""
    notes = []
    if rings.lost:
        notes.append(f"{rings.lost} events were written over before they were read")
    homeless = sum(p.homeless for p in rings.leading())
    if homeless:
        notes.append(f"{homeless} events are of call sites beyond the 1023 that a process keeps")
    return notes


class _LineReader:
    """Reads what a program prints as it prints it, passes it on, and takes lines as events."""

    def __init__(self, descriptor: int, out: int, run: CompleteRun) -> None:
        self._descriptor, self._out, self._run, self._half = descriptor, out, run, b""

    def read(self) -> None:
        """Take what there is."""
        with contextlib.suppress(OSError):  # nothing there now, or its end
            while data := os.read(self._descriptor, 1 << 16):
                # A terminal makes two characters of each line's end.
                os.write(self._out, data.replace(b"\r\n", b"\n"))
                time_s = time.monotonic()
                *lines, self._half = (self._half + data).split(b"\n")
                for line in lines:
                    self._run.times.append(time_s)
                    self._run.sites.append(shape_of(line.decode(errors="replace")))


def shape_of(line: str) -> str:
    """Return what a line has in common with others of its kind: numbers are all alike."""
    return " ".join(_NUMBER.sub("#", line).split())[:_LONGEST] or "(blank)"


def watched_folder(folder: Path) -> WatchedRun | None:
    """Return what a folder holds: a sweep's complete run, or what processes left; None: neither."""
    for path in (folder / "complete.json", folder / "watch" / "complete.json"):
        if run := load_complete(path):
            source = CALLS if run.times else NOTHING
            return WatchedRun(run, source, (), (run.why,) if run.why else ())
    rings = EventRings(folder)
    run = CompleteRun()
    _append_events(run, rings.poll(ended=True))
    if not rings.processes:
        return None
    return _watched_run(run, CompleteRun(), rings, [], (0.0, 0.0), 0)
