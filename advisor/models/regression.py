"""Least squares by statsmodels, and what its coefficients are worth."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.models.base import Matrix, Vector


def least_squares(design: Matrix, response: Vector) -> Any:
    """Return statsmodels' results of ordinary least squares, by pseudo-inverse.

    A design (n, k) may have fewer runs than columns: of all coefficients that fit, ``params`` are
    the smallest. statsmodels' warning about that is suppressed.
    """
    from statsmodels.regression.linear_model import OLS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OLS(response, design).fit(method="pinv")


def inference(results: Any, terms: Sequence[str]) -> dict[str, Any]:
    """Return what statsmodels infers of each term, as plain JSON; None where it cannot.

    ``r2_adjusted`` counts the terms used; ``p_value`` (Student's t) is how probable so large a
    coefficient would be were the term without effect; ``vif`` (variance inflation factor, above
    about 10: collinear) is how much the other terms inflate a coefficient's variance.
    """
    from statsmodels.stats.outliers_influence import variance_inflation_factor

    design, left = results.model.exog, int(results.df_resid)
    known = left > 0 and left + design.shape[1] == len(design)

    def number(value: float) -> float | None:
        return float(value) if known and math.isfinite(value) else None

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        vif = (
            [
                variance_inflation_factor(design, i) if known and np.ptp(column) else math.nan
                for i, column in enumerate(design.T)
            ]
            if design.shape[1] > 1
            else [1.0]
        )  # one term alone is inflated by no other
        rows = zip(terms, results.params, results.bse, results.pvalues, vif, strict=True)
        return {
            "degrees_of_freedom": left,
            "r2_adjusted": number(results.rsquared_adj),
            "terms": [
                {"term": term, "coefficient": float(value), "standard_error": number(error),
                 "p_value": number(p), "vif": number(factor)}
                for term, value, error, p, factor in rows
            ],
        }  # fmt: skip
