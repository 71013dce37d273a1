"""How far a prediction may be off: 90 % intervals by cross-validation.

Twelve runs determine every coefficient, so residuals say nothing. Each run is therefore predicted
from the others. Its error, divided by the distance to the nearest of those others, gives an error
per distance that is charged at every configuration by its own distance from the data; on top come
how much the prediction depends on any one run, and the measurement's own error. Distances are in
logarithms of nodes, ranks, threads and frequency: responses follow powers of them, so half the
threads is as far away whatever the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from advisor.core.configuration import Configuration
from advisor.models.base import Matrix, Model, Vector, matrix

_LEAVE_ONE_OUT = 20
"""Up to this many configurations each is left out alone; above, ten folds do."""
_FOLDS = 10


@dataclass(frozen=True, slots=True)
class Prediction:
    """A fitted response over configurations, in log space, with 90 % half widths for a new run.

    ``held_out`` and ``held_out_half`` are the training configurations' own, each predicted
    without its run.
    """

    log_mean: Vector
    half: Vector
    held_out: Vector
    held_out_half: Vector
    n_train: int
    r2: float
    cv_rmse: float
    notes: tuple[str, ...]

    def with_outsiders(self, trained: NDArray[np.bool_]) -> Prediction:
        """Move the last predictions, of runs not trained on, to the held-out ones.

        ``trained`` (n,) tells of all runs, in order, which were trained on.
        """
        outside = int((~trained).sum())
        cut = len(self.log_mean) - outside
        held, half = np.empty(len(trained)), np.empty(len(trained))
        held[trained], held[~trained] = self.held_out, self.log_mean[cut:]
        half[trained], half[~trained] = self.held_out_half, self.half[cut:]
        return replace(
            self,
            log_mean=self.log_mean[:cut],
            half=self.half[:cut],
            held_out=held,
            held_out_half=half,
        )


def predict_with_intervals(
    make: Callable[[], Model],
    trained: Sequence[Configuration],
    log_y: Vector,
    wanted: Sequence[Configuration],
    sigma: float,
) -> Prediction:
    """Fit a response and predict it at the wanted configurations.

    ``log_y`` (n,) are the training configurations' log responses, ``sigma`` the standard
    deviation of one run's. R2 is equation 4.16 on the response itself, ``cv_rmse`` the root mean
    square of the relative errors of held-out predictions.
    """
    x, n = matrix(trained), len(log_y)
    y = np.exp(log_y)
    everything = np.vstack([matrix(wanted), x])
    model = make()
    model.fit(x, y)
    full = np.log(model.predict(everything))
    split = _Split(make, x, y, _folds(n))
    others = np.array([split.predict(everything, k) for k in range(split.count)])
    held_out = others[split.fold_of, len(wanted) + np.arange(n)]
    between = _distances(trained, trained)
    half = _half_width(
        held_out - log_y,
        split.nearest(between),
        _distances(wanted, trained).min(axis=1),
        others[:, : len(wanted)] - full[: len(wanted)],
        sigma,
    )
    return Prediction(
        full[: len(wanted)],
        half,
        held_out,
        _held_out_half(split, log_y, held_out, between, sigma),
        n,
        _r_squared(y, np.exp(full[len(wanted) :])),
        math.sqrt(float(np.mean(np.expm1(np.clip(held_out - log_y, -50, 50)) ** 2))),
        tuple(model.notes),
    )


class _Split:
    """The training runs in folds; fits without one fold, or without two."""

    def __init__(
        self, make: Callable[[], Model], x: Matrix, y: Vector, folds: Sequence[NDArray[np.intp]]
    ) -> None:
        self._make, self._x, self._y = make, x, y
        self.folds = folds
        self.count = len(folds)
        self.fold_of = np.empty(len(y), dtype=int)
        for k, rows in enumerate(folds):
            self.fold_of[rows] = k

    def predict(self, x: Matrix, *left_out: int) -> Vector:
        """Predict log responses from a fit without the given folds."""
        keep = ~np.isin(self.fold_of, left_out)
        model = self._make()
        model.fit(self._x[keep], self._y[keep])
        log_y: Vector = np.log(model.predict(x))
        return log_y

    def predict_pair(self, a: int, b: int) -> tuple[Vector, Vector]:
        """Predict the runs of two folds from a fit without both."""
        rows = np.concatenate([self.folds[a], self.folds[b]])
        both = self.predict(self._x[rows], a, b)
        return both[: len(self.folds[a])], both[len(self.folds[a]) :]

    def nearest(self, between: Matrix, without: int = -1) -> Vector:
        """Return each run's distance to the nearest one of another fold than its own."""
        masked = between.copy()
        masked[self.fold_of[:, None] == self.fold_of[None]] = np.inf
        masked[:, self.fold_of == without] = np.inf
        distances: Vector = masked.min(axis=1)
        return distances


def _folds(n: int) -> list[NDArray[np.intp]]:
    order = np.random.default_rng(0).permutation(n)
    return np.array_split(order, n if n <= _LEAVE_ONE_OUT else _FOLDS)


def _half_width(
    errors: Vector, apart: Vector, away: Vector, spread: Matrix, sigma: float
) -> Vector:
    """Return half widths of 90 % intervals for new runs ``away`` from the data.

    ``errors`` and ``apart`` are the held-out runs' errors and distances, ``spread`` (folds, m)
    what leaving out a fold does to the prediction.
    """
    per_distance = float(np.mean((errors / apart) ** 2))
    quantile = float(student.ppf(0.95, max(1, len(errors) - 1)))
    variance = per_distance * away**2 + (spread**2).mean(axis=0) + sigma**2
    half: Vector = quantile * np.sqrt(variance)
    return half


def _held_out_half(
    split: _Split, log_y: Vector, held_out: Vector, between: Matrix, sigma: float
) -> Vector:
    """Half widths at the training runs, each as if its own fold had never been run.

    A run far off would otherwise widen the very interval it is to be judged by. Needs a fit
    without every pair of folds.
    """
    n, count = len(log_y), split.count
    paired = np.full((count, n), np.nan)
    for a in range(count):
        for b in range(a + 1, count):
            in_a, in_b = split.predict_pair(a, b)
            paired[a, split.folds[b]], paired[b, split.folds[a]] = in_b, in_a
    own = split.nearest(between)
    half = np.empty(n)
    for a, rows in enumerate(split.folds):
        rest = split.fold_of != a
        others = np.arange(count) != a
        half[rows] = _half_width(
            (paired[a] - log_y)[rest],
            split.nearest(between, a)[rest],
            own[rows],
            paired[others][:, rows] - held_out[rows],
            sigma,
        )
    return half


def _distances(a: Sequence[Configuration], b: Sequence[Configuration]) -> Matrix:
    """Return the distances (len(a), len(b)) of configurations."""
    rows, columns = _places(a), _places(b)
    squares = np.zeros((len(rows), len(columns)))
    for axis in range(rows.shape[1]):
        squares += (rows[:, axis, None] - columns[None, :, axis]) ** 2
    return np.sqrt(squares)


def _places(configurations: Sequence[Configuration]) -> Matrix:
    rows = [
        (c.nodes, c.ranks_per_node, c.threads_per_node, max(1, c.freq_khz)) for c in configurations
    ]
    return np.log(np.array(rows, dtype=np.float64))


def _r_squared(y: Vector, fitted: Vector) -> float:
    total = float(((y - y.mean()) ** 2).sum())
    left = float(((y - fitted) ** 2).sum())
    return 1.0 - left / total if total else math.nan
