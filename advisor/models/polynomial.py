"""The plain polynomial model, the baseline every other model has to beat (Endrei 2019, 5.1.3)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from advisor.models.base import AXES, Matrix, ModelOption, Vector, axis_names
from advisor.models.regression import (
    VIF,
    inference,
    least_squares,
    left_out_note,
    without_inflated,
)

_FLOOR = 0.1
"""Predictions stay above this share of the smallest run: a polynomial may cross zero."""


class Polynomial:
    """All products of the axes up to a total degree, of the response itself, least squares.

    Axes are moved to -1..1 first. No axis gets a higher power than its number of values allows.
    """

    NAME: ClassVar[str] = "polynomial"
    DESCRIPTION: ClassVar[str] = "polynomial of the response, least squares"
    OPTIONS: ClassVar[tuple[ModelOption, ...]] = (
        ModelOption("degree", int, 3, "greatest sum of powers in a term", 1, 6),
        VIF,
    )

    def __init__(
        self, *, bounds: Matrix | None = None, degree: int = 3, vif: float = 0.0, **_: Any
    ) -> None:
        self.notes: list[str] = []
        self._bounds = bounds
        self._degree, self._largest_vif = degree, vif
        self._low = self._high = np.zeros(3)
        self._powers: list[tuple[int, ...]] = [(0, 0, 0)]
        self._fitted: Any = None
        self._floor = 0.0
        self._names: tuple[str, ...] = AXES

    def fit(self, x: Matrix, y: Vector) -> None:
        """Fit to x (n, 3) and positive y (n,)."""
        self.notes = []
        reach = x if self._bounds is None else np.vstack([x, self._bounds])
        self._low, self._high = reach.min(axis=0), reach.max(axis=0)
        most = [min(self._degree, len(np.unique(x[:, i])) - 1) for i in range(x.shape[1])]
        self._names = axis_names(x)
        for name, power in zip(self._names, most, strict=True):
            if 0 < power < self._degree:
                self.notes.append(f"{name}: the runs have only {power + 1} values, degree {power}")
        self._powers = [
            p for p in itertools.product(*(range(m + 1) for m in most)) if sum(p) <= self._degree
        ]
        if self._largest_vif:
            columns = without_inflated(self._design(x), self._largest_vif)
            terms = [_term(p, self._names) for p in self._powers]
            self.notes += left_out_note(terms, columns)
            self._powers = [self._powers[i] for i in columns]
        if len(self._powers) > len(y):
            self.notes.append(
                f"{len(y)} runs for {len(self._powers)} terms: not all can be determined"
            )
        self._fitted = least_squares(self._design(x), y)
        self._floor = _FLOOR * float(y.min())

    def predict(self, x: Matrix) -> Vector:
        """Predict the response in its own unit, at least a tenth of the smallest run."""
        predicted: Vector = np.maximum(self._design(x) @ self._fitted.params, self._floor)
        return predicted

    @property
    def facts(self) -> dict[str, Any]:
        """What can be inferred of the terms, in axes moved to -1..1."""
        return {"inference": inference(self._fitted, [_term(p, self._names) for p in self._powers])}

    def _design(self, x: Matrix) -> Matrix:
        span = np.where(self._high > self._low, self._high - self._low, 1.0)
        scaled = np.clip(2.0 * (x - self._low) / span - 1.0, -1.0, 1.0)
        return np.column_stack([np.prod(scaled ** np.array(p), axis=1) for p in self._powers])


def _term(powers: Sequence[int], names: Sequence[str]) -> str:
    """Return a product of axes for people: ``threads^2 frequency``, ``1`` for the constant."""
    factors = zip(names, powers, strict=True)
    return " ".join(axis if n == 1 else f"{axis}^{n}" for axis, n in factors if n) or "1"
