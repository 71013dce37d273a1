"""Which point is used, and which is tried, given a prior.

Both stay within ``max_slowdown`` and save at least ``min_saving``: what is used at the policy's
confidence, what is tried more likely than not (and within ``max_slowdown`` at a confidence of its
own, by every way that foretells applications about as well). Of those, the trial is the point of
greatest expected improvement. What is used unseen must be trusted by these ways as a trial is,
and no other method may think it likelier than not that it breaks a bound; and as few applications
as :func:`~advisor.core.trial_points.needed_unseen` forbids show nothing at that confidence. A trial
that comes out unlike its intervals (``Prior.expects``) is the last: the workload is like none of
the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.core import student
from advisor.core.trial_points import WORTH, needed_unseen
from advisor.prior.fit import Prior
from advisor.prior.surface import Array


@dataclass(frozen=True)
class TrialBounds:
    """What a point must keep: fractions, and the one-sided confidence it must keep it at."""

    max_slowdown: float
    min_saving: float = 0.03
    confidence: float = 0.90
    trial_confidence: float = 0.75
    min_applications: int = 5

    @property
    def ln(self) -> tuple[float, float]:
        """Upper ends of ln time and ln energy."""
        return math.log1p(self.max_slowdown), math.log1p(-self.min_saving)


def usable(prior: Prior, bounds: TrialBounds) -> int | None:
    """Return the point that saves most among those good enough to be used unseen, if any."""
    if prior.applications < needed_unseen(bounds.confidence):
        return None
    good = _points_within(prior, bounds, bounds.confidence)
    for way in prior.doubts:
        good &= _points_within(way, bounds, bounds.trial_confidence)
    slowdown, saving = bounds.ln
    for time, energy in prior.others:
        good &= (time <= slowdown) & (energy <= saving)
    return int(np.argmin(np.where(good, prior.mean[1], np.inf))) if good.any() else None


def _points_within(prior: Prior, bounds: TrialBounds, confidence: float) -> npt.NDArray[np.bool_]:
    high = prior.mean + prior.scale * student.quantile(prior.dof, confidence)
    slowdown, saving = bounds.ln
    enough = prior.applications >= bounds.min_applications
    allowed: npt.NDArray[np.bool_] = (high[0] <= slowdown) & (high[1] <= saving) & enough
    return allowed


def trial(
    prior: Prior,
    bounds: TrialBounds,
    best_ln_energy: float = 0.0,
    tried_points: Collection[int] = (),
) -> int | None:
    """Return the point to try, None when none is worth it.

    ``best_ln_energy`` is the best that runs have confirmed, against the job's own point;
    ``tried_points`` are not tried again. An improvement below :data:`WORTH` is not worth a trial.
    """
    slowdown, saving = bounds.ln
    scale, dof = prior.scale, prior.dof
    by_way = [below(p.dof, (slowdown - p.mean[0]) / p.scale[0]) for p in (prior, *prior.doubts)]
    keeps = np.min(by_way, axis=0)
    saves = below(dof, (saving - prior.mean[1]) / scale[1])
    good = (keeps >= bounds.trial_confidence) & (saves > 0.5)
    good[list(tried_points)] = False
    if not good.any() or prior.applications < bounds.min_applications:
        return None
    gain = expected_improvement(prior.mean[1], scale[1], dof, best_ln_energy) * keeps
    best = int(np.argmax(np.where(good, gain, -np.inf)))
    return best if gain[best] > WORTH else None


def expected_improvement(mean: Array, scale: Array, dof: float, best: float) -> Array:
    """Return the mean of ``max(best - x, 0)`` for Student's t of location, scale, dof > 1."""
    u = (best - mean) / scale
    density = np.exp(student.log_peak(dof) - 0.5 * (dof + 1) * np.log1p(u**2 / dof))
    improvement: Array = scale * (u * below(dof, u) + (dof + u**2) / (dof - 1) * density)
    return improvement


def below(freedom: float, t: Array) -> Array:
    """Return the probabilities of values below t (n,) by Student's t; ``freedom`` > 0."""
    size = np.abs(t)
    far = student.is_far(freedom, size)
    beyond = np.empty_like(size)
    beyond[far] = student.tail(freedom, size[far])
    beyond[~far] = 0.5 - student.inner(freedom, size[~far])
    share: Array = np.where(t < 0, beyond, 1.0 - beyond)
    return share
