"""Laws and a Gaussian process for what they miss, averaged over both; shared and own errors.

As :mod:`advisor.models.process` does for one size: every pair of a law and a setting counts by its
prior weight times the probability it gave the runs. A first pass with a few settings keeps the
laws worth weighing. An option's own error is that of its ratio to the job's largest configuration;
the rest of its error is what the job's options share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.models.base import Matrix, Vector
from advisor.models.disturbances import Disturbances
from advisor.scaling.base import ScaledResponse, SizedPlaces
from advisor.scaling.residual import (
    Covariances,
    ResidualAxes,
    ResidualScale,
    noise_variance,
    scales,
)

_MOST_LAWS, _SCREENS, _MOST_SCALES = 120, 6, 120
"""Laws that all settings weigh; settings of the first pass; settings that are worth keeping."""
_BLOCK = 16
"""Rows of a triangular system that are solved at once, by the inverse of their block."""
_MOST_PAIRS, _LEAST_WEIGHT = 60, 1e-3
"""Pairs of law and setting that predict, and the least weight of one beside the best."""
_DISTURBED_SIGMA, _DISTURBED_SHARE = 0.5, 0.02
_LONGER, _SHORTER = 2.0, 0.2
_MOST_DISTURBED = 6
_TRUST, _MOST_SURPRISE = 12.0, 9.0
"""As in the model of one size (:mod:`advisor.models.process`): how far off disturbed runs are, how
many, which way, at most one in six; what held-out errors count beside the process' own."""

EvaluateLaws = Callable[[SizedPlaces, NDArray[np.intp]], Matrix]
"""Log responses (m, number of rows) of laws by their numbers, up to a constant each."""


@dataclass(frozen=True, slots=True)
class WeighedLaws:
    """Pairs of a law and a setting with their weights; ``disturbed`` (n,) runs hardly count."""

    law: NDArray[np.intp]
    setting: NDArray[np.intp]
    weight: Vector
    disturbed: NDArray[np.bool_]

    def by_setting(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield each setting with its pairs: what needs an inverse is worked out once for them."""
        for setting in np.unique(self.setting):
            yield int(setting), np.flatnonzero(self.setting == setting)


class ScalingProcess:
    """One response of n runs: weigh what may explain it, then predict."""

    def __init__(
        self,
        what: str,
        places: SizedPlaces,
        log_y: Vector,
        log_time: Vector,
        counts: Vector,
        sigma: float,
        evaluate: EvaluateLaws,
        log_prior: Vector,
    ) -> None:
        self._what, self._places, self._log_y, self._sigma = what, places, log_y, sigma
        self._log_time, self._counts = log_time, counts
        self._evaluate = evaluate
        self._axes = ResidualAxes.of(places)
        self._scales = scales(what, places, sigma)
        self._covariances = Covariances.between(self._axes, places, places)
        everything = np.arange(len(log_prior))
        self._laws, self._prior = everything, log_prior
        self._residuals = self._centred(evaluate(places, everything))
        self.weighed = self._weigh()
        self._inverses = {
            setting: np.linalg.inv(self._covariance(self._scales[setting], self.weighed.disturbed))
            for setting, _ in self.weighed.by_setting()
        }
        self._own_factor, self._run_factor = self._factors()

    def _centred(self, laws: Matrix) -> Matrix:
        off = self._log_y[:, None] - laws
        self._levels: Vector = off.mean(axis=0)
        centred: Matrix = off - self._levels
        return centred

    def _covariance(self, scale: ResidualScale, disturbed: NDArray[np.bool_]) -> Matrix:
        noise = noise_variance(scale, self._log_time, self._counts, self._sigma)
        noise = noise + np.where(disturbed, _DISTURBED_SIGMA**2, 0.0)
        return self._covariances.sum(scale) + np.diag(noise)

    def _weigh(self) -> WeighedLaws:
        calm = np.zeros(len(self._log_y), dtype=bool)
        if len(self._laws) > _MOST_LAWS:
            step = max(1, len(self._scales) // _SCREENS)
            first = np.full(len(self._laws), -np.inf)
            for scale in self._scales[step // 2 :: step]:
                first = np.maximum(first, self._log_weights(scale, calm))
            best = np.argsort(-first)[:_MOST_LAWS]
            self._laws, self._prior = self._laws[best], self._prior[best]
            self._residuals, self._levels = self._residuals[:, best], self._levels[best]
        # The settings are chosen with few of the laws, then both are weighed together.
        few = np.arange(min(len(self._laws), _MOST_LAWS // 4))
        if len(self._scales) > _MOST_SCALES:
            likely = [float(self._log_weights(s, calm, few).max()) for s in self._scales]
            best = np.argsort(-np.array(likely))[:_MOST_SCALES]
            self._scales = [self._scales[i] for i in sorted(best)]
        disturbed = calm
        while True:
            weighed = self._weigh_all(disturbed)
            more = self._disturbed(weighed)
            if not more.any():
                return weighed
            disturbed = disturbed | more

    def _log_weights(
        self,
        scale: ResidualScale,
        disturbed: NDArray[np.bool_],
        rows: NDArray[np.intp] | slice = slice(None),
    ) -> Vector:
        factor = np.linalg.cholesky(self._covariance(scale, disturbed))
        white = whitened(factor, self._residuals[:, rows])
        weight: Vector = -0.5 * (white**2).sum(axis=0) - np.log(np.diag(factor)).sum()
        return weight + self._prior[rows]

    def _weigh_all(self, disturbed: NDArray[np.bool_]) -> WeighedLaws:
        table = np.array([self._log_weights(s, disturbed) for s in self._scales])
        flat = table.reshape(-1)
        best = np.argsort(-flat)[:_MOST_PAIRS]
        weight = np.exp(flat[best] - flat[best[0]])
        best = best[weight > _LEAST_WEIGHT]
        weight = weight[weight > _LEAST_WEIGHT]
        setting, law = np.unravel_index(best, table.shape)
        return WeighedLaws(law, setting, weight / weight.sum(), disturbed)

    def _disturbed(self, weighed: WeighedLaws) -> NDArray[np.bool_]:
        """Return the one run that the others make most improbable, if it is disturbed."""
        n = len(self._log_y)
        none = np.zeros(n, dtype=bool)
        if int(weighed.disturbed.sum()) + 1 > n // _MOST_DISTURBED:
            return none
        error, variance = self._left_out(weighed)
        calm = np.exp(-0.5 * error**2 / variance) / np.sqrt(variance)
        wide = variance + _DISTURBED_SIGMA**2
        rough = np.exp(-0.5 * error**2 / wide) / np.sqrt(wide)
        odds = _DISTURBED_SHARE / (1 - _DISTURBED_SHARE) * rough / np.maximum(calm, 1e-300)
        if self._what == "time":
            odds = odds * np.where(error > 0, _LONGER, _SHORTER)
        odds = np.where(weighed.disturbed, 0.0, odds)
        worst = int(np.argmax(odds))
        none[worst] = odds[worst] > 1.0
        return none

    def _left_out(
        self, weighed: WeighedLaws, folds: Sequence[NDArray[np.intp]] | None = None
    ) -> tuple[Vector, Vector]:
        """Return each run's error as those of other folds predict it, and that error's variance.

        Without ``folds`` each run is a fold.
        """
        n = len(self._log_y)
        error, variance = np.zeros(n), np.zeros(n)
        for setting, pairs in weighed.by_setting():
            weights = weighed.weight[pairs]
            inverse = np.linalg.inv(self._covariance(self._scales[setting], weighed.disturbed))
            pulled = inverse @ (self._residuals[:, weighed.law[pairs]] @ weights)
            if folds is None:
                # Left out one by one in closed form (Rasmussen and Williams 2006, section 5.4.2).
                run_variance = 1 / np.diag(inverse)
                error += run_variance * pulled
                variance += weights.sum() * run_variance
                continue
            for rows in folds:
                # For several at once, the inverse's block takes its diagonal's place.
                block = np.linalg.inv(inverse[np.ix_(rows, rows)])
                error[rows] += block @ pulled[rows]
                variance[rows] += weights.sum() * np.diag(block)
        return error, variance

    def _factors(self) -> tuple[float, float]:
        """Return what widens an option's own error, and a run's.

        Configurations left out tell the one; disturbed runs only widen the other.
        """
        disturbed = self.weighed.disturbed
        _, number = np.unique(self._places.configurations(), axis=0, return_inverse=True)
        folds = [np.flatnonzero(number.reshape(-1) == i) for i in range(int(number.max()) + 1)]
        error, variance = self._left_out(self.weighed, folds if len(folds) > 2 else None)
        squares = np.minimum(error**2 / variance, _MOST_SURPRISE)[~disturbed]
        calm = math.sqrt((_TRUST + float(squares.sum())) / (_TRUST + len(squares)))
        return calm, Disturbances.of(disturbed, error).wider

    def best_law(self) -> int:
        """Return the number of the most probable law."""
        total = np.bincount(self.weighed.law, self.weighed.weight)
        return int(self._laws[int(np.argmax(total))])

    def node_counts(self) -> Vector:
        """Return the nodes of the runs."""
        return self._places.nodes

    def predict(self, places: SizedPlaces, log_time: Vector | None = None) -> ScaledResponse:
        """Return the response of a new run at m places; ``log_time`` is known for powers."""
        m = len(places)
        mean, shared, own_error, noise = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
        jobs = places.jobs()
        for job in range(int(jobs.max()) + 1 if m else 0):
            rows = np.flatnonzero(jobs == job)
            job_log_time = None if log_time is None else log_time[rows]
            job_response = self._predict_job(places.some(rows), job_log_time)
            mean[rows], shared[rows], own_error[rows], noise[rows] = job_response
        return ScaledResponse(mean, shared, own_error, noise)

    def _predict_job(
        self, places: SizedPlaces, log_time: Vector | None
    ) -> tuple[Vector, float, Vector, Vector]:
        """Return one job's means, the shared error, and each option's own and its noise.

        An option's own error is that of its ratio to the largest configuration. What is left of
        the options' variances, on average, is what they share.
        """
        weighed, m = self.weighed, len(places)
        base = places.reference()
        cross = Covariances.between(self._axes, places, self._places)
        base_cross = Covariances.between(self._axes, places, places.some(np.array([base])))
        alone = Covariances.of_each(self._axes, places)
        numbers = np.unique(weighed.law)
        laws = self._evaluate(places, self._laws[numbers])
        means = np.empty((m, len(weighed.weight)))
        total_variance, own_variance, noise = np.zeros(m), np.zeros(m), np.zeros(m)
        for setting, pairs in weighed.by_setting():
            scale, weights, law = self._scales[setting], weighed.weight[pairs], weighed.law[pairs]
            reach = cross.sum(scale)
            pull = reach @ self._inverses[setting]
            off = self._levels[law] + pull @ self._residuals[:, law]
            means[:, pairs] = laws[:, np.searchsorted(numbers, law)] + off
            variance = alone.sum(scale) - (pull * reach).sum(axis=1)
            # The variance of the difference from the base, whose own is 0.
            along = base_cross.sum(scale)[:, 0] - pull @ reach[base]
            total_variance += weights.sum() * variance
            own_variance += weights.sum() * np.maximum(0.0, variance - 2 * along + variance[base])
            times = means[:, pairs] if log_time is None else log_time[:, None]
            noise += (noise_variance(scale, times, 1.0, self._sigma) * weights).sum(axis=1)
        mean = means @ weighed.weight
        total_variance += (means - mean[:, None]) ** 2 @ weighed.weight
        ratio = means - means[base]
        own_variance += (ratio - (mean - mean[base])[:, None]) ** 2 @ weighed.weight
        own_variance[base] = 0.0
        shared = math.sqrt(
            max(0.0, float(np.mean(total_variance - own_variance)), float(total_variance.min()) / 4)
        )
        # So much noise that it and the own error come to a run's widened variance together.
        wider = self._own_factor
        single = np.sqrt(
            wider**2 * (own_variance + noise) * self._run_factor**2 - wider**2 * own_variance
        )
        return mean, shared, np.sqrt(own_variance) * wider, single


def whitened(factor: NDArray[np.floating], residuals: Matrix) -> Matrix:
    """Return the solution (n, m) of a lower triangular system (n, n), block by block."""
    white = np.empty_like(residuals)
    for start in range(0, len(factor), _BLOCK):
        rows = slice(start, start + _BLOCK)
        rest = residuals[rows] - factor[rows, :start] @ white[:start]
        white[rows] = np.linalg.inv(factor[rows, rows]) @ rest
    return white
