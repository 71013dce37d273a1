"""A whole run's time or energy from the part that was seen, paired with a complete run.

Elapsed, plus what the baseline still had of each class times that class's ratio. Classes not seen
yet take the ratio of all that was seen, give or take 30 % or half the spread of the ratios; in
energy, what a class drawn as the others leaves open (Student's t), since power differs too. How
far the seen classes scatter is taken from the iterations, as they come: their residuals may be
alike from one to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.core.student import quantile
from advisor.phases.arrays import Floats, Ints

CONFIDENCE = 0.90
"""Probability that an interval holds."""
UNSEEN = 0.30
"""Relative 90 % half width of what was never seen, at least."""

_UNLIKE, _UNLIKE_WEIGHT = math.sqrt(2) * UNSEEN / 1.645, 3
"""How unlike classes are in energy before any is seen, as a standard deviation that counts like so
many classes: power is taken to be as unknown as time."""

_MOST_UNLIKE = 0.6
"""Relative half width of the energy of what was never seen, at most."""

_PRIOR, _PRIOR_WEIGHT = 0.04, 6.0
"""Scatter of an iteration that counts like so many seen ones: a few that happen to agree are no
proof that all do."""

DRIFT = 0.0125
"""Relative half width of what is to come of classes seen: a run may move away from the baseline
later, by heat or neighbours, without a sign of it in its first iterations."""

_FEW = 8
"""A class in fewer iterations scatters like all classes together, not only as it was seen to."""

_MANY = 30
"""Degrees of freedom of what is known from the complete run."""

_DISTURBED = 0.10
"""Scatter of iterations above which their likeness is taken at its upper bound."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two runs of one program side by side, stretch by stretch.

    ``base`` has all of its stretches (s or J), ``run`` those that were seen; ``classes`` and
    ``units`` (the iteration, counted through the run) of each of the baseline's.
    """

    base: Floats
    run: Floats
    classes: Ints
    units: Ints

    @property
    def seen(self) -> int:
        """How many stretches were seen."""
        return len(self.run)


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """A whole run's time or energy with its 90 % half width, and the share of it never seen.

    ``scatter`` is the part of the half width that more iterations make smaller.
    """

    total: float
    half: float
    scatter: float
    unseen_share: float
    iteration_scatter: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 90 % interval."""
        return self.total - self.half, self.total + self.half


def extrapolate(
    paired: Paired,
    elapsed: float,
    number_share: float = 0.0,
    *,
    energy: bool = False,
    resolution: float = 0.0,
    bouts: float = 0.0,
) -> Extrapolated | None:
    """Return the whole run's total; None while nothing is known yet.

    ``elapsed`` is what was spent so far. ``number_share`` is the relative half width of the number
    of iterations to come, where other runs had other numbers. ``energy``: classes differ in power
    as well as in time, and what was never seen is as uncertain as the classes seen are unlike.
    ``resolution`` is how much of what was seen the meter may have put behind a boundary or before,
    ``bouts`` the relative standard error that iterations leave which are longer for a while.
    """
    k = paired.seen
    kinds = int(paired.classes.max()) + 1 if len(paired.classes) else 0
    seen_class, left_class = paired.classes[:k], paired.classes[k:]
    base_seen = np.bincount(seen_class, paired.base[:k], kinds)
    run_seen = np.bincount(seen_class, paired.run, kinds)
    base_left: Floats = np.bincount(left_class, paired.base[k:], kinds).astype(float)
    if base_seen.sum() <= 0 or run_seen.sum() <= 0:
        return None
    overall = run_seen.sum() / base_seen.sum()
    seen_mask = base_seen > 0
    ratio = np.where(seen_mask, run_seen / np.where(seen_mask, base_seen, 1.0), overall).astype(
        float
    )
    to_come = ratio * base_left
    unseen = float(to_come[~seen_mask].sum())
    spread = float(np.ptp(ratio[seen_mask])) / 2 / overall
    if energy:
        squares = float((((ratio[seen_mask] - ratio[seen_mask].mean()) / overall) ** 2).sum())
        freedom = _UNLIKE_WEIGHT + int(seen_mask.sum()) - 1
        weights = base_seen / base_seen.sum()
        deviation = math.sqrt((_UNLIKE_WEIGHT * _UNLIKE**2 + squares) / freedom)
        unlike = _quantile(freedom) * deviation * math.sqrt(1 + float((weights**2).sum()))
        spread = max(spread, min(unlike, _MOST_UNLIKE))
    unseen_half = max(UNSEEN, spread) * unseen
    scatter, per_iteration = _scatter(paired, ratio, base_left, seen_mask)
    scatter = math.hypot(scatter, _quantile(_MANY) * bouts * float(to_come[seen_mask].sum()))
    number_half = number_share * float(to_come[seen_mask].sum())
    goes_on = seen_mask & (base_left > 0)
    times_over = base_left[goes_on].sum() / base_seen[goes_on].sum() if goes_on.any() else 0.0
    meter_half = resolution * float(times_over)
    total = elapsed + float(to_come.sum())
    drift_half = DRIFT * float(to_come[seen_mask].sum())
    parts = (scatter, unseen_half, number_half, meter_half, drift_half)
    half = float(np.linalg.norm(parts))
    share = float(base_left[~seen_mask].sum() / paired.base.sum())
    return Extrapolated(total, half, scatter, share, per_iteration)


def _scatter(
    paired: Paired, ratio: Floats, base_left: Floats, seen_mask: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the half width that scatter leaves, and the relative scatter of one iteration."""
    k = paired.seen
    seen_class, units = paired.classes[:k], paired.units[:k]
    expected = ratio[seen_class] * paired.base[:k]
    residual = paired.run - expected
    kinds = len(ratio)
    counts = np.bincount(seen_class, minlength=kinds)
    width = int(units.max()) + 1 if k else 1
    both = np.sort(seen_class * width + units)  # np.unique takes some times longer
    in_units = np.bincount(both[np.diff(both, prepend=-1) > 0] // width, minlength=kinds)
    often = seen_mask & (in_units >= _FEW)
    seldom = seen_mask & ~often & (base_left > 0)
    # Classes that come in many iterations: what each iteration adds to the error, all together.
    base_seen = np.bincount(seen_class, paired.base[:k], kinds)
    weight = np.where(often, base_left / np.where(base_seen > 0, base_seen, 1.0), 0.0)
    bulk = often[seen_class]
    numbers, unit = np.unique(units, return_inverse=True)
    adds = np.bincount(unit, weight[seen_class] * residual, len(numbers))
    moves = np.bincount(unit, np.where(bulk, residual, 0.0), len(numbers))
    sizes = np.bincount(unit, np.where(bulk, expected, 0.0), len(numbers))
    count = np.bincount(unit, (weight > 0)[seen_class], len(numbers))
    used = (count > 0) & (sizes > 0)
    n = int(used.sum())
    variance, per_iteration, quantile = 0.0, 0.0, _quantile(_MANY)
    if n >= 3:
        relative = moves[used] / sizes[used]
        squares = float((relative**2).sum())
        shrunk = (_PRIOR_WEIGHT * _PRIOR**2 + squares) / (_PRIOR_WEIGHT + n - 1)
        per_iteration = float(np.sqrt(shrunk))
        alike = likeness(relative, careful=per_iteration > _DISTURBED)
        future_units = paired.units[k:]
        ahead = np.bincount(
            future_units - future_units.min() if len(future_units) else future_units,
            np.where(often[paired.classes[k:]], ratio[paired.classes[k:]] * paired.base[k:], 0.0),
        )
        more = shrunk * (n - 1) / squares if squares > 0 else 1.0
        variance += alike * more * float((adds[used] ** 2).sum()) * n / (n - 1)
        variance += alike * per_iteration**2 * float((ahead**2).sum())
        quantile = _quantile(n - 1)
    elif (base_left[often] > 0).any():
        return np.inf, 0.0
    # Classes seen a few times only: each event by itself, with the scatter of all events.
    if seldom.any():
        few = _of_few(paired, ratio, base_left, seldom, residual, expected, counts, per_iteration)
        variance += few
    return quantile * float(np.sqrt(variance)), per_iteration


def _quantile(freedom: int) -> float:
    """Return how many standard errors a 90 % half width has (Student's t)."""
    return quantile(max(freedom, 1), (1 + CONFIDENCE) / 2)


def _of_few(
    paired: Paired,
    ratio: Floats,
    base_left: Floats,
    seldom: NDArray[np.bool_],
    residual: Floats,
    expected: Floats,
    counts: Ints,
    per_iteration: float,
) -> float:
    """Return the variance of classes seen a few times, whose own scatter is hardly known."""
    k = paired.seen
    seen_class, left_class = paired.classes[:k], paired.classes[k:]
    kinds = len(ratio)
    size = np.bincount(seen_class, expected, kinds) / np.maximum(counts, 1)
    relative = residual / np.where(size > 0, size, 1.0)[seen_class]
    freedom = np.maximum(counts - 1, 0)
    total = np.bincount(seen_class, relative**2, kinds)
    common = total.sum() / freedom.sum() if freedom.sum() else UNSEEN**2
    common += per_iteration**2  # what its iteration has in common comes on top
    class_variance = (_PRIOR_WEIGHT * common + total) / (_PRIOR_WEIGHT + freedom)
    squares_seen = np.bincount(seen_class, paired.base[:k] ** 2, kinds)
    sums_seen = np.bincount(seen_class, paired.base[:k], kinds)
    squares_left = np.bincount(left_class, paired.base[k:] ** 2, kinds)
    estimate = (
        (ratio * base_left) ** 2 * squares_seen / np.where(sums_seen > 0, sums_seen, 1.0) ** 2
    )
    future = ratio**2 * squares_left
    return float((class_variance * (estimate + future))[seldom].sum())


def likeness(residuals: Floats, *, careful: bool = False) -> float:
    """Return how many times larger the variance of a sum is than if residuals were independent.

    That of a first-order autoregression, (1 + f) / (1 - f), where the lag-one correlation f is
    corrected for the bias of few values (Marriott and Pope, 1954). ``careful``: f is taken one
    and a quarter standard errors higher. Never below 1.
    """
    n = len(residuals)
    centred = residuals - residuals.mean()
    square_sum = float((centred**2).sum())
    if n < 4 or square_sum <= 0:
        return 1.0
    f = float((centred[1:] * centred[:-1]).sum()) / square_sum
    f += (1 + 4 * f) / n
    if careful:
        f += 1.28 * np.sqrt(max(1 - min(f, 1.0) ** 2, 0.0) / n) + 1 / n
    f = min(max(f, 0.0), 0.95)
    return (1 + f) / (1 - f)
