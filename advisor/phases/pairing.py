"""A run beside the complete run of its workload, event by event, until enough of it is known."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.phases.apportion import energies
from advisor.phases.arrays import Ints
from advisor.phases.calmed import Calmed, bouts_of
from advisor.phases.extrapolate import Extrapolated, Paired, extrapolate
from advisor.phases.metered import Metered
from advisor.phases.sequence import IteratedPhase, find_iterations
from advisor.phases.stretches import BLOCK, LEAST_ITERATIONS, PairedStretches
from advisor.phases.tracking import ClusterStability, TrackedCluster

LEAST_READINGS = 50
"""Fewer readings of the meter give no energy of a run that is ended early."""

WITHIN = 0.03
"""The 90 % half width at which a run is ended, unless the policy says another."""

MARGIN = 0.6
"""Of that half width, what scatter may take: a stop chosen for its narrow interval is too sure.
Chosen, as the drift is, on drawn programs of 50 seeds and on recorded cases; docs/phases.md has
what these reach, and what others do."""

_STEP = 0.004
"""Of the baseline's time, between two looks at the estimate."""

_LATE = 0.9
"""Of the baseline's time: from there a run goes to its end, which is known exactly."""

_LOOKS_S, _LOOKS_SHARE = 0.5, 0.01
"""Processor time that looks at a run under way may take (s), and of its time so far on top."""

_SILENT = 10
"""Times its period after which a meter without a reading does not speak for the run."""

_READINGS_EACH = 10
"""Readings of the meter in a stretch whose energy is judged as one."""

_THIRDS = 3
"""Clusterings in a row that must be alike before a run is ended."""

NUMBER = 0.02
"""Half width of the number of iterations where sequences differ and no other run is known."""


@dataclass(frozen=True, slots=True)
class RunEvents:
    """A recorded run: the times of its events, ascending, and their sites."""

    times: tuple[float, ...]
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """What is known of a run when it is ended, or at its own end (``stopped`` false)."""

    stopped: bool
    stop_s: float
    iterations: int
    time: Extrapolated
    energy: Extrapolated | None
    reason: str


@dataclass(frozen=True, slots=True)
class WatchedBeside:
    """What was seen of a run: the times of its events, paired with the first of its baseline's.

    ``phases`` are the baseline's. What is registered as ``advisor.early_stops`` takes one when the
    run is ended, and returns what is kept of it under the registered name, as JSON has it.
    """

    base: RunEvents
    phases: Sequence[IteratedPhase]
    times: Sequence[float]
    meter: Metered | None


class Baseline:
    """A complete run as others are paired with it: its events, its phases, its meter.

    ``other_counts`` are the numbers of iterations of other complete runs of the workload. Its
    phases are found unless they are given.
    """

    def __init__(
        self,
        events: RunEvents,
        meter: Metered | None = None,
        other_counts: Sequence[int] = (),
        phases: list[IteratedPhase] | None = None,
    ) -> None:
        self.events = events
        self.phases = find_iterations(events.times, events.sites) if phases is None else phases
        self._meter = None
        if meter is not None and _covers(meter, events.times):
            self._meter = meter
        self._number = 0.0
        if other_counts and self.phases:
            counts = [sum(p.iterations for p in self.phases), *other_counts]
            self._number = float(np.ptp(counts)) / 2 / counts[0] * (1 + 1 / len(counts))
        bounds = tuple(p.bounds for p in self.phases)
        self.exact = self._cut(np.arange(len(events.times)), bounds, self._number)

    @property
    def metered(self) -> bool:
        """Whether its energy is known from its begin to its end."""
        return self._meter is not None

    @property
    def meter(self) -> Metered | None:
        """Its meter, where its energy is known."""
        return self._meter

    def _cut(
        self, event_indices: Ints, phases: tuple[Ints, ...], number_share: float
    ) -> PairedStretches:
        """Cut the run at these events; ``phases`` are bounds among them."""
        times = np.array(self.events.times)[event_indices]
        names = {s: i for i, s in enumerate(dict.fromkeys(self.events.sites))}
        count = len(times) - 1
        units = np.arange(count) // BLOCK
        looks = np.arange(BLOCK, count, BLOCK)
        if phases:
            looks = np.unique(np.concatenate(phases))
            units = np.searchsorted(looks, np.arange(count), side="right")
        classes = np.array([names[self.events.sites[i]] for i in event_indices[:-1]], np.int64)
        energy = None
        if self._meter is not None:
            energy = Calmed.of(energies(self._meter, times, classes), classes, phases)
        bouts = tuple(bouts_of(np.diff(times[p[p <= count]])) for p in phases)
        return PairedStretches(
            Calmed.of(np.diff(times), classes, phases),
            energy,
            classes,
            units.astype(np.int64),
            looks,
            phases,
            bouts,
            number_share,
        )

    def aligned(self, phase: IteratedPhase) -> PairedStretches:
        """Return the stretches where each iteration of a phase is one, as a whole."""
        first, last = int(phase.bounds[0]), int(phase.bounds[-1])
        event_indices = np.concatenate(
            [np.arange(first), phase.bounds, np.arange(last + 1, len(self.events.times))]
        )
        phase_bounds = np.arange(first, first + len(phase.bounds))
        removed_count = last - first - phase.iterations
        later_bounds = [p.bounds - removed_count for p in self.phases if p.bounds[0] >= last]
        earlier_bounds = [p.bounds for p in self.phases if p.bounds[-1] <= first]
        number = self._number or NUMBER
        return self._cut(event_indices, (*earlier_bounds, phase_bounds, *later_bounds), number)


class Pairing:
    """Takes a run's events and readings in their order; ``feed`` says when it may be ended.

    ``beside``: it stands beside the run, and looks less often where looks take too much.
    """

    def __init__(
        self,
        baseline: Baseline,
        *,
        within: float = WITHIN,
        metered: bool = True,
        beside: bool = False,
    ) -> None:
        self._base, self._expected = baseline, baseline.events.sites
        self._beside, self._looks_s = beside, 0.0
        self._within = within
        self._meter = Metered() if metered and baseline.metered else None
        self._times: list[float] = []
        self._sites: list[str] = []
        # The very list, so that it grows with it, until iterations are boundaries in place of
        # events.
        self._marks = self._times
        self._turns: Turns | None = None
        self._looked = -np.inf
        self._follow_plan(baseline.exact)
        self._asked = ClusterStability().required
        self.reason = ""
        """Why the run goes to its end, once that is certain."""
        if metered and not baseline.metered:
            self.reason = (
                f"the baseline was not metered from begin to end with {LEAST_READINGS} readings"
            )

    def _follow_plan(self, plan: PairedStretches) -> None:
        self._plan, self._looks = plan, set(plan.looks.tolist())
        self._passed = np.concatenate([[0.0], np.cumsum(plan.time.values)])

    def read(self, time_s: float, energy_j: float) -> None:
        """Take a reading of the counter of joules."""
        if self._meter is not None:
            self._meter.feed(time_s, energy_j)

    def feed(self, time_s: float, site: str) -> EarlyStop | None:
        """Take an event; an EarlyStop where the run may be ended now."""
        event_index = len(self._times)
        self._times.append(time_s)
        self._sites.append(site)
        sites = self._expected
        alike = self._turns is None and event_index < len(sites) and site == sites[event_index]
        if self.reason or (alike and event_index not in self._looks):  # of most events that is all
            return None
        if self._turns is None and (event_index >= len(sites) or site != sites[event_index]):
            self._align(event_index)
        elif self._turns is not None and not self._turns.feed(time_s, site):
            self.reason = self._turns.reason
        if self.reason:
            return None
        stretch_count = len(self._marks) - 1
        if stretch_count not in self._looks or self._marks[-1] != time_s:
            return None
        passed = float(self._passed[stretch_count])
        total = float(self._passed[-1])
        if passed - self._looked < _STEP * total or passed > _LATE * total:
            return None
        if self._beside and self._looks_s > _LOOKS_S + _LOOKS_SHARE * (time_s - self._times[0]):
            return None
        self._looked, begin = passed, time.thread_time()
        stop = self._look(stretch_count)
        self._looks_s += time.thread_time() - begin
        return stop

    def _align(self, event_index: int) -> None:
        """Go on by iterations where the sequences part within a phase; else say where they do."""
        sites = self._base.events.sites
        baseline_text = (
            f"the baseline's is {sites[event_index]!r}"
            if event_index < len(sites)
            else "the baseline ended"
        )
        parted = f"event {event_index + 1} is {self._sites[event_index]!r}, {baseline_text}"
        phase = next(
            (p for p in self._base.phases if p.bounds[0] < event_index <= p.bounds[-1]), None
        )
        if phase is None:
            self.reason = parted
            return
        first = int(phase.bounds[0])
        turns = Turns(phase, sites[first], parted, self._times[:first])
        for time_s, site in zip(self._times[first:], self._sites[first:], strict=True):
            if not turns.feed(time_s, site):
                self.reason = turns.reason
                return
        self._turns, self._marks = turns, turns.marks
        self._follow_plan(self._base.aligned(phase))

    def _look(self, stretch_count: int) -> EarlyStop | None:
        """Return a stop if time and energy are known well enough after so many stretches."""
        iterations = self._plan.iterations_before(stretch_count)
        if iterations < LEAST_ITERATIONS or self._plan.young(stretch_count):
            return None
        time = self._time(stretch_count)
        if time is None or not self._precise(time) or not self._stable(stretch_count):
            return None
        energy = None
        if self._meter is not None:
            if self._meter.between(self._times[0], self._times[-1]) < LEAST_READINGS:
                return None
            energy = self._energy()
            if energy is None or not self._precise(energy):
                return None
        begin = self._times[0]
        reason = f"known within {100 * self._within:g} % after {iterations} iterations"
        return EarlyStop(True, self._times[-1] - begin, iterations, time, energy, reason)

    def _precise(self, total: Extrapolated) -> bool:
        limit = self._within * total.total
        return total.half <= limit and total.scatter <= MARGIN * limit

    def _stable(self, stretch_count: int) -> bool:
        """Tell whether the classes go on as they were, in three thirds of the phase under way.

        Each class is a cluster at its ratio to the baseline. A run that slows down while it is
        watched, or whose neighbours do, has clusters that move.
        """
        plan, stability = self._plan, ClusterStability(required=self._asked)
        turns = plan.turns(stretch_count)
        run = np.diff(self._marks[: stretch_count + 1])
        calm = plan.time.beside(run, plan.classes)
        kinds = int(plan.classes.max()) + 1
        for k in range(_THIRDS):
            first, last = (int(turns[(len(turns) - 1) * i // _THIRDS]) for i in (k, k + 1))
            third_classes = plan.classes[first:last]
            took = np.bincount(third_classes, run[first:last], kinds)
            base = np.bincount(third_classes, calm[first:last], kinds)
            ratios = [(t / b, t) for t, b in zip(took, base, strict=True) if b > 0]
            clusters = [TrackedCluster({"ratio": (r, r)}, float(t)) for r, t in ratios]
            stable = stability.feed(clusters)
        self._asked = stability.required
        return stable

    def _time(self, stretch_count: int) -> Extrapolated | None:
        plan = self._plan
        run = np.diff(self._marks[: stretch_count + 1])
        paired = Paired(plan.time.beside(run, plan.classes), run, plan.classes, plan.units)
        bouts = plan.error_by_bouts(self._marks[: stretch_count + 1])
        elapsed = self._marks[stretch_count] - self._marks[0]
        return extrapolate(paired, elapsed, plan.number_share, bouts=bouts)

    def _energy(self) -> Extrapolated | None:
        """Return the energy by the last boundary that the meter has passed.

        None while too few iterations of the phase under way lie before it: what iterations
        scatter as a whole would not be known, and each event would be taken by itself.
        """
        plan, meter, marks = self._plan, self._meter, self._marks
        if meter is None or plan.energy is None or meter.stopped:
            return None
        if marks[-1] - meter.until > _SILENT * meter.period_s:
            return None
        passed = int(np.searchsorted(marks, meter.until, side="right")) - 1
        boundaries = plan.looks[plan.looks <= passed]
        if not len(boundaries):
            return None
        stretch_count = int(boundaries[-1])
        if plan.iterations_before(stretch_count) < LEAST_ITERATIONS or plan.young(stretch_count):
            return None
        run = energies(meter, np.array(marks[: stretch_count + 1]), plan.classes[:stretch_count])
        units = plan.units // self._iterations_per_sum(
            meter, marks[stretch_count] - marks[0], stretch_count
        )
        paired = Paired(plan.energy.beside(run, plan.classes), run, plan.classes, units)
        joules, seconds = float(run.sum()), marks[stretch_count] - marks[0]
        resolution = 0.5 * meter.period_s * joules / seconds if seconds > 0 else 0.0
        return extrapolate(
            paired,
            joules,
            plan.number_share,
            energy=True,
            resolution=resolution,
            bouts=plan.error_by_bouts(marks[: stretch_count + 1]),
        )

    def _iterations_per_sum(self, meter: Metered, seconds: float, stretch_count: int) -> int:
        """Return how many iterations are one where energy is judged.

        A meter that is slow beside them puts joules before a boundary or behind it. What one
        iteration has too much the next has too little, and their sum is better known than each.
        So many sums as iterations are asked for remain in the phase under way.
        """
        iterations = max(1, int(self._plan.units[stretch_count - 1] - self._plan.units[0]))
        under_way = max(1, len(self._plan.turns(stretch_count)) - 1)
        readings = seconds / meter.period_s / iterations
        if readings >= _READINGS_EACH:
            return 1
        return min(math.ceil(_READINGS_EACH / readings), max(1, under_way // LEAST_ITERATIONS))

    def watched(self) -> WatchedBeside | None:
        """Return what was seen of the run; None where its sequence is not the baseline's."""
        if self._turns is not None:
            return None
        return WatchedBeside(self._base.events, self._base.phases, self._times, self._meter)

    def ended(self) -> EarlyStop:
        """Return what the run took when it came to its own end."""
        times = self._times
        took = times[-1] - times[0]
        time = Extrapolated(took, 0.0, 0.0, 0.0, 0.0)
        energy = None
        if self._meter is not None and _covers(self._meter, times, least=2):
            spent = self._meter.at([times[0], times[-1]])
            energy = replace(time, total=float(spent[1] - spent[0]))
        stretch_count = min(len(self._marks) - 1, len(self._plan.classes))
        if not self.reason and stretch_count < len(self._plan.classes) and self._turns is None:
            self.reason = f"the run ended after event {len(times)}, where the baseline goes on"
        if not self.reason and self._meter is not None and energy is None:
            known_s = self._meter.until - times[0]
            self.reason = f"its meter's last reading came after {known_s:.4g} s of {took:.4g} s"
        reason = self.reason or f"it ended before it was known within {100 * self._within:g} %"
        if not self.reason and any(self._plan.bouts):
            reason += "; iterations of the complete run are longer for a while, in bouts"
        return EarlyStop(
            False, took, self._plan.iterations_before(stretch_count), time, energy, reason
        )


def _covers(meter: Metered, times: Sequence[float], least: int = LEAST_READINGS) -> bool:
    """Tell whether a meter was read often enough from the first to the last of these times."""
    late = 2 * meter.period_s
    begun = meter.begin <= times[0] + late
    return begun and meter.until >= times[-1] - late and meter.between(times[0], times[-1]) >= least


class Turns:
    """The iterations of a run whose sequence is not the baseline's, one after the other.

    Each must have the sites of the baseline's phase, in the same order at their first time; how
    often they come may differ. ``marks`` are the run's boundaries so far.
    """

    def __init__(
        self, phase: IteratedPhase, anchor: str, parted: str, earlier_marks: Sequence[float]
    ) -> None:
        anchor_index = phase.sites.index(anchor)
        self._order = [*phase.sites[anchor_index:], *phase.sites[:anchor_index]]
        self._rare, self._most, self._parted = set(phase.rare), phase.iterations, parted
        self._anchor, self._this = anchor, [anchor]
        self._count = -1
        self.marks = list(earlier_marks)
        self.reason = ""

    def feed(self, time_s: float, site: str) -> bool:
        """Take an event of the phase; False where it cannot be aligned, and ``reason`` says why."""
        if site == self._anchor:
            if self._count >= 0 and self._this != self._order:
                self.reason = self._parted
                return False
            self._count += 1
            self._this = [site]
            if self._count >= self._most:
                self.reason = f"{self._parted}; the run has more iterations"
                return False
            self.marks.append(time_s)
        elif site not in self._order and site not in self._rare:
            self.reason = self._parted
            return False
        elif site in self._order and site not in self._this:
            self._this.append(site)
        return True


def replay(
    baseline: Baseline,
    run: RunEvents,
    readings: Sequence[tuple[float, float]] = (),
    *,
    within: float = WITHIN,
) -> EarlyStop:
    """Feed a recorded run in the order of its times, as it would have come."""
    pairing = Pairing(baseline, within=within, metered=bool(readings))
    ahead = 0
    for time_s, site in zip(run.times, run.sites, strict=True):
        while ahead < len(readings) and readings[ahead][0] <= time_s:
            pairing.read(*readings[ahead])
            ahead += 1
        stop = pairing.feed(time_s, site)
        if stop is not None:
            return stop
    for reading in readings[ahead:]:
        pairing.read(*reading)
    return pairing.ended()
