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

_LEAVE_ONE_OUT = 40
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
    x, x_wanted = matrix(trained), matrix(wanted)
    y = np.exp(log_y)
    n = len(y)
    everything = np.vstack([x_wanted, x])
    model = make()
    model.fit(x, y)
    full = np.log(model.predict(everything))
    folds = _folds(n)
    others = np.empty((len(folds), len(everything)))
    fold_of = np.empty(n, dtype=int)
    for k, left_out in enumerate(folds):
        keep = np.ones(n, dtype=bool)
        keep[left_out] = False
        partial = make()
        partial.fit(x[keep], y[keep])
        others[k] = np.log(partial.predict(everything))
        fold_of[left_out] = k
    held_out = others[fold_of, len(wanted) + np.arange(n)]
    away, apart = _distances(trained, wanted, fold_of)
    errors = held_out - log_y
    per_distance = (errors / apart) ** 2
    spread = (others - full) ** 2
    quantile = float(student.ppf(0.95, n - 1))
    half = quantile * np.sqrt(
        per_distance.mean() * away**2 + spread[:, : len(wanted)].mean(axis=0) + sigma**2
    )
    return Prediction(
        full[: len(wanted)],
        half,
        held_out,
        _held_out_half(per_distance, spread[:, len(wanted) :], fold_of, apart, sigma),
        n,
        _r_squared(y, np.exp(full[len(wanted) :])),
        math.sqrt(float(np.mean(np.expm1(np.clip(errors, -50, 50)) ** 2))),
        tuple(model.notes),
    )


def _folds(n: int) -> list[NDArray[np.intp]]:
    order = np.random.default_rng(0).permutation(n)
    return np.array_split(order, n if n <= _LEAVE_ONE_OUT else _FOLDS)


def _held_out_half(
    per_distance: Vector, spread: Matrix, fold_of: Vector, apart: Vector, sigma: float
) -> Vector:
    """Half widths of the held-out predictions; a fold's own errors do not widen its intervals."""
    n, folds = len(per_distance), len(spread)
    result = np.empty(n)
    for i in range(n):
        elsewhere = fold_of != fold_of[i]
        other_folds = np.arange(folds) != fold_of[i]
        variance = (
            per_distance[elsewhere].mean() * apart[i] ** 2
            + spread[other_folds, i].mean()
            + sigma**2
        )
        quantile = float(student.ppf(0.95, max(1, elsewhere.sum() - 1)))
        result[i] = quantile * math.sqrt(variance)
    return result


def _distances(
    trained: Sequence[Configuration], wanted: Sequence[Configuration], fold_of: Vector
) -> tuple[Vector, Vector]:
    """Distance of each wanted point to the data, and of each run to those of other folds."""
    places, goals = _places(trained), _places(wanted)
    away = np.full(len(goals), np.inf)
    for place in places:
        away = np.minimum(away, np.sqrt(((goals - place) ** 2).sum(axis=1)))
    between = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=-1))
    between[fold_of[:, None] == fold_of[None]] = np.inf
    return away, between.min(axis=1)


def _places(configurations: Sequence[Configuration]) -> Matrix:
    rows = [
        (c.nodes, c.ranks_per_node, c.threads_per_node, max(1, c.freq_khz)) for c in configurations
    ]
    return np.log(np.array(rows, dtype=np.float64))


def _r_squared(y: Vector, fitted: Vector) -> float:
    total = float(((y - y.mean()) ** 2).sum())
    left = float(((y - fitted) ** 2).sum())
    return 1.0 - left / total if total else math.nan
