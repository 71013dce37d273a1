"""A signal inside of an iteration, from readings slower than it: folding.

A reading is an integral: the energy between two of them is spread over stretches of iterations.
All iterations are scaled to 0..1, deviating ones left out, and a curve is fitted whose integrals
over those stretches are what was read (Servat, Llort, Gimenez, Labarta, "Detailed performance
analysis using coarse grain sampling", PROPER 2009). The curve is a periodic Gaussian process
around the mean (Rasmussen and Williams 2006, ch. 5). How smooth it is, how much it varies and how
noisy the readings are is not chosen but weighed: each combination counts by how likely it makes the
readings, so the band holds what few readings leave open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # scipy.stats takes a second more to load

from advisor.core.codec import JsonForm
from advisor.one_thread import on_one_thread
from advisor.phases.arrays import Floats

KEEPS_STEP = "the meter keeps step with the iteration: only the mean is known"
TOO_FEW = "{} readings do not show the inside of an iteration: only the mean is known"
_BINS = 100
"""Parts of an iteration, each with a power of its own."""
_ESTIMATED = 4
"""What readings must tell besides the curve: mean, noise, swing and smoothness."""
_LEAST_FREEDOM = 1.0
"""Degrees of freedom that are left at least."""
_STRAY = 5.0
"""Deviations from the median, in median absolute deviations, of an iteration that is left out."""

_LEAST_ITERATIONS = 8
"""Fewer whole iterations, or fewer readings, give the mean only."""
_MOST_ABOVE = 3.0
"""Times the largest power read that the curve and its band may show."""
_LITTLE = 0.03
"""Of the mean: a standard deviation that is no reason to call a curve unknown."""
_DIGITS = 6
"""Decimal places in which a counter's last digit is looked for."""
_REACHES = (0.02, 0.06, 0.2, 0.6)
"""Parts of an iteration over which a curve may stay alike."""
_STEPS = 16
"""Noises, and swings, that are weighed against each other."""
_EXACT = 1e-4
"""Of the mean: no reading is more exact."""
_LEAST_SWING, _MOST_SWING = 1e-3, 3.0
"""Of the mean: standard deviations that power inside an iteration may have."""
_SPREAD = 0.25
"""Readings must begin all over the iteration: the longest part of it where none does."""


@dataclass(frozen=True, slots=True)
class FoldedSignal(JsonForm):
    """The mean iteration: ``value`` at places ``x`` from 0 to 1, with a 90 % band.

    ``per_iteration`` is the integral over a mean iteration; ``kept`` of ``iterations`` count.
    """

    JSON = (
        "x",
        "value",
        "low",
        "high",
        "answer",
        "per_iteration",
        "iteration_s",
        "iterations",
        "kept",
    )

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


@on_one_thread
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
    count = int(use.sum())
    answer = f"folded from {count} readings over {int(good.sum())} iterations"
    largest = _MOST_ABOVE * float(power.max())
    value, deviation, bends = _curve(share, power - mean, seconds, mean, _last_digit(total))
    value = (value + mean).clip(0.0, largest)
    # A reading that shows how the curve bends no longer shows how far readings scatter about it.
    freedom = max(count - _ESTIMATED - bends, _LEAST_FREEDOM)
    half = float(stdtrit(freedom, 0.95)) * deviation
    in_step = _in_step(first[use], last[use])
    if in_step or _unknown(value, deviation, mean):
        answer = KEEPS_STEP if in_step else TOO_FEW.format(count)
        value = np.full(_BINS, mean)
        half = np.maximum(half, abs(mean))
    low, high = (value - half).clip(0.0), (value + half).clip(0.0, largest)
    centres = (np.arange(_BINS) + 0.5) / _BINS
    return FoldedSignal(
        centres, value, low, high, answer, mean * usual, usual, int(good.sum()), len(lengths)
    )


def _in_step(first: Floats, last: Floats) -> bool:
    """Tell whether readings always begin and end at the same places of the iteration."""
    places = np.sort(np.concatenate([first, last]) % 1.0)
    # The thinnest part of the circle: where no boundary of a reading ever falls.
    bins = np.bincount((places * 40).astype(int).clip(0, 39), minlength=40)
    few = bins < 0.1 * len(places) / 40
    # Twice around, for the longest gap may lie across the iteration's end.
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
        iteration = np.floor(place).astype(int)
        part = np.minimum((place - iteration)[:, None], edges[1:])
        covered = np.maximum(part - edges[:-1], 0.0)
        start_s = (marks[iteration] - marks[0]) / _BINS
        return np.asarray(start_s[:, None] + lengths[iteration][:, None] * covered)

    spread = until(last) - until(first)
    return np.asarray(spread / spread.sum(axis=1, keepdims=True))


def _unknown(value: Floats, deviation: Floats, mean: float) -> bool:
    """Tell whether a curve leaves more open than it shows, and more than a little."""
    deviation_rms = float(np.sqrt(np.mean(deviation**2)))
    return deviation_rms > max(float(np.std(value)), _LITTLE * abs(mean))


def _last_digit(total: Floats) -> float:
    """Return what a counter's readings are multiples of, in its unit; 0 where that is not seen."""
    steps = np.rint(np.diff(total) * 10**_DIGITS)
    if np.abs(steps).max() >= 2**53:
        return 0.0
    return float(np.gcd.reduce(steps.astype(np.int64))) / float(10**_DIGITS)


def _kernels() -> list[Floats]:
    """Return how curves of several smoothnesses co-vary between bins: Matern's, periodic."""
    x = np.arange(_BINS) / _BINS
    chord = np.sin(np.pi * np.abs(x[:, None] - x)) / np.pi
    kernels = []
    for reach in _REACHES:
        scaled = chord / reach
        kernels += [np.exp(-scaled), (1 + np.sqrt(3) * scaled) * np.exp(-np.sqrt(3) * scaled)]
    return kernels


def _curve(
    share: Floats, power: Floats, seconds: Floats, mean: float, digit: float
) -> tuple[Floats, Floats, float]:
    """Return the curve around its mean, its standard deviation, and how many parameters it is.

    All over what may be true: a curve's parameters are the trace of what turns readings into it.

    The curve is periodic: an iteration follows another. Readings (``power``, of which ``mean`` was
    taken) weigh by their length, for what a meter's last digit is worth in power falls with it.
    """
    weight = np.sqrt(seconds / seconds.mean())
    a, y = share * weight[:, None], power * weight
    normal, right, squares, n = a.T @ a, a.T @ y, float(y @ y), len(y)
    # The difference of two rounded readings has the variance digit^2 / 6.
    least = max(digit / np.sqrt(6) / float(seconds.mean()), _EXACT * abs(mean), 1e-300)
    most = max(float(np.sqrt(squares / n)), least)
    noise = np.geomspace(least, 2 * most, _STEPS)[None, :, None]
    swing = np.geomspace(_LEAST_SWING, _MOST_SWING, _STEPS) * max(abs(mean), least)
    prior = -np.log1p((swing / max(abs(mean), least)) ** 2)
    ratio = (swing[:, None, None] / noise) ** 2
    likelihoods, means, variances, parameters = [], [], [], []
    for kernel in _kernels():
        # One decomposition for each kernel: with it every noise and swing costs divisions only.
        lower = np.linalg.cholesky(kernel + 1e-9 * np.eye(_BINS))
        values, vectors = np.linalg.eigh(lower.T @ normal @ lower)
        values = values.clip(0.0)
        turned = vectors.T @ (lower.T @ right)
        shrunk = 1 / (1 + ratio * values)
        parameters.append((ratio * values * shrunk).sum(axis=2).ravel())
        residual = squares - (ratio * shrunk * turned**2).sum(axis=2)
        likelihood = -n * np.log(noise[..., 0]) + 0.5 * np.log(shrunk).sum(axis=2)
        likelihoods.append(
            likelihood - 0.5 * residual.clip(0.0) / noise[..., 0] ** 2 + prior[:, None]
        )
        basis = lower @ vectors
        means.append(((ratio * shrunk * turned) @ basis.T).reshape(-1, _BINS))
        variances.append(((swing[:, None, None] ** 2 * shrunk) @ (basis**2).T).reshape(-1, _BINS))
    weights = np.concatenate([v.ravel() for v in likelihoods])
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    curves = np.concatenate(means)
    curve = weights @ curves
    spread = weights @ (np.concatenate(variances) + (curves - curve) ** 2)
    return curve, np.sqrt(spread), float(weights @ np.concatenate(parameters))
