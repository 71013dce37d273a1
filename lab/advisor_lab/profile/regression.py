"""Weighted linear regression of a metric on terms, and how good a prediction is (section 6, 8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FloatColumn = NDArray[np.float64]

WEIGHTINGS = {"1": 0.0, "m^-1/2": 0.5, "m^-1": 1.0, "m^-2": 2.0}
"""Weights of squared residuals by the observed metric m, and their power (section 6.2.5)."""
EXACT = 1e-9
"""Relative errors below this are those of floating point numbers: the fit is exact."""
_LEVEL = 0.9
"""Probability that a confidence interval holds."""


def weights_of(y: FloatColumn, weighting: str) -> FloatColumn:
    """Return the weight of each squared residual; 1 for all where some y is not above 0."""
    if not WEIGHTINGS[weighting] or y.min(initial=1.0) <= 0:
        return np.ones_like(y)
    weights: FloatColumn = y ** -WEIGHTINGS[weighting]
    return weights


def relative_error(observed: FloatColumn, predicted: FloatColumn) -> float:
    """Return the mean relative error (MRE); relative to 1 where 0 was observed."""
    scale = np.where(observed == 0, 1.0, np.abs(observed))
    return float(np.mean(np.abs(predicted - observed) / scale))


def determination(observed: FloatColumn, predicted: FloatColumn) -> float:
    """Return R2 of the metric itself: 1 where nothing varies and all is exact; may be negative."""
    errors = float(np.sum((observed - predicted) ** 2))
    spread = float(np.sum((observed - observed.mean()) ** 2))
    floor = (EXACT * float(np.abs(observed).max(initial=0.0))) ** 2 * len(observed)
    if spread <= floor:
        return 1.0 if errors <= floor else -float("inf")
    return 1.0 - errors / spread


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Coefficients, the constant's first, and what their errors follow from."""

    coefficients: FloatColumn
    covariance: NDArray[np.float64]
    """Of the coefficients, without the residual variance."""
    variance: float
    """Of a residual times the root of its weight; NaN with no run to spare."""
    freedom: int
    weighting: str

    def predict(self, design: NDArray[np.float64]) -> FloatColumn:
        """Return the predictions at rows of terms (m, k), without the constant."""
        with np.errstate(all="ignore"):
            predicted: FloatColumn = self.coefficients[0] + design @ self.coefficients[1:]
        return predicted

    def errors(self, design: NDArray[np.float64], predicted: FloatColumn) -> FloatColumn:
        """Return the standard error of one more run at each row; NaN where none can be known."""
        if self.freedom < 1:
            return np.full(len(design), np.nan)
        rows = np.column_stack([np.ones(len(design)), design])
        power = WEIGHTINGS[self.weighting]
        with np.errstate(all="ignore"):
            noise_factor = np.abs(predicted) ** power if power else np.ones(len(design))
            spread = np.einsum("ij,jk,ik->i", rows, self.covariance, rows) + noise_factor
            errors: FloatColumn = np.sqrt(self.variance * spread)
        return errors

    def half_widths(self, design: NDArray[np.float64], predicted: FloatColumn) -> FloatColumn:
        """Return half of the 90 % prediction interval at each row; NaN where none can be known."""
        reach = stats.t.ppf(0.5 + _LEVEL / 2, max(self.freedom, 1))
        halves: FloatColumn = reach * self.errors(design, predicted)
        return halves

    def doubt(self, term: int) -> float:
        """Return the p-value of a term's coefficient (0 is the first term)."""
        if self.freedom < 1:
            return 1.0
        error = np.sqrt(self.variance * self.covariance[term + 1, term + 1])
        value = abs(self.coefficients[term + 1])
        if error <= EXACT * value:
            return 0.0
        return float(2 * stats.t.sf(value / error, self.freedom))


def fit_linear(
    design: NDArray[np.float64],
    y: FloatColumn,
    weighting: str = "1",
    level: FloatColumn | None = None,
) -> LinearFit:
    """Fit y (n,) on terms (n, k) and a constant by least weighted squares.

    The weights follow from y, or from ``level`` (n,) in its place.
    """
    rows = np.column_stack([np.ones(len(y)), design])
    level = y if level is None else level
    weights = weights_of(level, weighting)
    if level.min(initial=1.0) <= 0:
        weighting = "1"
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    root = np.sqrt(weights)[:, None]
    scaled = rows / scale * root
    inverse = np.linalg.pinv(scaled, rcond=1e-12)
    solution = inverse @ (y * root[:, 0])
    residuals = y * root[:, 0] - scaled @ solution
    freedom = len(y) - rows.shape[1]
    floor = (EXACT * np.abs(y * root[:, 0]).max(initial=0.0)) ** 2
    variance = max(float(residuals @ residuals) / freedom, floor) if freedom > 0 else np.nan
    covariance = inverse @ inverse.T / np.outer(scale, scale)
    return LinearFit(solution / scale, covariance, variance, freedom, weighting)
