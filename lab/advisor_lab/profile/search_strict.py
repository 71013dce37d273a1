"""The default search for terms: stricter than the manual's, for nobody looks at every model.

Differences from the manual's: products of main effects are candidates from the start; the weighting
is the likeliest; a term must pass its test at 1 % divided by all candidates and weightings tried
(Bonferroni), with weights of observed and of predicted values; it must help to predict the largest
runs from the smaller ones; it must not turn a growing metric into one that falls below 0; and terms
that others made superfluous leave.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from advisor_lab.profile.regression import (
    EXACT,
    FloatColumn,
    LinearFit,
    fit_linear,
    relative_error,
    weights_of,
)
from advisor_lab.profile.selection import (
    MOST_TERMS,
    SearchData,
    TermChoice,
    distinct,
    likelihood,
)
from advisor_lab.profile.terms import ARRAYS, CandidateTerm, divided, products, shares

LEVEL = 0.01
"""Chance that a metric which depends on nothing gets a term."""
_TRIED = 12
"""Candidates looked at closely in one step, the best first."""
FAR = 1000.0
"""So many times the largest run a metric that grew must not have fallen below 0."""
_TIE = 2.0
"""A candidate more involved by one part must be likelier by this (twice the log likelihood)."""


def search(data: SearchData) -> TermChoice:
    """Return the terms that the runs leave no doubt about."""
    candidates = distinct(
        data, [*shares(data.threads), *divided([*data.mains, *products(data.mains)], data.threads)]
    )
    weightings = data.weightings()
    if not candidates or len(data.y) < 3:
        return TermChoice((), weightings[0], len(candidates))
    table = data.design(candidates)
    level = LEVEL / (len(candidates) * len(weightings))
    choices = [_Search(data, candidates, table, w, level).run() for w in weightings]
    fits = [
        fit_linear(table[:, list(f)], data.y, w) for f, w in zip(choices, weightings, strict=True)
    ]
    best = min(range(len(choices)), key=lambda i: likelihood(data.y, fits[i]))
    terms = tuple(candidates[i] for i in choices[best])
    return TermChoice(terms, weightings[best], len(candidates))


class _Search:
    """The search under one weighting, on weighted columns."""

    def __init__(
        self,
        data: SearchData,
        candidates: Sequence[CandidateTerm],
        table: NDArray[np.float64],
        weighting: str,
        level: float,
    ) -> None:
        self.data, self.candidates, self.table = data, candidates, table
        self.weighting, self.level = weighting, level
        root = np.sqrt(weights_of(data.y, weighting))
        self.columns = table / np.abs(table).max(axis=0) * root[:, None]
        self.constant, self.y = root, data.y * root
        self.floor = float(EXACT**2 * (self.y @ self.y))
        self.parts = np.array([c.parts for c in candidates])
        self.chosen: list[int] = []

    def run(self) -> list[int]:
        """Return the indices of the terms, the most important first."""
        while len(self.chosen) < MOST_TERMS and self._residual_sum(self.chosen) > self.floor:
            if not self._add_term():
                break
            self._drop_superfluous()
            self._swap_terms()
        return self.chosen

    def _basis(self, chosen: Sequence[int]) -> NDArray[np.float64]:
        basis, _ = np.linalg.qr(np.column_stack([self.constant, self.columns[:, list(chosen)]]))
        return basis

    def _residual_sum(self, chosen: Sequence[int]) -> float:
        basis = self._basis(chosen)
        residual = self.y - basis @ (basis.T @ self.y)
        return float(residual @ residual)

    def _residual_sums(self, chosen: Sequence[int]) -> tuple[FloatColumn, float]:
        """Return the residual sum with each candidate added, infinite for dependent ones."""
        basis = self._basis(chosen)
        residual = self.y - basis @ (basis.T @ self.y)
        # What of each candidate is new to the chosen terms tells what it adds: nothing is fitted.
        residual_columns = self.columns - basis @ (basis.T @ self.columns)
        norms = np.einsum("ij,ij->j", residual_columns, residual_columns)
        column_norms = np.einsum("ij,ij->j", self.columns, self.columns)
        rest = float(residual @ residual)
        with np.errstate(all="ignore"):
            rests = rest - (residual @ residual_columns) ** 2 / norms
        rests[(norms < 1e-12 * column_norms) | ~np.isfinite(rests)] = np.inf
        return np.maximum(rests, self.floor), rest

    def _order(self, rests: FloatColumn) -> list[int]:
        """Return candidates, the best first; simpler ones where the data do not tell them apart."""
        score = len(self.y) * np.log(rests) + _TIE * self.parts
        return [int(i) for i in np.argsort(score, kind="stable")[:_TRIED] if np.isfinite(score[i])]

    def _add_term(self) -> bool:
        rests, rest = self._residual_sums(self.chosen)
        freedom = len(self.y) - len(self.chosen) - 2
        if freedom < 1:
            return False
        for i in self._order(rests):
            f = (rest - rests[i]) / (rests[i] / freedom)
            if stats.f.sf(f, 1, freedom) > self.level:
                continue
            if self._sound([*self.chosen, i]):
                self.chosen.append(i)
                return True
        return False

    def _drop_superfluous(self) -> None:
        """Take out terms that later ones made superfluous."""
        while len(self.chosen) > 1:
            fit = fit_linear(self.table[:, self.chosen], self.data.y, self.weighting)
            doubts = [fit.doubt(i) for i in range(len(self.chosen))]
            worst = int(np.argmax(doubts))
            fewer = [c for i, c in enumerate(self.chosen) if i != worst]
            if doubts[worst] <= self.level or not self._allowed(fewer):
                return
            self.chosen = fewer

    def _swap_terms(self) -> None:
        """Put a better candidate in a term's place."""
        n = len(self.y)
        for place in range(len(self.chosen)):
            other_terms = [c for i, c in enumerate(self.chosen) if i != place]
            rests, _ = self._residual_sums(other_terms)
            incumbent = self.chosen[place]
            for i in self._order(rests)[:3]:
                gain = n * np.log(rests[incumbent] / rests[i]) + _TIE * (
                    self.parts[incumbent] - self.parts[i]
                )
                if i == incumbent or i in other_terms or gain <= _TIE:
                    break
                swapped = [*self.chosen[:place], i, *self.chosen[place + 1 :]]
                if self._allowed(swapped):
                    self.chosen = swapped
                    break

    # -- what a model has to be --------------------------------------------------------------------

    def _fit(self, chosen: Sequence[int]) -> LinearFit:
        return fit_linear(self.table[:, list(chosen)], self.data.y, self.weighting)

    def _allowed(self, chosen: Sequence[int]) -> bool:
        terms = [self.candidates[i] for i in chosen]
        return self.data.allowed(terms, self._fit(chosen))

    def _sound(self, chosen: list[int]) -> bool:
        return (
            self._allowed(chosen)
            and self._lasts(chosen)
            and not self._turns_negative(chosen)
            and self._foresees(chosen)
        )

    def _lasts(self, chosen: list[int]) -> bool:
        """Tell whether the last term passes its test with weights of predicted values, too.

        Those of observed values let a single low outlier decide.
        """
        design = self.table[:, chosen]
        level = self._fit(chosen).predict(design)
        if level.min() <= 0:
            return True
        fit = fit_linear(design, self.data.y, self.weighting, level)
        return fit.doubt(len(chosen) - 1) <= self.level

    def _turns_negative(self, chosen: list[int]) -> bool:
        """Tell whether the last term makes a metric that grew fall below 0 far away."""
        data, earlier_terms = self.data, chosen[:-1]
        if data.y.min() <= 0 or not earlier_terms:
            return False
        far = self._far_columns()
        with np.errstate(all="ignore"):
            old = self._fit(earlier_terms).predict(far[:, earlier_terms])
            new = self._fit(chosen).predict(far[:, chosen])
        return bool(np.any((old > data.y.max()) & (new < 0)))

    def _far_columns(self) -> NDArray[np.float64]:
        """Return the candidates' columns where each parameter, and all, are far beyond the runs."""
        data = self.data
        names = list(data.values)
        top = {n: float(np.max(data.values[n])) for n in names}
        rows = [
            {n: top[n] * (FAR if n == far or far == "" else 1.0) for n in names}
            for far in ("", *names)
        ]
        values = {n: np.array([row[n] for row in rows]) for n in names}
        with np.errstate(all="ignore"):
            return np.column_stack(
                [
                    np.broadcast_to(
                        np.asarray(c.expression.value(values, ARRAYS), dtype=np.float64),
                        (len(rows),),
                    )
                    for c in self.candidates
                ]
            )

    def _foresees(self, chosen: list[int]) -> bool:
        """Tell whether the last term helps to predict each parameter's largest runs from the rest.

        Where too few runs are left to tell, it counts as helping.
        """
        data = self.data
        for name in data.parameters or data.values:
            column = data.values[name]
            if len(np.unique(column)) < 4:
                continue
            top = column == column.max()
            lower = ~top
            if lower.sum() < len(chosen) + 3:
                continue
            old, new = (self._foreseen(c, lower, top) for c in (chosen[:-1], chosen))
            if new > old and new > 10 * EXACT:
                return False
        return True

    def _foreseen(
        self, chosen: Sequence[int], lower: NDArray[np.bool_], top: NDArray[np.bool_]
    ) -> float:
        design, y = self.table[:, list(chosen)], self.data.y
        fit = fit_linear(design[lower], y[lower], self.weighting)
        return relative_error(y[top], fit.predict(design[top]))
