"""The model of one's own formula: equal to the built-in ones where it must be, and its mistakes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.models.registry import create
from advisor_lab.models.formula import Formula

X = np.array([[1, t, f] for t in (2, 4, 8, 12, 16) for f in (1.2e6, 1.6e6, 2.0e6, 2.4e6)], float)
Y = 5 + 60 / X[:, 1] * (0.4 + 0.6 * 2.4e6 / X[:, 2])


def fitted(**options: Any) -> Any:
    model = create("formula", **options)
    model.fit(X, Y)
    return model


def test_without_a_formula_it_is_the_thesiss_splines() -> None:
    splines = create("bspline")
    splines.fit(X, Y)
    assert fitted().predict(X) == pytest.approx(splines.predict(X), rel=1e-6)


@pytest.mark.parametrize("transform", ["ln", "log2", "log10", "sqrt", "exp", "none"])
@pytest.mark.parametrize("scaler", ["minmax", "standard", "none"])
def test_a_transform_is_undone_and_a_scaler_changes_no_polynomial(
    transform: str, scaler: str
) -> None:
    """A straight line goes through two values of one axis, whatever both are turned into."""
    two = np.array([[1, 4, 2e6], [1, 16, 2e6]])
    model = create("formula", formula="threads", transform=transform, scaler=scaler)
    model.fit(two, np.array([10.0, 4.0]))
    assert model.predict(two) == pytest.approx([10.0, 4.0])


def test_terms_are_added_and_removed() -> None:
    def terms(**options: Any) -> set[str]:
        found = fitted(**options).facts["inference"]["terms"]
        return {t["term"].split("[")[0] for t in found}

    spline = "bs(threads, df=3, degree=2)"
    assert terms(interactions="none") == {"1", spline, "bs(frequency, df=3, degree=2)"}
    both = "threads + frequency + threads:frequency"
    assert terms(formula=both) == {"1", "threads", "frequency", "threads:frequency"}
    assert terms(formula=both, remove="threads:frequency") == {"1", "threads", "frequency"}
    assert terms(remove="threads:frequency") == terms(interactions="none")


def test_an_exact_law_is_found_and_a_useless_term_is_named() -> None:
    """ln y = 2 - ln threads exactly; frequency has nothing to do with it."""
    law = np.exp(2 - np.log(X[:, 1])) * (1 + 1e-4 * np.sin(np.arange(len(X))))
    model = create("formula", formula="log(threads) + frequency", scaler="none")
    model.fit(X, law)
    inference = model.facts["inference"]
    worth = {t["term"]: t for t in inference["terms"]}
    assert worth["log(threads)"]["coefficient"] == pytest.approx(-1, abs=1e-4)
    assert worth["log(threads)"]["p_value"] < 1e-9 and worth["frequency"]["p_value"] > 0.05
    assert worth["frequency"]["vif"] == pytest.approx(1, abs=1e-6)  # the grid is balanced
    assert inference["r2_adjusted"] == pytest.approx(1)
    assert model.notes == ["1 of 3 terms are not significant at 5 %: frequency"]


def test_terms_that_others_make_up_are_left_out_on_request() -> None:
    law = 100 / X[:, 1] + X[:, 2] / 1e6
    terms = "threads + frequency + I(threads + frequency) + I(threads ** 2)"
    model = create("formula", formula=terms, vif=100.0, transform="none")
    model.fit(X, law)
    kept = [t["term"] for t in model.facts["inference"]["terms"]]
    assert len(kept) == 4 and "1" in kept
    (note,) = (n for n in model.notes if n.startswith("left out as collinear: "))
    assert note.partition(": ")[2] in terms and note.partition(": ")[2] not in kept
    assert model.predict(X).shape == law.shape


def test_bounds_hold_what_is_predicted() -> None:
    far = np.array([[1.0, 16, 2.4e6], [1, 2, 1.2e6]])
    model = fitted(formula="threads", transform="none", lower=1.0, upper=0.5)
    assert model.predict(far) == pytest.approx([Y.min(), 0.5 * Y.max()])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formula": "log(thread)"}, "'thread' is not known"),
        ({"formula": "threads +"}, "expected a noun"),
        ({"formula": "time ~ threads"}, "has a left side"),
        ({"formula": "__import__('os').system('id')"}, "more than terms of axes"),
        ({"formula": "threads.real"}, "more than terms of axes"),
        ({"formula": "open('x')"}, "'open' is not known"),
        ({"formula": "bs(threads)"}, "bs needs df, like bs.threads, df=3."),
        ({"formula": "bs(threads, deg=3)"}, "unexpected keyword argument 'deg'"),
        ({"formula": "bs(threads, df=9**9)"}, "df is a whole number from 1 to 50"),
        ({"formula": "bs(threads, df=99)"}, "df is a whole number from 1 to 50"),
        ({"formula": "bs(5, df=3)"}, "'bs.5, df=3.' has no axis"),
        ({"formula": "log"}, "'log' is a function: what of?"),
        ({"formula": "threads(3)"}, "'threads' is an axis, no function"),
        ({"formula": "log(threads, 2)"}, "log takes one value, not 2"),
        ({"formula": "'threads'"}, "more than terms of axes"),
        ({"formula": "I(threads + 9**9**9**9)"}, "more than terms of axes"),
        ({"formula": "0"}, "has no terms"),
        ({"formula": "log(threads)"}, "log.threads. is not a number at nodes 1, threads 2"),
        (
            {"formula": "log(threads - 9)", "scaler": "none"},
            "is not a number at nodes 1, threads 2, .*exponentials small ones; frequency is in kHz",
        ),
        (
            {"formula": "bs(threads, df=3, lower_bound=0.5, upper_bound=1)"},
            "upper_bound must hold the whole search space .in values as .* scaler=minmax makes",
        ),
        ({"remove": "nodes"}, "'nodes' is not a term"),
        ({"interactions": "threads:cores"}, "'threads:cores' is not a pair of axes"),
        ({"interactions": "threads:threads"}, "'threads:threads' is not a pair of axes"),
        ({"transform": "cube"}, "'cube' is not known"),
        ({"df": "0"}, "0 is out of range"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_known(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fitted(**options)


def test_a_formula_of_one_term_needs_no_constant() -> None:
    model = fitted(formula="I(1 / threads) - 1", transform="none", scaler="none")
    (worth,) = model.facts["inference"]["terms"]
    assert worth["term"] == "I(1 / threads)" and worth["vif"] == 1


def test_a_blank_formula_is_none() -> None:
    assert (fitted(formula=" ").predict(X) == fitted().predict(X)).all()


def test_the_example_in_the_list_of_models_can_be_fitted() -> None:
    (example,) = re.findall("'(.*?)'", next(o for o in Formula.OPTIONS if o.name == "formula").help)
    assert len(fitted(formula=example).facts["inference"]["terms"]) == 5
