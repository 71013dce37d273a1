"""Several values of one setting within one run: they are set in turn, a few iterations each.

The order is there and back again, so that a drift counts as much for each value. Iterations in
which a value had just been set are left out. Of the others each stay at a value (a visit) is
compared with the same iterations of the complete run; what one value takes against another is what
least squares find over all visits, beside a drift that is even in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.student import quantile
from advisor.phases.arrays import Floats, Ints
from advisor.phases.extrapolate import CONFIDENCE, DRIFT
from advisor.phases.metered import Metered
from advisor.phases.pairing import MARGIN, NUMBER, WITHIN, Baseline, Turns
from advisor.phases.stretches import LEAST_ITERATIONS

LEAST_VALUES = 4
"""Fewer values, the job's own among them, are no curve."""

SETTLE_S = 0.5
"""From when a value is set until its iterations count. Chosen, not measured: how long a clock takes
differs much between devices and clocks (Velicka et al., arXiv 2502.20075)."""

_VISIT_S = 0.5
"""A visit takes this long at least."""
_VISIT_READINGS = 10
"""Readings of the meter in a visit, at least."""
_VISIT_ITERATIONS = 2
_ROUNDS = 2
"""Visits of each value, at least: there and back again."""
_WIDEST = 2.0
_ROOM = 0.9
"""Of the complete run's iterations, what the fewest visits may take."""
_LOOP = 0.5
"""Of the complete run's time, what its iterations take at least."""


@dataclass(frozen=True, slots=True)
class _Visit:
    """A stay at a value: the iterations that count, when, and what they took against the
    complete run's."""

    value: int
    first: int
    behind: int
    log_time: float
    log_energy: float
    variance: float
    """Of either, at least: what the scatter of its iterations leaves."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """What a whole run would take at a value: time (s) or energy (J), and its 90 % half width."""

    total: float
    half: float
    scatter: float
    """What of the half width more visits make smaller."""
    base: float
    """What the complete run took, by the same meter."""


@dataclass(frozen=True, slots=True)
class ValuePoint:
    """What is known of one value: the whole run's time and energy, by so many iterations."""

    value: int
    iterations: int
    time: WholeRun
    energy: WholeRun | None


class Visits:
    """Takes a run's events and readings in their order, and says which value is due.

    ``wanted`` is the number of the value to be set now, 0 for the job's own; whoever sets it calls
    ``changed``. ``done``: enough is known of each value in ``values``. ``reason`` says why nothing
    comes of it, "" as long as something may.
    """

    def __init__(
        self, baseline: Baseline, count: int, *, within: float = WITHIN, metered: bool = True
    ) -> None:
        """``count`` values there are, the job's own included; of many a short run visits fewer."""
        self._within = within
        self._meter = Metered() if metered else None
        self.reason, self.done = "", False
        self.values: tuple[int, ...] = ()
        self.visits: list[_Visit] = []
        self._sites = baseline.events.sites
        self._events = 0
        self._exact = True
        self._turns: Turns | None = None
        self._since: float | None = None
        self._first: int | None = None
        if metered and not baseline.metered:
            self.reason = "the complete run was not metered from begin to end"
            return
        phase = max(baseline.phases, key=lambda p: p.end_s - p.begin_s, default=None)
        if phase is None:
            self.reason = "the complete run has no iterations"
            return
        self._phase = phase
        exact = baseline.exact
        # The last iteration has no known end: what the program does behind them is in it.
        loop = phase.bounds[:-1]
        times = baseline.events.times
        self._span_s = times[-1] - times[0]
        self._base_s = _iterations(exact.time.curve, loop)
        self._loop_share = float(exact.time.values[loop[0] : loop[-1]].sum())
        self._loop_share /= self._span_s
        if self._loop_share < _LOOP:
            self.reason = f"its iterations are {100 * self._loop_share:.0f} % of the complete run"
            return
        period_s = 0.0
        if metered and exact.energy is not None and baseline.meter is not None:
            period_s = baseline.meter.period_s
            joules = exact.energy.values
            self._base_j = _iterations(exact.energy.curve, loop)
            self._span_j = float(joules.sum())
            self._loop_share_j = float(joules[loop[0] : loop[-1]].sum())
            self._loop_share_j /= self._span_j
        self._plan(count, period_s)

    def _plan(self, count: int, period_s: float) -> None:
        """Choose how long a visit is, and as many values as the run has room for."""
        iteration_s = float(np.median(self._base_s))
        self._settle_s = max(SETTLE_S, 2 * period_s)
        self._visit_s = max(_VISIT_S, _VISIT_READINGS * period_s)
        long = max(math.ceil(self._visit_s / iteration_s), _VISIT_ITERATIONS)
        each = math.ceil(self._settle_s / iteration_s) + 1 + long
        room = int(_ROOM * self._phase.iterations) // (_ROUNDS * each)
        if room < min(count, LEAST_VALUES) or count < 2:
            self.reason = (
                f"it has {self._phase.iterations} iterations of {iteration_s:.3g} s, too few for "
                f"{min(count, LEAST_VALUES)} values"
            )
            return
        numbers = np.unique(np.linspace(0, count - 1, min(count, room)).round().astype(int))
        self.values = tuple(int(number) for number in numbers)
        self._long = max(long, math.ceil(LEAST_ITERATIONS / _ROUNDS))

    @property
    def wanted(self) -> int | None:
        """The value that is due; None before there is a plan, or without one."""
        return self._value(len(self.visits)) if self.values else None

    def _value(self, number: int) -> int:
        """Return the value of the visit with this number: there, and back again."""
        turn, place = divmod(number, len(self.values))
        return self.values[-1 - place if turn % 2 else place]

    def changed(self, time_s: float) -> None:
        """Take note that what is wanted was set, by then."""
        self._since, self._first = time_s, None

    def read(self, time_s: float, energy_j: float) -> None:
        """Take a reading of the counter of joules."""
        if self._meter is not None:
            self._meter.feed(time_s, energy_j)

    def feed(self, time_s: float, site: str) -> None:
        """Take an event."""
        if self.reason or self.done:
            return
        index, sites = self._events, self._sites
        self._events += 1
        alike = index < len(sites) and site == sites[index]
        self._exact = self._exact and alike
        if self._turns is None:
            first = int(self._phase.bounds[0])
            if index < first and not alike:
                self.reason = f"event {index + 1} is {site!r}, the complete run's is not"
            if index < first:
                return
            why = "its iterations are not those of the complete run"
            self._turns = Turns(self._phase, sites[first], why, ())
        before = len(self._turns.marks)
        if not self._turns.feed(time_s, site):
            # behind its last iteration a run has other sites: it has said what it could
            ended = len(self._turns.marks) >= 0.98 * self._phase.iterations
            self.reason = "" if ended else self._turns.reason
            self._since = None
        elif len(self._turns.marks) > before:
            self._iteration(time_s)

    def _iteration(self, time_s: float) -> None:
        """Begin or end a visit, where it is time to, with the iteration that begins now."""
        assert self._turns is not None
        marks = self._turns.marks
        number = len(marks) - 1
        if self._since is None or number >= len(self._base_s):
            return
        if self._first is None:
            if time_s >= self._since + self._settle_s:
                self._first = number
            return
        took_s = time_s - marks[self._first]
        if number - self._first < self._long or took_s < self._visit_s:
            return
        visit = self._visited(self._first, number)
        if visit is None:  # the meter lags behind: a longer visit
            return
        value = self._value(len(self.visits))
        self.visits.append(replace(visit, value=value))
        if self.wanted == value:  # where the order turns, the value stays
            self._first = number
        else:
            self._since = self._first = None
        whole_rounds, rest = divmod(len(self.visits), len(self.values))
        if whole_rounds >= _ROUNDS and not rest:
            self.done = self._known(MARGIN)

    def _visited(self, first: int, behind: int) -> _Visit | None:
        assert self._turns is not None
        marks = self._turns.marks
        begin_s, end_s = marks[first], marks[behind]
        base_s = self._base_s[first:behind]
        ratios = np.diff(marks[first : behind + 1]) / base_s
        variance = float(ratios.var(ddof=1) / ratios.mean() ** 2 / len(ratios))
        log_time = math.log((end_s - begin_s) / float(base_s.sum()))
        log_energy = 0.0
        if self._meter is not None:
            # By what was read within the visit alone: readings around it have other values in them.
            times, joules = self._meter.readings
            inside = np.flatnonzero((times >= begin_s) & (times <= end_s))
            if len(inside) < _VISIT_READINGS // 2 or self._meter.stopped:
                return None
            last, one = inside[-1], inside[0]
            power = float((joules[last] - joules[one]) / (times[last] - times[one]))
            if power <= 0:
                return None
            spent_j = power * (end_s - begin_s)
            log_energy = math.log(spent_j / float(self._base_j[first:behind].sum()))
        return _Visit(-1, first, behind, log_time, log_energy, variance)

    def ended(self) -> None:
        """Take note that the run has come to its end."""
        if self.reason or self.done:
            return
        rounds = len(self.visits) // len(self.values)
        if rounds < _ROUNDS:
            self.reason = "it ended before each value was visited there and back"
        elif not self._known(1.0):
            self.reason = f"it ended before each value was known within {100 * self._within:g} %"
        else:
            self.done = True

    def _known(self, margin: float) -> bool:
        """Tell whether all is known within what is asked for, its scatter within a part of it."""
        parts = [p for point in self._points() for p in (point.time, point.energy) if p is not None]
        return all(p.scatter <= margin * self._within * p.total for p in parts)

    def points(self) -> list[ValuePoint]:
        """Return what is known of each value but the job's own, once it is done.

        What the run does around its iterations leaves some less well known than visits can tell;
        those that it leaves twice as wide as is asked for are left out.
        """
        most = _WIDEST * self._within
        return [
            point
            for point in self._points()
            if all(p is None or p.half <= most * p.total for p in (point.time, point.energy))
        ]

    def _points(self) -> list[ValuePoint]:
        visits = self.visits
        columns = {value: i for i, value in enumerate(self.values)}
        design = np.zeros((len(visits), len(self.values) + 1))
        middle = np.array([(v.first + v.behind) / 2 for v in visits])
        for row, visit in enumerate(visits):
            design[row, columns[visit.value]] = 1.0
        design[:, -1] = (middle - middle.mean()) / max(float(np.ptp(middle)), 1.0)
        least = float(np.mean([v.variance for v in visits]))
        times = _effects(design, np.array([v.log_time for v in visits]), least)
        joules = None
        if self._meter is not None:
            joules = _effects(design, np.array([v.log_energy for v in visits]), least)
        points = []
        for value, column in columns.items():
            if column:
                counted = sum(v.behind - v.first for v in visits if v.value == value)
                energy = None
                if joules is not None:
                    energy = self._whole(joules, column, self._span_j, self._loop_share_j)
                time = self._whole(times, column, self._span_s, self._loop_share)
                points.append(ValuePoint(value, counted, time, energy))
        return points

    def _whole(
        self, effects: tuple[Floats, Floats, int], column: int, base: float, loop_share: float
    ) -> WholeRun:
        """Return a whole run's time or energy at a value, by the complete run's (``base``).

        Around the iterations it may take as much as the complete run, or as much more as they do.
        """
        means, covariance, freedom = effects
        variance = covariance[column, column] + covariance[0, 0] - 2 * covariance[column, 0]
        error = quantile(freedom, (1 + CONFIDENCE) / 2) * math.sqrt(max(variance, 0.0))
        ratio = math.exp(means[column] - means[0])
        loop = base * loop_share * ratio
        around, around_half = (
            base * (1 - loop_share) * part / 2 for part in (1 + ratio, abs(ratio - 1))
        )
        scatter = loop * math.expm1(error)
        number_half = 0.0 if self._exact else NUMBER * loop
        half = math.hypot(scatter, DRIFT * loop, number_half, around_half)
        return WholeRun(loop + around, half, scatter, base)


def _iterations(stretches: Floats, bounds: Ints) -> Floats:
    """Return the sum of the stretches of each iteration."""
    return np.asarray(np.add.reduceat(stretches[: bounds[-1]], bounds[:-1]))


def _effects(design: Floats, logs: Floats, least: float) -> tuple[Floats, Floats, int]:
    """Return the coefficients that explain logarithms best, their covariance and its freedom.

    ``least``: the variance of one logarithm, which a few that happen to agree do not show.
    """
    means, *_ = np.linalg.lstsq(design, logs, rcond=None)
    freedom = len(logs) - design.shape[1]
    left = logs - design @ means
    variance = max(float(left @ left) / freedom, least)
    return np.asarray(means), np.asarray(variance * np.linalg.inv(design.T @ design)), freedom
