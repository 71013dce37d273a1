"""The model of one number: its terms, how they were found, and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from advisor.core.expression import Expression, parse_expression
from advisor.errors import InputError
from advisor_lab.profile import search_manual, search_strict
from advisor_lab.profile.learners import LEARNER_KINDS, Learner
from advisor_lab.profile.regression import (
    EXACT,
    FloatColumn,
    LinearFit,
    fit_linear,
    relative_error,
)
from advisor_lab.profile.selection import SearchData, TermChoice, distinct, given
from advisor_lab.profile.setup import LINEAR, MetricOptions
from advisor_lab.profile.terms import CandidateTerm, Values, columns, divided, products, shares

SearchMethod = Literal["strict", "manual"]
_FOLDS, _MOST_INPUTS = 10, 3
"""Folds of the cross-validation; inputs of a model, at most."""
_FEW = 5
"""Runs below which the strict search cannot be sure of any term."""
_LEAST = 4
"""Runs below which some term always fits by luck: three drawn ones were up to 2,900 times off."""
_RUNS_PER_TERM = 3
"""Runs that each term of the manual's search has to have where the strict one was not sure."""
_TREND = 2.0
"""Standard deviations of Kendall's score above which a metric has a trend."""
_POWERS = ("-1", "-1/2", "1/4", "1/3", "2/3", "3/4", "4/3", "3/2")
"""Powers of a parameter that may be the truth though no complexity names them."""
_SURE = 0.9
"""Of what may come, this share lies within the interval."""
_HALVINGS = 50
"""Of a range in which the end of an interval is looked for."""
FloatRows = NDArray[np.float64]


@dataclass(slots=True)
class ScalarModel:
    """A fitted number; ``weighting`` is "" where the model is no regression."""

    terms: tuple[Expression, ...]
    weighting: str
    fit: LinearFit | Learner
    candidates: int = 0
    notes: list[str] = field(default_factory=list)
    others: OtherTerms | None = None
    """What else the runs allow; None where the terms were given."""

    def predict(self, values: Values) -> FloatColumn:
        """Return the predictions, before boundaries."""
        return self.fit.predict(columns(self.terms, values))

    def half_widths(self, values: Values, predicted: FloatColumn) -> FloatColumn:
        """Return half of the 90 % interval at each place; NaN where none is known.

        It holds what other terms would predict, too, that the runs allow as well.
        """
        if not isinstance(self.fit, LinearFit):
            return np.full(len(predicted), np.nan)
        design = columns(self.terms, values)
        if self.others is None or self.fit.freedom < 1:
            return self.fit.half_widths(design, predicted)
        chosen = [CandidateTerm(t, t.names) for t in self.terms]
        return self.others.half_widths(chosen, self.fit, values, predicted)


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
        place_text = ", ".join(f"{n}={data.values[n][i]:g}" for n in data.parameters or data.values)
        notes.append(
            f"{data.file}: the value is {data.y[i]:g} at {place_text}: it has no weights, 1 is used"
        )
    if options.terms is not None:
        terms = [CandidateTerm(t, t.names) for t in options.terms]
        choice = given(data, terms, options.weighting or None)
    else:
        choice = search_manual.search(data) if method == "manual" else _strict(data)
    fit = fit_linear(data.design(choice.terms), data.y, choice.weighting)
    if options.terms is not None and not data.allowed(choice.terms, fit):
        notes.append(f"{data.file}: the terms given break the constraints")
    expressions = tuple(t.expression for t in choice.terms)
    other_terms = OtherTerms(data) if options.terms is None else None
    return ScalarModel(
        expressions, choice.weighting, fit, choice.candidates, [*notes, *choice.notes], other_terms
    )


def _strict(data: SearchData) -> TermChoice:
    """Return the strict search's terms; the manual's where it has none despite a trend."""
    choice = search_strict.search(data)
    if choice.terms or np.ptp(data.y) <= EXACT * np.abs(data.y).max(initial=0.0):
        return choice
    trend = _trend(data)
    if not trend and len(data.y) >= _FEW:
        return choice
    most = max(1, len(data.y) // _RUNS_PER_TERM) if len(data.y) >= _LEAST else 0
    manual = search_manual.search(data, most)
    reason = f"it has a trend over {trend}" if trend else f"{len(data.y)} runs are few"
    where = f"{data.file}: " if data.file else ""
    if manual.terms and _stays_above_0(data, manual):
        note = (
            f"{where}the strict search is sure of no term, but {reason}: the manual's search "
            "found one, and the interval reckons with others"
        )
        return replace(manual, notes=[*manual.notes, note])
    note = f"{where}no term explains it, though {reason}: do not extrapolate the constant"
    return replace(choice, notes=[*choice.notes, note])


def _stays_above_0(data: SearchData, choice: TermChoice) -> bool:
    """Tell whether a metric that is above 0 at every run stays so far beyond them."""
    if data.y.min() <= 0:
        return True
    fit = fit_linear(data.design(choice.terms), data.y, choice.weighting)
    far = {name: column * search_strict.FAR for name, column in data.values.items()}
    with np.errstate(all="ignore"):
        return bool((fit.predict(columns([t.expression for t in choice.terms], far)) > 0).all())


def _trend(data: SearchData) -> str:
    """Return the parameter with which the metric rises or falls, "" for none.

    Kendall's test (1938) at about 5 %, on runs that differ in one parameter alone.
    """
    names = list(data.parameters or data.values)
    table = np.column_stack([data.values[n] for n in names])
    for i, name in enumerate(names):
        rest = np.delete(table, i, axis=1)
        score = variance = 0.0
        for row in np.unique(rest, axis=0):
            row_mask = (rest == row).all(axis=1)
            x, y = table[row_mask, i], data.y[row_mask]
            signs = np.sign(x[:, None] - x) * np.sign(y[:, None] - y)
            score += float(signs.sum()) / 2
            n = len(x)
            # The variance of Kendall's score where chance alone orders n runs.
            variance += n * (n - 1) * (2 * n + 5) / 18
        # One less, as scores go in steps of two (the correction for continuity).
        if variance and (abs(score) - 1) / np.sqrt(variance) > _TREND:
            return name
    return ""


@dataclass(slots=True)
class OtherTerms:
    """The terms that a search could have chosen: how much predictions depend on the choice."""

    data: SearchData

    def half_widths(
        self,
        chosen: Sequence[CandidateTerm],
        fit: LinearFit,
        values: Values,
        predicted: FloatColumn,
    ) -> FloatColumn:
        """Return how far around ``predicted`` 90 % of what may come lies, whatever the terms.

        Other terms stand in the place of each chosen one, beside them, or alone; each set counts by
        how likely it makes the runs (Bayesian model averaging, Hoeting et al. 1999), with its own
        error.
        """
        data = self.data
        chosen_texts = {t.expression.text for t in chosen}
        candidates = distinct(
            data,
            [
                *shares(data.threads),
                *divided(data.mains, data.threads),
                *products(data.mains),
                *self._powers(),
            ],
        )
        other_terms = [c for c in candidates if c.expression.text not in chosen_texts]
        sets = [
            [*chosen[:i], term, *chosen[i + 1 :]]
            for i in range(max(1, len(chosen)))
            for term in other_terms
        ]
        sets += [[*chosen, term] for term in other_terms] if chosen else []
        sets += [[candidate] for candidate in candidates] if len(chosen) > 1 else []
        if len(data.y) < len(chosen) + 3 and chosen:
            sets += [list(chosen[:i]) + list(chosen[i + 1 :]) for i in range(len(chosen))]
        scores, freedoms, means, errors = [], [], [], []
        usual = fit_linear(data.design(()), data.y, fit.weighting).variance
        for terms, terms_fit in [(chosen, fit), *((t, self._fit(t, fit)) for t in sets)]:
            if terms_fit.freedom < 1 or not (terms is chosen or data.allowed(terms, terms_fit)):
                continue
            try:
                design = columns([t.expression for t in terms], values)
            except InputError:
                continue
            scores.append(_score(len(data.y), terms_fit, usual))
            freedoms.append(terms_fit.freedom)
            means.append(terms_fit.predict(design))
            errors.append(terms_fit.errors(design, means[-1]))
        weights = np.exp(-0.5 * (np.array(scores) - min(scores)))
        apart = np.array(means) - predicted
        finite = np.isfinite(apart) & np.isfinite(errors)
        shares_of = np.where(finite, weights[:, None], 0.0)
        return _reach(
            np.where(finite, apart, 0.0),
            np.where(finite, errors, 1.0),
            np.array(freedoms, dtype=np.float64)[:, None],
            shares_of / shares_of.sum(axis=0),
        )

    def _fit(self, terms: Sequence[CandidateTerm], fit: LinearFit) -> LinearFit:
        return fit_linear(self.data.design(list(terms)), self.data.y, fit.weighting)

    def _powers(self) -> list[CandidateTerm]:
        """Return powers between those of complexities: a law need not be among the candidates."""
        names = [n for n in self.data.parameters if self.data.values[n].min() > 0]
        powers = [parse_expression(f"{n}^({e})") for n in names for e in _POWERS]
        return [CandidateTerm(p, p.names) for p in powers]


def _score(runs: int, fit: LinearFit, usual: float) -> float:
    """Return minus twice the logarithm of how likely terms make the runs, whatever the noise.

    Noise is not known but integrated over: among a hundred sets one fits three runs by luck.
    ``usual`` is the variance without terms, which makes scores of several sizes comparable.
    """
    terms = runs - fit.freedom
    return fit.freedom * float(np.log(fit.variance / usual)) + terms * float(np.log(runs))


def _reach(
    apart: FloatRows, errors: FloatRows, freedoms: FloatRows, weights: FloatRows
) -> FloatColumn:
    """Return the r of each column so that 90 % of a mixture of Student's distributions is in ±r.

    A row each has its mean, its standard error, its degrees of freedom and its weight.
    """
    errors = np.maximum(errors, 1e-300)
    low: FloatColumn = np.zeros(apart.shape[1])
    high: FloatColumn = (np.abs(apart) + stdtrit(freedoms, 0.5 + _SURE / 2) * errors).max(
        axis=0
    ) * 1.01
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        ends = (middle - apart) / errors, (-middle - apart) / errors
        inside = stdtr(freedoms, ends[0]) - stdtr(freedoms, ends[1])
        enough = (weights * inside).sum(axis=0) >= _SURE
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


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
            options_left += [
                *divided(data.mains, data.threads)[len(data.mains) :],
                *shares(data.threads),
            ]
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
