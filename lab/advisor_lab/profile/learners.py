"""Models that are no sums of terms: nearest neighbours, a forest of trees, a small neural network.

Their inputs are the terms (section 6.2.2). Of each the same runs make the same model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Table = NDArray[np.float64]
_SEED = 20180129
"""Any fixed seed, so that the same profiles give the same models."""


class Learner(Protocol):
    """Fitted by its making; predicts from rows of terms (m, k)."""

    def predict(self, x: Table) -> Table:
        """Return the predictions (m,)."""


class _StandardAxes:
    """Axes with mean 0 and spread 1 over the runs; an axis that does not vary counts nothing."""

    def __init__(self, x: Table) -> None:
        self.centre = x.mean(axis=0)
        spread = x.std(axis=0)
        self.spread = np.where(spread > 1e-12 * (np.abs(self.centre) + 1e-300), spread, np.inf)

    def __call__(self, x: Table) -> Table:
        scaled: Table = (x - self.centre) / self.spread
        return scaled


class NearestRuns:
    """The mean of the nearest runs, by the inverse of their squared distance."""

    def __init__(self, x: Table, y: Table, count: int = 3) -> None:
        self._scaled = _StandardAxes(x)
        self._x, self._y, self._count = self._scaled(x), y, min(count, len(y))

    def predict(self, x: Table) -> Table:
        """Return the predictions; at a run its own value."""
        away = ((self._scaled(x)[:, None, :] - self._x[None]) ** 2).sum(axis=2)
        nearest = np.argsort(away, axis=1, kind="stable")[:, : self._count]
        weights = 1.0 / (np.take_along_axis(away, nearest, axis=1) + 1e-12)
        predicted: Table = (weights * self._y[nearest]).sum(axis=1) / weights.sum(axis=1)
        return predicted


RegressionTree = float | tuple[int, float, "RegressionTree", "RegressionTree"]
"""A mean, or axis and cut with the trees of rows up to the cut and beyond."""


class Forest:
    """Regression trees on drawn runs, each split by the best of a drawn third of the axes."""

    def __init__(self, x: Table, y: Table, trees: int = 60, least: int = 2) -> None:
        draw = np.random.default_rng(_SEED)
        self._least = least
        self._axes = max(1, -(-x.shape[1] // 3)) if x.shape[1] else 0
        self._trees: list[RegressionTree] = []
        for _ in range(trees):
            rows = draw.integers(0, len(y), len(y))
            self._trees.append(self._grow(x[rows], y[rows], draw))

    def _grow(self, x: Table, y: Table, draw: np.random.Generator) -> RegressionTree:
        if len(y) < 2 * self._least or not self._axes or np.ptp(y) == 0:
            return float(y.mean())
        best: tuple[float, int, float] | None = None
        for axis in draw.permutation(x.shape[1])[: max(self._axes, 1)]:
            order = np.argsort(x[:, axis], kind="stable")
            inputs, responses = x[order, axis], y[order]
            # Running sums give what every cut leaves of the squares, on both sides, at once.
            sums, squares = np.cumsum(responses), np.cumsum(responses**2)
            left_count = np.arange(1, len(y))
            right_count = len(y) - left_count
            rest = (
                squares[-1]
                - sums[:-1] ** 2 / left_count
                - (sums[-1] - sums[:-1]) ** 2 / right_count
            )
            rest[
                (inputs[1:] == inputs[:-1])
                | (left_count < self._least)
                | (right_count < self._least)
            ] = np.inf
            i = int(np.argmin(rest))
            if np.isfinite(rest[i]) and (best is None or rest[i] < best[0]):
                best = float(rest[i]), int(axis), float((inputs[i] + inputs[i + 1]) / 2)
        if best is None:
            return float(y.mean())
        _, axis, cut = best
        below = x[:, axis] <= cut
        return (
            axis,
            cut,
            self._grow(x[below], y[below], draw),
            self._grow(x[~below], y[~below], draw),
        )

    def predict(self, x: Table) -> Table:
        """Return the mean over the trees."""
        by_tree = np.array([[_leaf(tree, row) for tree in self._trees] for row in x])
        predicted: Table = by_tree.mean(axis=1)
        return predicted


def _leaf(tree: RegressionTree, row: Table) -> float:
    while isinstance(tree, tuple):
        axis, cut, below, above = tree
        tree = below if row[axis] <= cut else above
    return tree


class SmallNetwork:
    """One hidden layer of hyperbolic tangents, trained by L-BFGS with small weights preferred.

    Its predictions are bounded, as a network's with saturating units are.
    """

    def __init__(
        self, x: Table, y: Table, units: int = 6, decay: float = 1e-3, steps: int = 200
    ) -> None:
        self._scaled = _StandardAxes(x)
        self._mean = float(y.mean())
        self._spread = float(y.std()) or 1.0
        self._shape = (x.shape[1], units)
        inputs, target = self._scaled(x), (y - self._mean) / self._spread
        draw = np.random.default_rng(_SEED)
        size = (x.shape[1] + 1) * units + units + 1
        trained = [
            minimize(
                self._loss,
                draw.normal(0, 0.7, size),
                (inputs, target, decay),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": steps},
            )
            for _ in range(2)
        ]
        self._weights = min(trained, key=lambda f: float(f.fun)).x

    def _parts(self, weights: Table) -> tuple[Table, Table, Table, float]:
        inputs, units = self._shape
        first = weights[: inputs * units].reshape(inputs, units)
        bias = weights[inputs * units : (inputs + 1) * units]
        last = weights[(inputs + 1) * units : -1]
        return first, bias, last, float(weights[-1])

    def _loss(self, weights: Table, x: Table, y: Table, decay: float) -> tuple[float, Table]:
        first, bias, last, constant = self._parts(weights)
        hidden = np.tanh(x @ first + bias)
        errors = hidden @ last + constant - y
        back = np.outer(errors, last) * (1 - hidden**2)
        gradient = np.concatenate(
            [(x.T @ back).ravel(), back.sum(axis=0), hidden.T @ errors, [errors.sum()]]
        )
        n = len(y)
        loss = 0.5 * float(errors @ errors) / n + 0.5 * decay * float(weights @ weights)
        return loss, gradient / n + decay * weights

    def predict(self, x: Table) -> Table:
        """Return the predictions in the metric's own unit."""
        first, bias, last, constant = self._parts(self._weights)
        predicted: Table = np.tanh(self._scaled(x) @ first + bias) @ last + constant
        return self._mean + self._spread * predicted


LEARNER_KINDS: dict[str, Callable[[Table, Table], Learner]] = {
    "NearestNeighbors": NearestRuns,
    "RandomForest": Forest,
    "NeuralNetwork": SmallNetwork,
}
