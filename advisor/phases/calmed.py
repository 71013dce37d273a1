"""A complete run without its own scatter, as far as others do not repeat it.

Pairing with a single run counts scatter twice: the run's and the baseline's. But the baseline is
known from its begin to its end, so that its iterations' course can be separated from their scatter.
Each class of a phase gets a curve over its events, as wide as cross-validation allows; what
lies far off the curve (a checkpoint inside of a loop, a longer iteration) stays as it was.
Iterations that are longer or shorter for a while, in bouts, say how little a few iterations of
another run tell of its rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.phases.arrays import Floats, Ints

_FEWEST = 16
"""Events of a class in a phase below which they stay as they were."""

_NARROWEST = 8
"""Events in the narrowest window of a curve."""

_OUTLYING = 4.0
"""Standard deviations off the curve from which a stretch is not scatter."""

_AROUND = 8
"""Events on each side by whose errors a window is chosen."""

_TREND, _SHORTEST_TREND = 4, 50
"""A quarter of a phase on each side tells how its iterations go in the long run, 50 at least."""

_BY_CHANCE = 1.28
"""Standard errors that the correlation of neighbours must have to count."""

_MOST_ALIKE = 0.95
"""Correlation of neighbouring iterations at most."""

_REPEATED = 0.25
"""Of the scatter of the complete run's iterations, what a run that repeats them leaves at most."""

_WIDER = 1.3
"""A wider window is taken where its error is at most so many times the least."""


@dataclass(frozen=True, slots=True)
class Calmed:
    """Stretches of a complete run (s or J): ``values`` as they were, ``curve`` without scatter.

    They are the same where there is no telling.
    """

    values: Floats
    curve: Floats

    @classmethod
    def of(cls, values: Floats, classes: Ints, phases: Sequence[Ints]) -> Calmed:
        """Return the curve of each class in each phase; ``phases`` are bounds of iterations."""
        curve = values.astype(float).copy()
        for bounds in phases:
            first, last = int(bounds[0]), int(bounds[-1])
            order = first + np.argsort(classes[first:last], kind="stable")
            splits = np.flatnonzero(np.diff(classes[order])) + 1
            for class_events in np.split(order, splits):
                if len(class_events) >= _FEWEST:
                    curve[class_events] = _without_scatter(values[class_events])
        return cls(values, curve)

    def beside(self, run: Floats, classes: Ints) -> Floats:
        """Return all stretches as a run beside them goes: its first ones are known.

        What scatters in the baseline counts as far as the run repeats it, class by class: all of
        it where the run's stretches go as the baseline's do, none where the two scatter apart.
        """
        k = len(run)
        kinds = int(classes.max()) + 1 if len(classes) else 0
        off = self.values - self.curve
        run_classes, curve = classes[:k], self.curve[:k]
        sums = np.bincount(run_classes, curve, kinds)
        ratio = np.bincount(run_classes, run, kinds) / np.where(sums > 0, sums, 1.0)
        rest = run - ratio[run_classes] * curve
        alike = np.bincount(run_classes, rest * ratio[run_classes] * off[:k], kinds)
        scatter_squares = np.bincount(run_classes, (ratio[run_classes] * off[:k]) ** 2, kinds)
        share = np.where(
            scatter_squares > 0, alike / np.where(scatter_squares > 0, scatter_squares, 1.0), 1.0
        )
        return np.asarray(self.curve + np.clip(share, 0.0, 1.0)[classes] * off)


def bouts_of(iterations: Floats) -> float:
    """Return how much more the sum of a phase's iterations (s) varies, for each, because neighbours
    are alike: a relative variance, off their trend.

    That of a first-order autoregression beside scatter of each by itself, from the autocovariances
    at lags one and two; 0 where the first may be chance. Single long iterations count as four
    standard deviations at most.
    """
    count = len(iterations)
    if count < _FEWEST:
        return 0.0
    near = iterations
    for _ in range(2):
        trend, _ = _local_line(near, max(count // _TREND, _SHORTEST_TREND))
        off = _winsorised(iterations / trend - 1)
        near = trend * (1 + off)
    off = off - off.mean()
    variance, lag_one, lag_two = (float(off[lag:] @ off[: count - lag]) / count for lag in range(3))
    if lag_one <= _BY_CHANCE * variance / math.sqrt(count):
        return 0.0
    return 2 * lag_one / (1 - min(max(lag_two / lag_one, 0.0), _MOST_ALIKE))


def repeats(run: Floats, complete: Floats) -> bool:
    """Tell whether a run's iterations (s) go up and down as those of the complete run do."""
    moves, ratio = _winsorised(np.log(complete)), np.log(run / complete)
    return float(ratio.var()) <= _REPEATED**2 * float(moves.var())


def _winsorised(values: Floats) -> Floats:
    """Return values with those far off their median at four standard deviations."""
    middle = float(np.median(values))
    # 1.4826: from a median absolute deviation to a standard deviation, where errors are normal.
    far = _OUTLYING * 1.4826 * float(np.median(np.abs(values - middle)))
    return np.asarray(np.clip(values, middle - far, middle + far))


def _without_scatter(values: Floats) -> Floats:
    """Return the curve through a class's events; what lies far off it as it was."""
    curve = _curve(values)
    for _ in range(2):
        off = values - curve
        deviation = 1.4826 * float(np.median(np.abs(off - np.median(off))))
        far = np.abs(off) > _OUTLYING * deviation
        curve = _curve(np.where(far, curve, values))
    return np.where(far, values, curve)


def _curve(values: Floats) -> Floats:
    """Return lines through the neighbours of each event, as many as its surroundings bear.

    The widest window whose error, each event left out in turn, is near the least around it.
    """
    count = len(values)
    mean = values.mean()
    fits = [(np.full(count, mean), ((values - mean) * count / (count - 1)) ** 2)]
    half = count
    while half >= _NARROWEST // 2:
        fits.append(_local_line(values, half))
        half = half // 4 if half == count else half // 2
    begin, end = _window(count, _AROUND)
    errors = np.stack([_sums(squares, begin, end) for _, squares in fits])
    widest = (errors <= _WIDER * errors.min(axis=0)).argmax(axis=0)
    return np.asarray(np.stack([curve for curve, _ in fits])[widest, np.arange(count)])


def _window(count: int, half: int) -> tuple[Ints, Ints]:
    """Return where the window of so many neighbours on each side begins and ends."""
    positions = np.arange(count)
    return np.maximum(positions - half, 0), np.minimum(positions + half + 1, count)


def _sums(values: NDArray[np.floating], begin: Ints, end: Ints) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[end] - sums[begin])


def _local_line(values: Floats, half: int) -> tuple[Floats, Floats]:
    """Return the line through each event's neighbours, and the squared error without it."""
    count = len(values)
    x = np.arange(count) - (count - 1) / 2
    begin, end = _window(count, half)
    n = end - begin
    mean_x, mean_y = (begin + end - count) / 2, _sums(values, begin, end) / n
    spread = n * (n.astype(float) ** 2 - 1) / 12  # of n numbers in a row
    slope = (_sums(x * values, begin, end) - n * mean_x * mean_y) / spread
    curve = mean_y + slope * (x - mean_x)
    leverage = 1 / n + (x - mean_x) ** 2 / spread
    return curve, ((values - curve) / (1 - leverage)) ** 2
