"""The manual's search for terms (chapters 6 and 7), term by term from a constant.

Main effects, interactions with terms already in, and each over thread counts. It ends where nothing
improves or the new term fails a test at 5 %. Over hundreds of candidates that test is too kind;
``search_strict`` is the default.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor_lab.profile.regression import (
    EXACT,
    LinearFit,
    determination,
    fit_linear,
    relative_error,
    weights_of,
)
from advisor_lab.profile.selection import MOST_TERMS, SearchData, TermChoice, distinct
from advisor_lab.profile.terms import CandidateTerm, divided, shares

_LEVEL, _FOLDS = 0.05, 10
"""Significance that a term needs; folds of the cross-validation."""


def search(data: SearchData, most: int = MOST_TERMS) -> TermChoice:
    """Return the terms the manual's search finds, ``most`` of them at most."""
    chosen: list[CandidateTerm] = []
    weighting, best = _score(data, chosen)
    looked = 0
    while len(chosen) < most and len(chosen) + 2 < len(data.y) and best > _perfect(data):
        options = _options(data, chosen)
        looked = max(looked, len(options))
        scored = []
        for term in options:
            if len(distinct(data, [*chosen, term])) == len(chosen) + 1:
                scored.append((*_score(data, [*chosen, term]), term))
        scored.sort(key=lambda s: s[1])
        for under, score, term in scored:
            fit = fit_linear(data.design([*chosen, term]), data.y, under)
            if score >= best or fit.doubt(len(chosen)) > _LEVEL:
                return TermChoice(tuple(chosen), weighting, looked)
            if data.allowed([*chosen, term], fit):
                chosen.append(term)
                weighting, best = under, score
                break
        else:
            break
    return TermChoice(tuple(chosen), weighting, looked)


def _perfect(data: SearchData) -> float:
    return EXACT if data.accurate else -np.inf


def _options(data: SearchData, chosen: list[CandidateTerm]) -> list[CandidateTerm]:
    """Return the candidates of one step that are not in yet."""
    options = [*divided(data.mains, data.threads), *shares(data.threads)]
    for term in chosen:
        independent_mains = [m for m in data.mains if not m.parameters & term.parameters]
        options += divided([term.times(m) for m in independent_mains], data.threads)
    texts = {t.expression.text for t in chosen}
    by_text = {t.expression.text: t for t in options if t.expression.text not in texts}
    return list(by_text.values())


def _score(data: SearchData, terms: list[CandidateTerm]) -> tuple[str, float]:
    """Return the weighting and what is least for the best model (section 6.2.5)."""
    design = data.design(terms)
    if data.accurate:
        scores = [(_folded(data, design, w), w) for w in data.weightings()]
        score, weighting = min(scores, key=lambda s: s[0])
        return weighting, score
    weighting = data.weightings()[0]
    fit = fit_linear(design, data.y, weighting)
    if not data.weighted:
        return weighting, -_adjusted(data, fit, design)
    residuals = data.y - fit.predict(design)
    weights = weights_of(data.y, weighting)
    n, k = len(data.y), design.shape[1] + 1
    floor = (EXACT**2 * weights * data.y**2).sum()
    return weighting, n * np.log(max(float(weights @ residuals**2), floor) / n) + k * np.log(n)


def _adjusted(data: SearchData, fit: LinearFit, design: NDArray[np.float64]) -> float:
    n, k = design.shape
    r2 = determination(data.y, fit.predict(design))
    return 1 - (1 - r2) * (n - 1) / (n - k - 1) if n > k + 1 else -np.inf


def _folded(data: SearchData, design: NDArray[np.float64], weighting: str) -> float:
    """Return the mean relative error over ten folds, run i in fold i mod 10."""
    n = len(data.y)
    predicted = np.empty(n)
    for fold in range(min(_FOLDS, n)):
        out = np.arange(n) % _FOLDS == fold
        if (~out).sum() < design.shape[1] + 1:
            return np.inf
        fit = fit_linear(design[~out], data.y[~out], weighting)
        predicted[out] = fit.predict(design[out])
    return relative_error(data.y, predicted)
