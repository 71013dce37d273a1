"""What each stretch of a run spent, where one reading of the meter spans several of them.

Power that is even between two readings would give all classes of a short iteration nearly the
same power, and where the mix of classes changes later their ratios to the baseline were wrong.
The power of each class is what explains the readings best; what that leaves of a reading is spread
evenly over it.
"""

from __future__ import annotations

import numpy as np

from advisor.phases.arrays import Floats, Ints
from advisor.phases.metered import Metered

_LEAST = 0.02
"""Of the time: classes below it take the mean power."""

_UNLIKE = 0.5
"""Relative standard deviation of classes' powers, before a reading is seen."""


def energies(meter: Metered, edges: Floats, classes: Ints) -> Floats:
    """Return the joules of each stretch between ``edges`` (s), which ``classes`` number.

    The joules until the first and the last edge are the meter's.
    """
    even = np.diff(meter.at(edges))
    times, joules = meter.readings
    inside = (times >= edges[0]) & (times <= edges[-1])
    t, j = times[inside], joules[inside]
    spans = np.diff(edges)
    seconds = np.bincount(classes, spans)
    large = np.flatnonzero(seconds >= _LEAST * seconds.sum())
    if len(large) < 2 or len(t) < 3 * len(large) + 2:
        return even
    had = np.stack(
        [
            np.diff(np.interp(t, edges, np.concatenate([[0.0], np.cumsum(spans * (classes == c))])))
            for c in large
        ],
        axis=1,
    )
    mean = float((j[-1] - j[0]) / (t[-1] - t[0]))
    off = np.diff(j) - np.diff(t) * mean
    watts: Floats = np.full(len(seconds), mean)
    watts[large] = mean + _class_offsets(had, off, _UNLIKE * mean)
    modelled = np.maximum(watts, 0.0)[classes] * spans
    until = np.concatenate([[0.0], np.cumsum(modelled)])
    points = np.concatenate([edges[:1], t, edges[-1:]])
    rest = meter.at(points) - meter.at(edges[:1]) - np.interp(points, edges, until)
    return np.asarray(modelled + np.diff(np.interp(edges, points, rest)))


def _class_offsets(had: Floats, off: Floats, unlike: float) -> Floats:
    """Return how far each class's power (W) is off the mean: what explains readings best.

    Classes that readings cannot tell apart stay near the mean (ridge regression).
    """
    normal, right = had.T @ had, had.T @ off
    noise = float((off**2).mean())
    apart: Floats = np.zeros(len(right))
    # Twice: the first noise has in it what the classes explain.
    for _ in range(2):
        penalty = noise / unlike**2 if unlike > 0 else np.inf
        if not 0 < penalty < np.inf:
            return apart
        apart = np.asarray(np.linalg.solve(normal + penalty * np.eye(len(right)), right))
        noise = float(((off - had @ apart) ** 2).mean())
    return apart
