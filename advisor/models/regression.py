"""Ordinary least squares, and what its coefficients are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.core import student
from advisor.models.base import Matrix, ModelOption, Vector

_SINGULAR = 1e-15
"""Singular values below this share of the largest are none."""

VIF = ModelOption(
    "vif",
    float,
    0.0,
    "leave out terms of a larger variance inflation factor, 100 in the thesis; 0: none",
    0.0,
    1e9,
)
"""The option of models of terms that may be collinear."""


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """A fit of n runs by k columns: ``design`` (n, k), ``response`` (n,), ``params`` (k,).

    ``unscaled`` (k, k) times the residuals' variance is the covariance of the coefficients.
    """

    design: Matrix
    response: Vector
    params: Vector
    unscaled: Matrix
    rank: int

    @property
    def squares(self) -> float:
        """The sum of the squared residuals."""
        residuals = self.response - self.design @ self.params
        return float(residuals @ residuals)

    @property
    def r2(self) -> float:
        """The share of the response's squares that is explained, about its mean if that may be."""
        about = self.response - self.response.mean() if has_constant(self.design) else self.response
        with np.errstate(all="ignore"):  # a response without any spread has none
            return float(1.0 - self.squares / (about @ about))


def least_squares(design: Matrix, response: Vector) -> LeastSquares:
    """Return the ordinary least squares of a response (n,) by a design (n, k).

    It may have fewer runs than columns: of all coefficients that fit, ``params`` are the smallest.
    """
    rows, sizes, columns = np.linalg.svd(design, full_matrices=False)
    # As in statsmodels' pinv, which the tests hold these fits against.
    used = sizes > _SINGULAR * sizes.max()
    inverse = columns.T * np.where(used, 1 / np.where(used, sizes, 1.0), 0.0) @ rows.T
    rank = int((sizes > sizes.max() * len(sizes) * np.finfo(float).eps).sum())
    return LeastSquares(design, response, inverse @ response, inverse @ inverse.T, rank)


def has_constant(design: Matrix) -> bool:
    """Tell whether a design's columns make up a constant."""
    ones = np.column_stack([np.ones(len(design)), design])
    return bool(np.linalg.matrix_rank(ones) == np.linalg.matrix_rank(design))


def inference(fitted: LeastSquares, terms: Sequence[str]) -> dict[str, Any]:
    """Return what can be inferred of each term, as plain JSON; None where nothing can.

    ``r2_adjusted`` counts the terms used; ``p_value`` (Student's t) is how probable so large a
    coefficient would be were the term without effect; ``vif`` (variance inflation factor, above
    about 10: collinear) is how much the other terms inflate a coefficient's variance.
    """
    n, k = fitted.design.shape
    freedom = n - fitted.rank
    errors = chances = factors = [math.nan] * k
    r2_adjusted = math.nan
    if freedom > 0 and fitted.rank == k:
        with np.errstate(all="ignore"):
            variance = fitted.squares / freedom
            errors = np.sqrt(variance * np.diag(fitted.unscaled)).tolist()
            chances = [_chance(freedom, t) for t in np.abs(fitted.params / errors).tolist()]
            factors = inflation(fitted.design)
            r2_adjusted = 1.0 - (n - has_constant(fitted.design)) / freedom * (1.0 - fitted.r2)
    rows = zip(terms, fitted.params.tolist(), errors, chances, factors, strict=True)
    return {
        "degrees_of_freedom": freedom,
        "r2_adjusted": _finite(r2_adjusted),
        "terms": [
            {
                "term": term,
                "coefficient": value,
                "standard_error": _finite(error),
                "p_value": _finite(p),
                "vif": _finite(factor),
            }
            for term, value, error, p, factor in rows
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _chance(freedom: int, t: float) -> float:
    """Return how probable a value as far from 0 as t is by Student's distribution."""
    return 0.0 if t == math.inf else 2 * student.beyond(freedom, t)


def inflation(design: Matrix) -> list[float]:
    """Return the variance inflation factor of each column of a design (n, k).

    It is NaN of a constant, 1 of a column alone, and infinite or very large of one that the others
    make up.
    """
    if design.shape[1] == 1:
        return [1.0]
    reduced_designs = (np.delete(design, i, axis=1) for i in range(design.shape[1]))
    explained = [
        least_squares(other_columns, column).r2 if np.ptp(column) else math.nan
        for other_columns, column in zip(reduced_designs, design.T, strict=True)
    ]
    with np.errstate(divide="ignore"):
        factors: list[float] = (1.0 / np.maximum(1.0 - np.array(explained), 0.0)).tolist()
    return factors


def without_inflated(design: Matrix, limit: float) -> list[int]:
    """Return the columns of a design (n, k) that are left when none is inflated above a limit.

    The most inflated one goes first, and the factors of the others are worked out anew. Source:
    Endrei 2019, appendix A, calculateVif.
    """
    columns = list(range(design.shape[1]))
    while True:
        factors = np.nan_to_num(inflation(design[:, columns]), nan=0.0, posinf=math.inf)
        worst = int(factors.argmax())
        if factors[worst] <= limit:
            return columns
        del columns[worst]


def left_out_note(terms: Sequence[str], columns: Sequence[int]) -> list[str]:
    """Say which terms are not among the columns that :func:`without_inflated` left; [] for none."""
    inflated = [term for i, term in enumerate(terms) if i not in columns]
    return [f"left out as collinear: {', '.join(inflated)}"] if inflated else []
