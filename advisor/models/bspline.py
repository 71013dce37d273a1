"""The B-spline model of log responses (Endrei 2019, equations 4.9 to 4.13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from advisor.models.base import AXES, Matrix, ModelOption, Vector, axis_names
from advisor.models.regression import least_squares

_NODES, _THREADS, _FREQUENCY = range(3)
_INTERACTIONS = ((_NODES, _THREADS), (_THREADS, _FREQUENCY))


@dataclass(frozen=True, slots=True)
class _KnotAxis:
    """One axis' spline basis: values are moved to 0..1 between the bounds and clipped there."""

    low: float
    high: float
    degree: int
    knots: tuple[float, ...]

    def basis(self, values: Vector) -> Matrix:
        """Return the basis (n, degree + number of knots), without the constant."""
        scaled = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        basis: Matrix = spline_basis(scaled, self.knots, self.degree)[:, 1:]
        return basis


def spline_basis(values: Vector, knots: Sequence[float], degree: int) -> Matrix:
    """Return the B-splines at values (n,) in 0..1, an array (n, degree + 1 + number of knots).

    ``knots`` ascend inside 0..1. By the recursion of Cox and de Boor (de Boor 1972) from the
    intervals that the values lie in; 1 lies in the last.
    """
    ends = np.array([*[0.0] * (degree + 1), *knots, *[1.0] * (degree + 1)])
    last = len(knots) + degree
    interval = np.minimum(np.searchsorted(ends, values, side="right") - 1, last)
    basis = (interval[:, None] == np.arange(len(ends) - 1)).astype(np.float64)
    for order in range(1, degree + 1):
        widths = ends[order:] - ends[:-order]
        shares = (values[:, None] - ends[:-order]) / np.where(widths > 0, widths, 1.0)
        rising = shares[:, :-1] * basis[:, :-1]
        basis = rising + (1.0 - shares[:, 1:]) * basis[:, 1:]
    return np.asarray(basis)


class BSpline:
    """Quadratic B-splines with three degrees of freedom, nodes x threads, threads x frequency.

    Knots are quantiles of the distinct values in the training runs; the splines' bounds are those
    of the search space, so that any configuration in it can be predicted. Twelve runs determine
    fewer than the sixteen coefficients of one node count: of all that fit, the smallest is taken
    (least squares by pseudo-inverse, as in the thesis). An axis with one value drops out, one
    with two is linear.
    """

    NAME: ClassVar[str] = "bspline"
    DESCRIPTION: ClassVar[str] = "B-splines of the log response, least squares (Endrei 2019)"
    OPTIONS: ClassVar[tuple[ModelOption, ...]] = (
        ModelOption("df", int, 3, "degrees of freedom of each axis", 1, 12),
        ModelOption("degree", int, 2, "degree of the piecewise polynomials", 1, 5),
    )

    def __init__(
        self,
        *,
        bounds: Matrix | None = None,
        df: int = 3,
        degree: int = 2,
        knots: Mapping[str, tuple[float, ...]] | None = None,
        **_: Any,
    ) -> None:
        self.notes: list[str] = []
        self._bounds = bounds
        self._df, self._degree = max(df, degree), degree
        self._knots = dict(knots or {})
        self._axes: dict[int, _KnotAxis] = {}
        self._coefficients: Vector = np.zeros(1)

    def fit(self, x: Matrix, y: Vector) -> None:
        """Fit to x (n, 3) and positive y (n,) by ordinary least squares on log y."""
        self.notes = []
        self._axes = {}
        for i, name in enumerate(axis_names(x)):
            axis = self._axis(i, name, x[:, i])
            if axis is not None:
                self._axes[i] = axis
        self._coefficients = least_squares(self._design(x), np.log(y)).params

    def predict(self, x: Matrix) -> Vector:
        """Predict the response in its own unit; beyond the bounds it stays what it is there."""
        log_y = self._design(x) @ self._coefficients
        return np.exp(np.clip(log_y, -700.0, 700.0))

    @property
    def knots(self) -> dict[str, tuple[float, ...]]:
        """Inner knots by axis, in the axis' own unit."""
        return {
            AXES[i]: tuple(a.low + k * (a.high - a.low) for k in a.knots)
            for i, a in self._axes.items()
            if i < len(AXES)
        }

    def _axis(self, i: int, name: str, values: Vector) -> _KnotAxis | None:
        distinct = np.unique(values)
        if len(distinct) == 1:
            return None
        low, high = float(distinct[0]), float(distinct[-1])
        if self._bounds is not None:
            low = min(low, float(self._bounds[0, i]))
            high = max(high, float(self._bounds[1, i]))
        degree = min(self._degree, len(distinct) - 1)
        if degree < self._degree:
            self.notes.append(f"{name}: the runs have only {len(distinct)} values, degree {degree}")
            return _KnotAxis(low, high, degree, ())
        inner = self._df - degree
        knots = self._knots.get(
            name, tuple(np.quantile(distinct, np.linspace(0, 1, inner + 2)[1:-1]))
        )
        scaled = {(k - low) / (high - low) for k in knots}
        return _KnotAxis(low, high, degree, tuple(sorted(k for k in scaled if 0.0 < k < 1.0)))

    def _design(self, x: Matrix) -> Matrix:
        bases = {i: axis.basis(x[:, i]) for i, axis in self._axes.items()}
        columns = [np.ones((len(x), 1)), *bases.values()]
        for a, b in _INTERACTIONS:
            if a in bases and b in bases:
                product = bases[a][:, :, None] * bases[b][:, None, :]
                columns.append(product.reshape(len(x), -1))
        return np.hstack(columns)
