"""A signal inside of an iteration, from readings slower than it: folding.

A reading is an integral: the energy between two of them is spread over stretches of iterations.
All iterations are scaled to 0..1, deviating ones left out, and a curve is fitted whose integrals
over those stretches are what was read (Servat, Llort, Gimenez, Labarta, "Detailed performance
analysis using coarse grain sampling", PROPER 2009; the penalty on curvature is Whittaker's
smoother, its weight by generalised cross-validation, Craven and Wahba 1979).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from advisor.phases.arrays import Floats

KEEPS_STEP = "the meter keeps step with the iteration: only the mean is known"
_BINS = 100
"""Parts of an iteration, each with a power of its own."""
_NORMAL = 1.645
"""Standard deviations of a 90 % half width."""
_STRAY = 5.0
"""Deviations from the median, in median absolute deviations, of an iteration that is left out."""

_LEAST_ITERATIONS = 8
"""Fewer whole iterations, or fewer readings, give the mean only."""
_SPREAD = 0.25
"""Readings must begin all over the iteration: the longest part of it where none does."""


@dataclass(frozen=True, slots=True)
class FoldedSignal:
    """The mean iteration: ``value`` at places ``x`` from 0 to 1, with a 90 % band.

    ``per_iteration`` is the integral over a mean iteration; ``kept`` of ``iterations`` count.
    """

    x: Floats
    value: Floats
    low: Floats
    high: Floats
    answer: str
    per_iteration: float
    iteration_s: float
    kept: int
    iterations: int


def deviating(lengths: Floats) -> NDArray[np.bool_]:
    """Return which iterations differ too much from the usual length to be folded with the rest."""
    middle = np.median(lengths)
    scatter = 1.4826 * np.median(np.abs(lengths - middle))
    return np.asarray(np.abs(lengths - middle) > _STRAY * max(scatter, 0.002 * middle))


def fold(times: Floats, total: Floats, marks: Floats) -> FoldedSignal | None:
    """Fold a counter's readings by the iterations' begins; None where too few of either overlap.

    ``times`` (s) and ``total`` (what the counter shows, without falls) of the readings, ascending;
    ``marks`` (s) are the iterations' begins and the last one's end.
    """
    lengths = np.diff(marks)
    good = ~deviating(lengths)
    if good.sum() < _LEAST_ITERATIONS or len(times) < _LEAST_ITERATIONS:
        return None
    place = np.interp(times, marks, np.arange(len(marks)))
    first, last = place[:-1], place[1:]
    # A reading counts if every iteration it touches does.
    bad = np.concatenate([[0], np.cumsum(~good)])
    touched = np.minimum(np.ceil(last).astype(int), len(good))
    inside = (times[:-1] >= marks[0]) & (times[1:] <= marks[-1]) & (last > first)
    use = inside & (bad[touched] - bad[np.floor(first).astype(int).clip(0, len(good))] == 0)
    if use.sum() < _LEAST_ITERATIONS:
        return None
    seconds = (times[1:] - times[:-1])[use]
    power = (total[1:] - total[:-1])[use] / seconds
    share = _overlaps(first[use], last[use], marks)
    mean = float((power * seconds).sum() / seconds.sum())
    usual = float(np.median(lengths[good]))
    centres = (np.arange(_BINS) + 0.5) / _BINS
    if _in_step(first[use], last[use]):
        flat = np.full(_BINS, mean)
        off = float(np.std(power)) * _NORMAL
        half = np.full(_BINS, max(off, abs(mean)))
        answer, value, low = KEEPS_STEP, flat, flat - half
        high = flat + half
    else:
        value, deviation = _curve(share, power, seconds)
        low, high = value - _NORMAL * deviation, value + _NORMAL * deviation
        answer = f"folded from {int(use.sum())} readings over {int(good.sum())} iterations"
    return FoldedSignal(
        centres, value, low, high, answer, mean * usual, usual, int(good.sum()), len(lengths)
    )


def _in_step(first: Floats, last: Floats) -> bool:
    """Tell whether readings always begin and end at the same places of the iteration."""
    places = np.sort(np.concatenate([first, last]) % 1.0)
    # The thinnest part of the circle: where no boundary of a reading ever falls.
    bins = np.bincount((places * 40).astype(int).clip(0, 39), minlength=40)
    few = bins < 0.1 * len(places) / 40
    doubled = np.concatenate([few, few])
    longest = run = 0
    for empty in doubled:
        run = run + 1 if empty else 0
        longest = max(longest, run)
    return min(longest, 40) / 40 > _SPREAD


def _overlaps(first: Floats, last: Floats, marks: Floats) -> Floats:
    """Return how much of each reading's time lies in each bin of the iteration; rows add up to 1.

    ``first`` and ``last`` are the numbers of the iterations in which readings begin and end, with
    the part of it that has passed.
    """
    edges = np.arange(_BINS + 1) / _BINS
    lengths = np.append(np.diff(marks), 0.0)

    def until(place: Floats) -> Floats:
        whole = np.floor(place).astype(int)
        part = np.minimum((place - whole)[:, None], edges[1:])
        covered = np.maximum(part - edges[:-1], 0.0)
        before = (marks[whole] - marks[0]) / _BINS
        return np.asarray(before[:, None] + lengths[whole][:, None] * covered)

    spread = until(last) - until(first)
    return np.asarray(spread / spread.sum(axis=1, keepdims=True))


def _curve(share: Floats, power: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Return the curve and its standard deviation: least squares with a penalty on its steps.

    The curve is periodic: an iteration follows another. Readings weigh by their length, for what a
    meter's last digit is worth in power falls with it.
    """
    weight = np.sqrt(seconds / seconds.mean())
    a, y = share * weight[:, None], power * weight
    steps = np.eye(_BINS) - np.roll(np.eye(_BINS), 1, axis=1)
    penalty = steps.T @ steps
    normal, right = a.T @ a, a.T @ y
    ridge = 1e-9 * np.trace(normal) / _BINS * np.eye(_BINS)
    values, vectors = eigh(normal, penalty + 1e-6 * np.eye(_BINS))
    turned = vectors.T @ right
    squares, n = float(y @ y), len(y)
    best, chosen = np.inf, 1.0
    for weight_of_steps in np.geomspace(1e-9, 1e3, 73) * np.trace(normal) / _BINS:
        shrunk = values / (values + weight_of_steps)
        fitted = turned / (values + weight_of_steps)
        left = squares - 2 * float(turned @ fitted) + float((values * fitted**2).sum())
        score = n * max(left, 0.0) / max(n - 1.4 * float(shrunk.sum()), 1e-9) ** 2
        if score < best:
            best, chosen = score, float(weight_of_steps)
    solved = np.linalg.inv(normal + chosen * (penalty + 1e-6 * np.eye(_BINS)) + ridge)
    curve = solved @ right
    residual = y - a @ curve
    freedom = max(n - float(np.trace(solved @ normal)), 1.0)
    noise = float(residual @ residual) / freedom
    return curve, np.sqrt(np.maximum(noise * np.diag(solved), 0.0))
