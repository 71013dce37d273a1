"""One response of runs: means per configuration, and what repeats say of the measurement's error.

Equation 4.4 of Endrei 2019 gives the error of a mean by Student's t, here with the spread of all
repeats pooled. Few repeats say little: two runs that happen to agree make no meter perfect, and
two that happen not to make none useless. What other workloads' repeats say, or else the assumed
error, therefore counts with them (:mod:`advisor.models.scatter`), and a configuration whose own
runs are far apart is unsteady: it keeps its error to itself.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, median
from typing import Any

import numpy as np

from advisor.core import student
from advisor.core.configuration import Configuration
from advisor.core.option import Z90
from advisor.models.normality import shapiro_wilk
from advisor.models.scatter import USUAL, Z95, Scatter

_LEAST_SIGMA = 0.001
"""No meter and no clock repeats a run better than this, whatever two lucky runs say."""
_UNSTEADY = 0.10
"""Runs of one configuration further apart than this fraction may make it unsteady."""
_BEYOND_OTHERS = 3.0
"""They do where they scatter by so many times what the others' repeats and the usual error do."""
_AGREE = 2.576
"""Two runs agree where they scatter by no more than so many errors: 99 of 100 pairs do. Time and
energy both must, so that at 90 % a fifth of all pairs would confirm nothing."""
_FEWEST_FOR_TEST, _FEWEST_FOR_NOTE, _IMPROBABLE = 3, 8, 0.01
"""Residuals that Shapiro-Wilk needs, those that a note needs, and the p value below which."""
_MOST_POINTS = 200
"""Most pairs of the Q-Q plot that are kept."""


@dataclass(frozen=True, slots=True)
class Response:
    """Mean log response per configuration, each of ``counts`` runs.

    ``sigma`` is the standard deviation of one run's log response from ``repeats`` degrees of
    freedom, or ``usual``'s where nothing was repeated; ``usual`` is what is known without them.
    ``residuals`` are how far repeated runs are off, in log space at one run's scale. ``unsteady``
    gives the standard error (log) of configurations whose runs are more than 10 % apart and scatter
    beyond what all others explain; they do not count for ``sigma``.
    ``counts`` may be less than one where jobs of the past stand for a run. ``agreed`` are those run
    more than once with runs as near as the error makes them.
    """

    log_mean: dict[Configuration, float]
    counts: dict[Configuration, float]
    sigma: float
    repeats: int
    usual: Scatter = USUAL
    residuals: tuple[float, ...] = ()
    unsteady: Mapping[Configuration, float] = field(default_factory=dict)
    agreed: frozenset[Configuration] = frozenset()
    first_hand: Mapping[Configuration, float] | None = None
    """The log means of runs that may confirm; None: all. Jobs of the past may not."""
    step_j: float = 0.0
    """What the meter counts in, J, where that is much of a run; 0 where it is not."""
    read_error: Mapping[Configuration, float] = field(default_factory=dict)
    """By how much (standard deviation, log) such a step alone makes one run's energy wrong."""

    def confirming(self, configuration: Configuration) -> float | None:
        """Return the log mean that can confirm a configuration, None where no run can."""
        means = self.log_mean if self.first_hand is None else self.first_hand
        return means.get(configuration)

    @property
    def run_sigma(self) -> float:
        """The standard deviation of one run's log response, by its repeats and what is usual."""
        return self.usual.with_own(self.sigma, self.repeats)

    def one_run(self, configuration: Configuration) -> float:
        """Return the standard deviation of one run's log there, with what its meter cannot show."""
        return math.hypot(self.run_sigma, self.read_error.get(configuration, 0.0))

    @property
    def typical_sigma(self) -> float:
        """That of half of the configurations: sweeps plan by it how often runs are repeated."""
        return median(map(self.one_run, self.log_mean))

    def error_known(self, configuration: Configuration) -> bool:
        """Tell whether repeats say how much a run there may be off, or most of it is the step's."""
        return self.scatter_seen or self.read_error.get(configuration, 0.0) > self.run_sigma

    @property
    def scatter_seen(self) -> bool:
        """Whether any repeat, here or of another workload, says how much a run may be off."""
        return self.repeats > 0 or self.usual.seen

    @property
    def quantile(self) -> float:
        """What a 90 % interval takes of ``run_sigma``."""
        if not self.scatter_seen:
            return Z90
        return student.quantile(round(self.usual.freedom) + self.repeats, 0.95)

    def noise(self, configuration: Configuration) -> float:
        """Return the standard error of a measured configuration's log mean."""
        usual = self.one_run(configuration) / math.sqrt(self.counts[configuration])
        return math.hypot(usual, self.unsteady.get(configuration, 0.0))

    def half_width(self, configuration: Configuration) -> float:
        """Return half the 90 % interval of a measured configuration's mean, in log space."""
        error = self.one_run(configuration)
        usual = self.quantile * error / math.sqrt(self.counts[configuration])
        if configuration not in self.unsteady:
            return usual
        own_quantile = student.quantile(max(1, round(self.counts[configuration]) - 1), 0.95)
        return usual + own_quantile * self.unsteady[configuration]

    def without(self, odd: Container[Configuration]) -> Response:
        """Return the response with some configurations left out."""
        rest = {c: v for c, v in self.log_mean.items() if c not in odd}
        return replace(self, log_mean=rest)

    def measurement(self) -> dict[str, Any]:
        """Return what repeats say of the error, as plain JSON.

        ``error_pct`` is the 95 % half width of one run (equation 4.4 for one sample);
        ``shapiro_wilk`` the normality test of the residuals (None of fewer than three);
        ``q_q`` pairs of a standard normal quantile and a standardised residual.
        """
        quantile = student.quantile(self.repeats, 0.975) if self.repeats else Z95
        ordered = np.sort(np.array(self.residuals)) / self.sigma
        normal = NormalDist()
        places = [normal.inv_cdf((i + 0.5) / len(ordered)) for i in range(len(ordered))]
        shown = np.unique(np.linspace(0, len(ordered) - 1, _MOST_POINTS).astype(int))
        if not len(ordered):
            shown = np.array([], dtype=int)
        return {
            "error_pct": 100.0 * math.expm1(quantile * self.sigma),
            "repeats": self.repeats,
            "assumed": not self.repeats,
            "unsteady": len(self.unsteady),
            "shapiro_wilk": self._shapiro(),
            "q_q": [[round(places[i], 4), round(float(ordered[i]), 4)] for i in shown],
        }

    def not_normal(self) -> float | None:
        """Return how improbable normal residuals are, None when they may well be normal."""
        test = self._shapiro()
        if test is None or len(self.residuals) < _FEWEST_FOR_NOTE or test["p"] >= _IMPROBABLE:
            return None
        return test["p"]

    def _shapiro(self) -> dict[str, float] | None:
        values = np.array(self.residuals)
        if len(values) < _FEWEST_FOR_TEST or not float(np.ptp(values)) > 0:
            return None
        w, p = shapiro_wilk(values)
        return {"w": w, "p": p}


def response(values: Sequence[tuple[Configuration, float]], usual: Scatter) -> Response:
    """Return the response of single runs; ``usual`` is what is known of one's scatter before."""
    groups: dict[Configuration, list[float]] = {}
    for configuration, value in values:
        groups.setdefault(configuration, []).append(math.log(value))
    means = {c: float(np.mean(v)) for c, v in groups.items()}
    counts = {c: float(len(v)) for c, v in groups.items()}
    repeated = {c: v for c, v in groups.items() if len(v) > 1}
    unsteady = _unsteady(repeated, usual)
    steady = {c: v for c, v in repeated.items() if c not in unsteady}
    repeats = sum(len(v) - 1 for v in steady.values())
    sigma = usual.sigma
    if repeats:
        squares = sum((x - means[c]) ** 2 for c, v in steady.items() for x in v)
        sigma = max(_LEAST_SIGMA, math.sqrt(squares / repeats))
    result = Response(
        means,
        counts,
        sigma,
        repeats,
        usual,
        tuple(r for c, v in steady.items() for r in _residuals(v, means[c])),
        unsteady,
    )
    near = _AGREE * max(usual.sigma, result.run_sigma)
    agreed = frozenset(c for c, v in steady.items() if float(np.std(v, ddof=1)) <= near)
    return replace(result, agreed=agreed)


def _unsteady(
    repeated: Mapping[Configuration, Sequence[float]], usual: Scatter
) -> dict[Configuration, float]:
    """Return the standard errors of means whose runs scatter beyond what the error explains.

    The error is what the others' repeats and the usual one say. Two runs alone are a disturbed
    one more often than a machine that scatters so; three are the machine, as a disturbed one among
    them was left out.
    """
    squares = {c: (len(v) - 1) * float(np.var(v, ddof=1)) for c, v in repeated.items()}
    total, count = sum(squares.values()), sum(len(v) - 1 for v in repeated.values())
    unsteady = {}
    for c, logs in repeated.items():
        freedom = len(logs) - 1
        # Without its own squares: one that scatters would raise the measure it is held against.
        others_variance = (usual.freedom * usual.sigma**2 + total - squares[c]) / (
            usual.freedom + count - freedom
        )
        scattered = squares[c] / freedom > _BEYOND_OTHERS**2 * others_variance
        if (
            scattered
            and max(logs) - min(logs) > math.log1p(_UNSTEADY)
            and (freedom == 1 or count > freedom)
        ):
            unsteady[c] = math.sqrt(squares[c] / freedom / len(logs))
    return unsteady


def _residuals(logs: Sequence[float], mean: float) -> list[float]:
    """Return independent residuals at one run's scale: of two runs their difference only."""
    if len(logs) == 2:
        # Both are as far from their mean: two residuals would be one counted twice.
        return [(logs[0] - logs[1]) / math.sqrt(2)]
    return [(v - mean) / math.sqrt(1 - 1 / len(logs)) for v in logs]
