"""How far a prediction may be off: 90 % intervals by cross-validation, for models that cannot say.

Twelve runs determine every coefficient of a spline, so residuals say nothing. Each run is
therefore predicted from the others. Where the prediction will be how far off has a shape: it grows
with the distance to the nearest run, and with how much the prediction depends on any one run; the
measurement's own error comes on top. How large it is, the held-out errors say: standardised by the
same shape at their own places they give the one factor of all intervals, and with it Student's t
(a normalised jackknife). Distances are in logarithms of nodes, ranks, threads and frequency:
responses follow powers of them, so half the threads is as far away whatever the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from advisor.core import student
from advisor.core.configuration import Configuration
from advisor.models.base import Matrix, Model, Prediction, Vector, folds, matrix
from advisor.models.response import Response


def cross_validated(
    make: Callable[[], Model], response: Response, points: Sequence[Configuration]
) -> Prediction:
    """Fit a model to a response and predict the wanted configurations."""
    trained = list(response.log_mean)
    x, log_y = matrix(trained), np.array(list(response.log_mean.values()))
    n, m = len(trained), len(points)
    everything = np.vstack([matrix(points), x])
    parts = folds(n)
    fold_of = np.empty(n, dtype=int)
    fold_predictions = np.empty((len(parts), m + n))
    for k, rows in enumerate(parts):
        fold_of[rows] = k
        keep = np.setdiff1d(np.arange(n), rows)
        fold_predictions[k] = _log_fit(make(), x[keep], log_y[keep], everything)
    model = make()
    full = _log_fit(model, x, log_y, everything)
    held_out = fold_predictions[fold_of, m + np.arange(n)]
    between = _distances(trained, trained)
    # Runs that are left out together do not know each other.
    between[fold_of[:, None] == fold_of[None]] = np.inf
    apart, away = between.min(axis=1), _distances(points, trained).min(axis=1)
    own_spread = np.array(
        [np.delete(fold_predictions[:, m + i] - held_out[i], fold_of[i]) ** 2 for i in range(n)]
    ).mean(axis=1)
    half, own_half = _half_widths(
        held_out - log_y,
        apart**2,
        own_spread,
        away**2,
        ((fold_predictions[:, :m] - full[:m]) ** 2).mean(axis=0),
        response.typical_sigma,
    )
    return Prediction(
        full[:m],
        half,
        {c: (float(v), float(h)) for c, v, h in zip(trained, held_out, own_half, strict=True)},
        r_squared(log_y, full[m:]),
        relative_rmse(held_out - log_y),
        n,
        tuple(model.notes),
        getattr(model, "facts", {}),
    )


def r_squared(log_y: Vector, log_fitted: Vector) -> float:
    """Return R2 (equation 4.16) on the response itself; NaN where all runs are equal."""
    y = np.exp(log_y)
    total = float(((y - y.mean()) ** 2).sum())
    residual = float(((y - np.exp(log_fitted)) ** 2).sum())
    return 1.0 - residual / total if total else math.nan


def relative_rmse(log_errors: Vector) -> float:
    """Return the root mean square of relative errors, given as logarithms."""
    # A spline far outside of its runs may be off by any power of e: exp must not overflow.
    return math.sqrt(float(np.mean(np.expm1(np.clip(log_errors, -50, 50)) ** 2)))


def _log_fit(model: Model, x: Matrix, log_y: Vector, points: Matrix) -> Vector:
    model.fit(x, np.exp(log_y))
    predicted: Vector = np.log(model.predict(points))
    return predicted


def _half_widths(
    errors: Vector, apart: Vector, own_spread: Vector, away: Vector, spread: Vector, sigma: float
) -> tuple[Vector, Vector]:
    """Return half widths of 90 % intervals at the wanted places (m,) and at the runs (n,).

    ``errors`` (n,) are those of held-out runs, ``apart`` (n,) and ``away`` (m,) squared distances
    to the nearest other run, the spreads what leaving out a run does to the prediction there. A
    run's own interval does not know the run: its error is left out of the factor.
    """
    n = len(errors)
    per_distance = float(np.mean(errors**2)) / float(np.mean(apart))
    shape = per_distance * away + spread + sigma**2
    own_shape = per_distance * apart + own_spread + sigma**2
    squares = errors**2 / own_shape
    quantile = student.quantile(n - 1, 0.95) * math.sqrt(1 + 1 / n)
    # Above 1 where runs are farther off than the shape says, below where they are nearer.
    factor = math.sqrt(float(squares.mean()))
    own_factors = np.sqrt((squares.sum() - squares) / (n - 1))
    # A new run is no surer than a run is.
    half: Vector = quantile * np.maximum(factor * np.sqrt(shape), sigma)
    own_half: Vector = quantile * np.maximum(own_factors * np.sqrt(own_shape), sigma)
    return half, own_half


def _distances(a: Sequence[Configuration], b: Sequence[Configuration]) -> Matrix:
    """Return the distances (len(a), len(b)) of configurations."""
    rows, columns = _places(a), _places(b)
    squares = np.zeros((len(rows), len(columns)))
    for axis in range(rows.shape[1]):
        squares += (rows[:, axis, None] - columns[None, :, axis]) ** 2
    return np.sqrt(squares)


def _places(configurations: Sequence[Configuration]) -> Matrix:
    rows = [
        (
            c.nodes,
            c.ranks_per_node,
            c.threads_per_node,
            max(1, c.freq_khz),
            *(value for _, value in c.extra),
        )
        for c in configurations
    ]
    return np.log(np.array(rows, dtype=np.float64))
