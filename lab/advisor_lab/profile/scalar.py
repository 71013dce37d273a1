"""The model of one number: its terms, how they were found, and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.core.expression import Expression
from advisor.errors import InputError
from advisor_lab.profile import search_manual, search_strict
from advisor_lab.profile.learners import LEARNER_KINDS, Learner
from advisor_lab.profile.regression import FloatColumn, LinearFit, fit_linear, relative_error
from advisor_lab.profile.selection import SearchData, given
from advisor_lab.profile.setup import LINEAR, MetricOptions
from advisor_lab.profile.terms import CandidateTerm, Values, columns, divided, shares

SearchMethod = Literal["strict", "manual"]
_FOLDS, _MOST_INPUTS = 10, 3
"""Folds of the cross-validation; inputs of a model, at most."""


@dataclass(slots=True)
class ScalarModel:
    """A fitted number; ``weighting`` is "" where the model is no regression."""

    terms: tuple[Expression, ...]
    weighting: str
    fit: LinearFit | Learner
    candidates: int = 0
    notes: list[str] = field(default_factory=list)

    def predict(self, values: Values) -> FloatColumn:
        """Return the predictions, before boundaries."""
        return self.fit.predict(columns(self.terms, values))

    def half_widths(self, values: Values, predicted: FloatColumn) -> FloatColumn:
        """Return half of the 90 % interval at each place; NaN where none is known."""
        if not isinstance(self.fit, LinearFit):
            return np.full(len(predicted), np.nan)
        return self.fit.half_widths(columns(self.terms, values), predicted)


def fit_scalar(
    data: SearchData, options: MetricOptions, method: SearchMethod = "strict"
) -> ScalarModel:
    """Fit one number by its options. Raises InputError."""
    if options.model not in LINEAR:
        return _learned(data, options)
    data = replace(
        data,
        weighted=options.model == "WeightedLinearRegression",
        accurate=options.mode == "accurate",
        constraints=options.constraints,
    )
    notes = []
    if data.weighted and data.y.min() <= 0 < np.ptp(data.y):
        i = int(np.argmin(data.y))
        at = ", ".join(f"{n}={data.values[n][i]:g}" for n in data.parameters or data.values)
        notes.append(
            f"{data.file}: the value is {data.y[i]:g} at {at}: it has no weights, 1 is used"
        )
    if options.terms is not None:
        terms = [CandidateTerm(t, t.names) for t in options.terms]
        choice = given(data, terms, options.weighting or None)
    else:
        choice = (search_manual if method == "manual" else search_strict).search(data)
    fit = fit_linear(data.design(choice.terms), data.y, choice.weighting)
    if options.terms is not None and not data.allowed(choice.terms, fit):
        notes.append(f"{data.file}: the terms given break the constraints")
    expressions = tuple(t.expression for t in choice.terms)
    return ScalarModel(
        expressions, choice.weighting, fit, choice.candidates, [*notes, *choice.notes]
    )


def _learned(data: SearchData, options: MetricOptions) -> ScalarModel:
    """Fit a learner; its inputs are searched for by ten folds unless they are given."""
    make = LEARNER_KINDS[options.model]
    if options.terms is not None:
        chosen = list(options.terms)
        design = columns(chosen, data.values, data.file)
        return ScalarModel(tuple(chosen), "", make(design, data.y))
    options_left: list[CandidateTerm] = [*data.mains]
    chosen, best = [], _folded(data, options.model, [])
    count = 0
    while options_left and len(chosen) < _MOST_INPUTS:
        scored = [
            (_folded(data, options.model, [*chosen, t.expression]), i)
            for i, t in enumerate(options_left)
        ]
        count = max(count, len(scored))
        score, i = min(scored)
        if not score < best:
            break
        best = score
        chosen.append(options_left.pop(i).expression)
        if len(chosen) == 1:
            options_left += [*divided(data.mains, data.threads)[len(data.mains) :],
                             *shares(data.threads)]  # fmt: skip
            texts = {c.text for c in chosen}
            options_left = [t for t in options_left if t.expression.text not in texts]
    design = columns(chosen, data.values, data.file)
    return ScalarModel(tuple(chosen), "", make(design, data.y), count)


def _folded(data: SearchData, model: str, terms: Sequence[Expression]) -> float:
    """Return the mean relative error over ten folds, run i in fold i mod 10."""
    design: NDArray[np.float64] = columns(terms, data.values, data.file)
    predicted = np.empty(len(data.y))
    for fold in range(min(_FOLDS, len(data.y))):
        out = np.arange(len(data.y)) % _FOLDS == fold
        if out.all():
            raise InputError(f"{data.file}: one run is too few for {model}")
        if design.shape[1]:
            learner = LEARNER_KINDS[model](design[~out], data.y[~out])
            predicted[out] = learner.predict(design[out])
        else:
            predicted[out] = data.y[~out].mean()
    return relative_error(data.y, predicted)
