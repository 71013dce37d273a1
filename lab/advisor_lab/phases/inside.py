"""What goes on inside an iteration of a run that was watched, from readings made beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.phases.arrays import Floats
from advisor.phases.complete import CompleteRun
from advisor.phases.metered import Metered
from advisor_lab.phases.fold import FoldedSignal, fold
from advisor_lab.phases.routines import FoldedRoutines, RunningCode, fold_routines
from advisor_lab.phases.signal import PeriodicStretch, find_periods

Counted = Mapping[str, Sequence[tuple[float, float]]]
"""Readings (s, total since some time) of counters, by name."""

_NOTHING = 0.01
"""Of a rate's maximum: below it a ratio to the rate says nothing."""


@dataclass(frozen=True, slots=True)
class InsideSignal:
    """One quantity inside an iteration: its name, its unit, the folded curve."""

    name: str
    unit: str
    folded: FoldedSignal


def power_inside(run: CompleteRun) -> FoldedSignal | None:
    """Return the power (W) inside an iteration of the longest phase; None where it is not known.

    The readings are a node's; of a run on several nodes they are the first one's.
    """
    meter = Metered()
    for reading in run.readings:
        meter.feed(*reading)
    times, joules = meter.readings
    return _folded(times, joules, _marks(run))


def usable(counted: Counted, code: RunningCode | None, waiting: str) -> Counted:
    """Return what may be folded: where threads wait actively (``waiting``), no counts of them.

    Samples (``code``) tell the processor time without what waits.
    """
    if not waiting:
        return counted
    foldable = {n: r for n, r in counted.items() if n not in ("instructions", "cycles", "cpu_s")}
    return foldable | ({"at_work_s": code.at_work()} if code is not None else {})


def mean_cores(counted: Counted) -> float:
    """Return how many cores were in use on average; 0 where that was not counted."""
    readings = counted.get("cpu_s", ())
    if len(readings) < 2 or readings[-1][0] <= readings[0][0]:
        return 0.0
    return (readings[-1][1] - readings[0][1]) / (readings[-1][0] - readings[0][0])


def routines_inside(run: CompleteRun, code: RunningCode | None) -> FoldedRoutines | None:
    """Return which routine runs where in an iteration of the longest phase; None: not known."""
    return None if code is None else fold_routines(code, _marks(run))


def signals_inside(run: CompleteRun, counted: Counted) -> list[InsideSignal]:
    """Return all that is known of an iteration of the longest phase, power before the rest."""
    power = power_inside(run)
    first = [] if power is None else [InsideSignal("power", "W", power)]
    return [*first, *_counted_inside(run, counted)]


def _counted_inside(run: CompleteRun, counted: Counted) -> list[InsideSignal]:
    """Return what counters tell of an iteration of the longest phase: IPC, MIPS, GB/s, cores."""
    marks = _marks(run)
    folded = {}
    for name, readings in counted.items():
        times, total = np.array(readings).T if readings else (np.array([]), np.array([]))
        if (curve := _folded(times, total, marks)) is not None:
            folded[name] = curve
    signals = []
    if "instructions" in folded and "cycles" in folded:
        ratio = _ratio(folded["instructions"], folded["cycles"])
        signals.append(InsideSignal("instructions per cycle", "IPC", ratio))
    for name, title, unit, scale in (
        ("instructions", "instructions", "MIPS", 1e-6),
        ("bytes", "memory of the node", "GB/s", 1e-9),
        ("cpu_s", "cores in use", "cores", 1.0),
        ("at_work_s", "cores at work", "cores", 1.0),
    ):
        if name in folded:
            signals.append(InsideSignal(title, unit, _scaled(folded[name], scale)))
    return signals


def counted_periods(counted: Counted) -> tuple[str, list[PeriodicStretch]]:
    """Return which counter's rate repeats, and its stretches; nothing where none does.

    Instructions before processor time: threads that wait actively use their cores evenly.
    """
    for name, source in (
        ("instructions", "instructions per second"),
        ("cpu_s", "cores in use"),
        ("at_work_s", "cores at work, waiting left out"),
    ):
        readings = np.array(counted.get(name, ()))
        if len(readings) < 2:
            continue
        times, total = readings.T
        middle, rate = (times[1:] + times[:-1]) / 2, np.diff(total) / np.diff(times)
        if stretches := find_periods(middle, rate):
            return source, stretches
    return "", []


def _marks(run: CompleteRun) -> Floats:
    """Return the begins of the longest phase's iterations and the last one's end; s."""
    phases = run.iterations()
    if not phases:
        return np.array([])
    longest = max(phases, key=lambda p: p.end_s - p.begin_s)
    times = np.array(run.times)
    return np.unique(times[longest.bounds[longest.bounds < len(times)]])


def _folded(times: Floats, total: Floats, marks: Floats) -> FoldedSignal | None:
    return fold(times, total, marks) if len(marks) and len(times) >= 3 else None


def _scaled(curve: FoldedSignal, factor: float) -> FoldedSignal:
    """Return the curve in another unit."""
    value, low, high = factor * curve.value, factor * curve.low, factor * curve.high
    return replace(
        curve, value=value, low=low, high=high, per_iteration=factor * curve.per_iteration
    )


def _ratio(above: FoldedSignal, below: FoldedSignal) -> FoldedSignal:
    """Return the ratio of two curves; its band joins theirs, as relative errors.

    Where next to nothing is counted below, nothing is known of the ratio, and it is 0.
    """
    counted = below.value > _NOTHING * below.value.max(initial=0.0)
    divisor = np.where(counted, below.value, np.inf)
    value = above.value / divisor
    half = np.hypot(
        (above.high - above.value) / divisor, value * (below.high - below.value) / divisor
    )
    mean = above.per_iteration / below.per_iteration if below.per_iteration else 0.0
    low = np.maximum(value - half, 0.0)
    return replace(above, value=value, low=low, high=value + half, per_iteration=mean)
