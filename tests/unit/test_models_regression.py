"""Least squares and splines are those of statsmodels, patsy and scipy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from patsy import bs
from scipy.linalg import solve_triangular
from statsmodels.stats.outliers_influence import variance_inflation_factor

from advisor.models.base import Matrix, Vector
from advisor.models.bspline import spline_basis
from advisor.models.regression import (
    has_constant,
    inference,
    inflation,
    least_squares,
    without_inflated,
)
from advisor.scaling.process import whitened

DICE = np.random.default_rng(7)
THREE: Matrix = DICE.normal(size=(20, 3))
ONE: Matrix = np.ones((20, 1))
DETERMINED = {
    "constant and three": np.hstack([ONE, THREE]),
    "no constant": THREE,
    "nearly collinear": np.hstack([ONE, THREE, THREE[:, :1] + 1e-2 * THREE[:, 1:2] ** 2]),
    "a constant alone": ONE,
    "one column": THREE[:, :1],
}
OPEN = {
    "collinear": np.hstack([ONE, THREE, THREE[:, :1] + THREE[:, 1:2]]),
    "as many columns as runs": np.hstack([ONE, DICE.normal(size=(20, 19))]),
    "fewer runs than columns": DICE.normal(size=(12, 16)),
}


def inferred_by_statsmodels(design: Matrix, response: Vector) -> dict[str, Any]:
    """Return what statsmodels infers where the runs determine every column."""
    results = sm.OLS(response, design).fit(method="pinv")
    return {
        "degrees_of_freedom": results.df_resid,
        "r2_adjusted": results.rsquared_adj,
        "terms": [
            {
                "term": str(i),
                "coefficient": c,
                "standard_error": e,
                "p_value": p,
                "vif": inflation_by_statsmodels(design, i),
            }
            for i, (c, e, p) in enumerate(
                zip(results.params, results.bse, results.pvalues, strict=True)
            )
        ],
    }


def inflation_by_statsmodels(design: Matrix, i: int) -> float | None:
    """Return a column's variance inflation factor.

    From version 0.15 on statsmodels centres what has no constant, too, as if it had one.
    """
    if design.shape[1] == 1:
        return 1.0
    if np.ptp(design[:, i]) == 0:
        return None
    if has_constant(design):
        return float(variance_inflation_factor(design, i))
    others = sm.OLS(design[:, i], np.delete(design, i, axis=1)).fit(method="pinv")
    return float(1 / (1 - others.rsquared))


def approximately(expected: dict[str, Any]) -> dict[str, Any]:
    return {
        k: pytest.approx(v, rel=1e-8) if isinstance(v, float) else v for k, v in expected.items()
    }


@pytest.mark.parametrize("design", DETERMINED.values(), ids=DETERMINED)
def test_what_is_inferred_is_what_statsmodels_infers(design: Matrix) -> None:
    signal = design @ np.arange(1.0, design.shape[1] + 1)
    response = 0.1 * signal + np.random.default_rng(3).normal(size=len(design))
    names = [str(i) for i in range(design.shape[1])]
    inferred = inference(least_squares(design, response), names)
    expected = inferred_by_statsmodels(design, response)
    terms, expected_terms = inferred.pop("terms"), expected.pop("terms")
    assert inferred == approximately(expected)
    assert terms == [approximately(term) for term in expected_terms]


@pytest.mark.parametrize("design", OPEN.values(), ids=OPEN)
def test_of_what_runs_leave_open_the_smallest_coefficients_are_taken(design: Matrix) -> None:
    response = np.random.default_rng(3).normal(size=len(design))
    fitted = least_squares(design, response)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = sm.OLS(response, design).fit(method="pinv")
    assert fitted.params == pytest.approx(results.params, rel=1e-8)
    inferred = inference(fitted, [str(i) for i in range(design.shape[1])])
    assert inferred["degrees_of_freedom"] == results.df_resid
    assert inferred["r2_adjusted"] is None
    left_open = {"standard_error": None, "p_value": None, "vif": None}
    assert all(term.items() >= left_open.items() for term in inferred["terms"])


def test_columns_that_add_up_to_a_constant_are_one() -> None:
    first = THREE[:, 0] > 0
    design = np.column_stack([first, ~first]).astype(float)
    assert has_constant(design) and not has_constant(THREE)
    fitted = least_squares(design, THREE[:, 1])
    results = sm.OLS(THREE[:, 1], design).fit(method="pinv")
    worth = inference(fitted, ["positive", "negative"])
    assert worth["r2_adjusted"] == pytest.approx(results.rsquared_adj, rel=1e-9)
    assert [t["vif"] for t in worth["terms"]] == pytest.approx([1.0, 1.0])


def test_a_law_without_any_error_has_no_standard_error() -> None:
    """A response of one value has no spread to explain; nothing is divided by it."""
    fitted = least_squares(np.column_stack([np.ones(5), np.arange(5.0)]), np.full(5, 2.0))
    assert fitted.params == pytest.approx([2.0, 0.0], abs=1e-12)
    worth = inference(fitted, ["1", "threads"])
    assert worth["terms"][0]["p_value"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("knots", [(), (0.5,), (0.2, 0.21, 0.9), (1 / 3, 2 / 3)])
def test_a_spline_basis_is_patsys(degree: int, knots: tuple[float, ...]) -> None:
    values = np.unique([*np.linspace(0, 1, 101), *knots])
    expected = bs(values, knots=knots, degree=degree, lower_bound=0.0, upper_bound=1.0)
    basis = spline_basis(values, knots, degree)
    assert np.abs(basis[:, 1:] - np.asarray(expected)).max() < 1e-14
    assert basis.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 100])
def test_a_triangular_system_is_solved_as_scipy_does(size: int) -> None:
    root = DICE.normal(size=(size, size))
    factor = np.linalg.cholesky(root @ root.T + np.eye(size))
    right = DICE.normal(size=(size, 7))
    expected = solve_triangular(factor, right, lower=True)
    assert whitened(factor, right) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", [*DETERMINED, *OPEN])
@pytest.mark.parametrize("limit", [5.0, 100.0])
def test_no_column_that_is_left_is_inflated_above_the_limit(name: str, limit: float) -> None:
    design = (DETERMINED | OPEN)[name]
    columns = without_inflated(design, limit)
    left = design[:, columns]
    assert all(not factor > limit for factor in inflation(left))
    assert np.linalg.matrix_rank(left) == len(columns)
    for column in set(range(design.shape[1])) - set(columns):  # it is nearly made up of the others
        more = design[:, sorted({*columns, column})]
        assert max(f for f in inflation(more) if f == f) > limit / 2
    if name in ("constant and three", "no constant", "a constant alone", "one column"):
        assert len(columns) == design.shape[1]
