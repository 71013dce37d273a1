"""Responses as sums of terms of the parameters: the manual's forward selection, Extra-P's form.

A term is a product of powers and logarithms of the axes that vary; its coefficients are those of
weighted least squares on relative errors. Terms are selected forward from a constant: the one that
lowers the error of runs left out most, while it does so by enough and its coefficient could hardly
be chance among so many candidates (Bonferroni); a plain 5 % accepts a term that fits noise. Where
the application's profiles counted instructions, the terms of these are selected from first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from advisor.core.student import beyond
from advisor.errors import InputError
from advisor.models.base import Matrix, Vector
from advisor.scaling.base import NODES, ScaledResponse, ScalingForecast, SizedPlaces, SizedRuns

Factor = tuple[float, int]
"""A power and a power of the base-two logarithm."""
Term = tuple[tuple[str, Factor], ...]
"""A product of factors by the axis they are of."""

_EXPONENTS = (
    0.25,
    1 / 3,
    0.5,
    2 / 3,
    0.75,
    1.0,
    1.25,
    4 / 3,
    1.5,
    5 / 3,
    1.75,
    2.0,
    2.25,
    7 / 3,
    2.5,
    2.75,
    3.0,
)
"""Extra-P's powers (Calotoiu et al. 2013); its logarithms are to the powers 0, 1 and 2."""
_MAIN = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Powers of a parameter that are tried."""
_CHANCE, _BETTER = 0.05, 0.9
"""Probability of a term by chance, over all candidates; the error it must leave, as a share."""
_MOST_TERMS, _MOST_SIGMA = 6, 3.0
"""Terms beside the constant; the most an error (log) is worth stating."""
_DRIFT = 0.15
"""Least shared error per unit of log distance: least squares knows no other law than its own."""


@dataclass(frozen=True, slots=True)
class TermFit:
    """Terms with coefficients, their covariance, and one run's relative standard deviation."""

    terms: tuple[Term, ...]
    coefficients: Vector
    covariance: Matrix
    sigma: float
    largest: Vector
    """The largest trained value of every parameter, and of nodes."""

    def predict(self, places: SizedPlaces) -> ScaledResponse:
        """Return the response, in log space, with shared and own errors."""
        basis = np.column_stack([_values(term, places) for term in self.terms])
        value = basis @ self.coefficients
        # Beyond the runs a sum of terms may fall to 0 or below, which has no logarithm.
        floor = 1e-3 * float(np.median(np.abs(value)))
        value = np.maximum(value, max(floor, 1e-12))
        scaled = basis / value[:, None]
        shared, own_error = np.empty(len(places)), np.empty(len(places))
        jobs = places.jobs()
        beyond = np.maximum(0.0, np.log(places.growing() / self.largest)).sum(axis=1)
        for job in np.unique(jobs):
            rows = np.flatnonzero(jobs == job)
            base = scaled[rows[places.some(rows).reference()]]
            # What an option's error has in common with the base's drops out of their ratio.
            contrast = scaled[rows] - base
            variance = float(base @ self.covariance @ base)
            shared[rows] = math.hypot(math.sqrt(variance), _DRIFT * float(beyond[rows][0]))
            own_error[rows] = np.sqrt(np.einsum("ij,jk,ik->i", contrast, self.covariance, contrast))
        noise = np.full(len(places), min(self.sigma, _MOST_SIGMA))
        return ScaledResponse(
            np.log(value),
            np.minimum(shared, _MOST_SIGMA),
            np.minimum(own_error, _MOST_SIGMA),
            noise,
        )


def select_terms(places: SizedPlaces, log_y: Vector, stages: Sequence[Sequence[Term]]) -> TermFit:
    """Select terms forward from a constant and fit them.

    A stage's candidates are tried until none of the stage before it makes anything better.
    """
    chosen: list[Term] = [()]
    y = np.exp(log_y)
    # Columns over y, fitted to ones: least squares of relative errors.
    columns = {t: _values(t, places) / y for t in [(), *itertools.chain.from_iterable(stages)]}
    # Two runs at least for each term, the constant included.
    room = max(1, min(_MOST_TERMS, len(y) // 2 - 1))
    for candidates in stages:
        chosen = _selected(columns, chosen, candidates, room)
    basis = _stack(columns, chosen)
    coefficients = np.asarray(np.linalg.lstsq(basis, np.ones(len(y)), rcond=None)[0], np.float64)
    freedom = max(1, len(y) - len(chosen))
    residual = 1.0 - basis @ coefficients
    sigma = math.sqrt(float(residual @ residual) / freedom)
    covariance = np.asarray(sigma**2 * np.linalg.pinv(basis.T @ basis), np.float64)
    return TermFit(tuple(chosen), coefficients, covariance, sigma, places.growing().max(axis=0))


def _selected(
    columns: Mapping[Term, Vector], chosen: list[Term], candidates: Sequence[Term], room: int
) -> list[Term]:
    """Return the chosen terms with those that make them better, ``room`` beside the constant."""
    best = _left_out_errors(_stack(columns, chosen)[None])[0]
    while len(chosen) <= room:
        unused_terms = [term for term in candidates if term not in chosen]
        if not unused_terms:
            break
        errors = _left_out_errors(
            np.array([_stack(columns, [*chosen, term]) for term in unused_terms])
        )
        least = int(np.argmin(errors))
        trial = [*chosen, unused_terms[least]]
        if not errors[least] <= _BETTER * best:
            break
        if _chance(_stack(columns, trial)) * np.isfinite(errors).sum() > _CHANCE:
            break
        best, chosen = errors[least], trial
    return chosen


def _stack(columns: Mapping[Term, Vector], terms: Sequence[Term]) -> Matrix:
    return np.column_stack([columns[t] for t in terms])


def _left_out_errors(bases: NDArray[np.float64]) -> Vector:
    """Return the root mean square relative error of runs left out, one by one, for each basis.

    ``bases`` are (m, n runs, k terms); infinite where a basis' terms depend on each other.
    """
    span, singular, _ = np.linalg.svd(bases, full_matrices=False)
    # The tolerance of numpy's matrix_rank.
    least = singular[:, 0] * max(bases.shape[1:]) * np.finfo(np.float64).eps
    residual = 1.0 - (span @ span.sum(axis=1)[:, :, None])[:, :, 0]
    # A run left out is off by its residual over one less its leverage: nothing is fitted again.
    free = np.maximum(1e-6, 1.0 - (span**2).sum(axis=2))
    error: Vector = np.sqrt(np.mean((residual / free) ** 2, axis=1))
    return np.where(singular[:, -1] > least, error, np.inf)


def _chance(basis: Matrix) -> float:
    """Return how probable so large a last coefficient is if its term has no effect."""
    n, k = basis.shape
    if n <= k:
        return 1.0
    coefficients = np.linalg.lstsq(basis, np.ones(n), rcond=None)[0]
    residual = 1.0 - basis @ coefficients
    variance = float(residual @ residual) / (n - k) * np.linalg.pinv(basis.T @ basis)[-1, -1]
    if variance <= 0:
        return 0.0
    return 2 * beyond(n - k, abs(float(coefficients[-1])) / math.sqrt(variance))


def _axes(places: SizedPlaces) -> dict[str, Vector]:
    named = {p: column for p, column in zip(places.parameters, places.sizes.T, strict=True)}
    named |= {NODES: places.nodes, "ranks": places.ranks, "cores": places.cores, **places.counted}
    return {**named, "GHz": places.freq_khz / 1e6}


def _values(term: Term, places: SizedPlaces) -> Vector:
    value, axes = np.ones(len(places)), _axes(places)
    for axis, (power, logs) in term:
        x = np.maximum(axes[axis], 1e-9)
        value = value * x**power * np.log2(np.maximum(x, 1.0)) ** logs
    return value


def varying(places: SizedPlaces) -> list[str]:
    """Return the axes that have more than one value; ranks only where cores do not follow them.

    What profiles count follows from the axes and is none.
    """
    axes = _axes(places)
    names = [n for n, x in axes.items() if n not in places.counted and len(set(x.tolist())) > 1]
    if "ranks" in names and "cores" in names:
        names.remove("ranks")
    return names


def term_text(term: Term) -> str:
    """Return a term as people write it: ``n^2*log2(n)/cores``."""
    above: list[str] = []
    below: list[str] = []
    for axis, (power, logs) in term:
        if power:
            exponent = "" if abs(power) == 1 else f"^{abs(power):.4g}"
            (above if power > 0 else below).append(axis + exponent)
        if logs:
            above.append(f"log2({axis})" + (f"^{logs}" if logs > 1 else ""))
    text = "*".join(above) or "1"
    return text + "".join(f"/{b}" for b in below)


def _divisors(names: Sequence[str]) -> list[Term]:
    """Return what may divide a term: nothing, and products of what computes it."""
    return [
        tuple((n, (-1.0, 0)) for n in some)
        for count in range(len(names) + 1)
        for some in itertools.combinations(names, count)
    ]


def _of_counts(places: SizedPlaces) -> list[Term]:
    """Return the counted instructions and the terms of their law, each divided by what computes.

    Terms that grow alike stand there once.
    """
    below = [n for n in varying(places) if n not in places.parameters]
    growths: dict[str, Vector] = {}
    for name, column in places.counted.items():
        growth = column / column[0]
        if np.ptp(growth) > 0 and not any(np.allclose(growth, g) for g in growths.values()):
            growths[name] = growth
    return [((name, (1.0, 0)), *divisor) for name in growths for divisor in _divisors(below)]


class _Selected:
    """What both models share: candidates, then time and energy fitted each alone."""

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]

    def candidates(self, places: SizedPlaces) -> list[Term]:
        """Return the terms to select from."""
        raise NotImplementedError

    def forecast(self, runs: SizedRuns, places: SizedPlaces) -> ScalingForecast:
        """Predict time and energy at places of any size."""
        stages = [_of_counts(runs.places), self.candidates(runs.places)]
        if not stages[1]:
            raise InputError("nothing varies in these runs", hint="measure several sizes")
        time = select_terms(runs.places, runs.log_time, stages)
        terms = tuple(term_text(t) for t in time.terms)
        if runs.log_energy is None:
            return ScalingForecast(time.predict(places), None, terms)
        energy = select_terms(runs.places, runs.log_energy, stages)
        return ScalingForecast(time.predict(places), energy.predict(places), terms)


class TermSelection(_Selected):
    """Main effects and their quotients by cores, nodes and frequency, selected forward."""

    NAME: ClassVar[str] = "terms"
    DESCRIPTION: ClassVar[str] = "a sum of terms, selected forward (the manual's method)"

    def candidates(self, places: SizedPlaces) -> list[Term]:
        """Return products of parameters' powers, each also divided by what computes them."""
        names = varying(places)
        parameters = [n for n in names if n in places.parameters]
        mains: list[Term] = [()]
        mains += [((n, (p, 0)),) for n in parameters for p in _MAIN]
        mains += [((n, (1.0, 1)),) for n in parameters]
        mains += [
            ((a, (p, 0)), (b, (q, 0)))
            for a, b in itertools.combinations(parameters, 2)
            for p in (1.0, 2.0)
            for q in (1.0, 2.0)
        ]
        below = [n for n in names if n not in places.parameters]
        grow: list[Term] = [
            ((n, (p, k)),) for n in below if n == NODES for p, k in ((0.0, 1), (0.5, 0), (1.0, 0))
        ]
        return [m + d for m in mains for d in [*_divisors(below), *grow] if m + d]


class NormalForm(_Selected):
    """Extra-P's performance model normal form, one factor per axis."""

    NAME: ClassVar[str] = "pmnf"
    DESCRIPTION: ClassVar[str] = "Extra-P's performance model normal form"

    def candidates(self, places: SizedPlaces) -> list[Term]:
        """Return powers times logarithms of each axis, and products over the axes."""
        names = varying(places)
        factors: dict[str, list[Factor]] = {}
        for n in names:
            if n in ("cores", "GHz"):
                factors[n] = [(-1.0, 0), (-0.5, 0)]
            else:
                factors[n] = [(p, k) for p in (0.0, *_EXPONENTS) for k in (0, 1, 2) if p or k]
                if n == NODES:
                    factors[n] += [(-p, 0) for p in (0.5, 2 / 3, 1.0)]
        single: list[Term] = [((n, f),) for n in names for f in factors[n]]
        few = {n: f if n in ("cores", "GHz") else f[2::4] for n, f in factors.items()}
        joint: list[Term] = []
        for count in range(2, len(names) + 1):
            for some in itertools.combinations(names, count):
                joint += [
                    tuple(zip(some, pick, strict=True))
                    for pick in itertools.product(*(few[n] for n in some))
                ]
        return single + joint
