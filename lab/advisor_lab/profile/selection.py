"""What both searches for terms share: the data searched, its candidates, and what is returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.core.expression import Expression
from advisor.errors import InputError
from advisor_lab.profile.constraints import NO_CONSTRAINTS, ModelConstraints
from advisor_lab.profile.regression import WEIGHTINGS, FloatColumn, LinearFit, fit_linear
from advisor_lab.profile.terms import ARRAYS, CandidateTerm, Values, columns, evaluate

MOST_TERMS = 8
"""Terms of a model, at most; more fit the noise of a dozen runs."""


@dataclass(frozen=True, slots=True)
class SearchData:
    """A metric at every run, and what its terms may be made of.

    ``values`` are the parameters and the thread counts that ``threads`` name.
    """

    values: Values
    y: FloatColumn
    mains: Sequence[CandidateTerm]
    threads: Sequence[Expression] = ()
    constraints: ModelConstraints = NO_CONSTRAINTS
    weighted: bool = True
    accurate: bool = True
    file: str = ""
    parameters: Sequence[str] = ()

    def weightings(self) -> tuple[str, ...]:
        """Return the weightings to try: for relative errors only where every value is above 0."""
        if not self.weighted or self.y.min() <= 0:
            return ("1",)
        return tuple(WEIGHTINGS) if self.accurate else ("m^-1/2",)

    def column(self, term: CandidateTerm) -> FloatColumn:
        """Return a candidate's column."""
        return evaluate(term.expression, self.values, self.file)

    def design(self, terms: Sequence[CandidateTerm]) -> NDArray[np.float64]:
        """Return the columns of chosen terms."""
        return columns([t.expression for t in terms], self.values, self.file)

    def allowed(self, terms: Sequence[CandidateTerm], fit: LinearFit) -> bool:
        """Tell whether a model keeps to the constraints; thread counts follow the parameters.

        Where a thread count is a name of its own it is held as the runs have it.
        """
        if not self.constraints:
            return True
        expressions = [t.expression for t in terms]
        names = set(self.parameters or self.values) | {n for e in expressions for n in e.names}
        observed = {name: self.values[name] for name in self.values if name in names}

        def predict(values: Values) -> NDArray[np.float64]:
            floats = {n: np.asarray(v, dtype=np.float64) for n, v in values.items()}
            length = len(next(iter(floats.values())))
            term_columns = [
                np.broadcast_to(np.asarray(e.value(floats, ARRAYS)), (length,)) for e in expressions
            ]
            design = np.column_stack(term_columns) if term_columns else np.zeros((length, 0))
            return fit.predict(design)

        return self.constraints.hold(predict, observed)


@dataclass(frozen=True, slots=True)
class TermChoice:
    """Terms that were chosen, the weighting, and what to say of it."""

    terms: tuple[CandidateTerm, ...]
    weighting: str
    candidates: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """Return the terms as text, the most important first."""
        return [t.expression.text for t in self.terms]


def distinct(data: SearchData, terms: Sequence[CandidateTerm]) -> list[CandidateTerm]:
    """Return the candidates whose columns vary and are no multiple of an earlier one's."""
    different: list[CandidateTerm] = []
    column_keys: set[bytes] = set()
    for term in terms:
        column = data.column(term)
        peak = np.abs(column).max(initial=0.0)
        spread = column - column.mean()
        norm = float(np.sqrt(spread @ spread))
        if not norm > 1e-10 * peak * np.sqrt(len(column)):
            continue
        unit = spread / norm
        key = np.round(unit * np.sign(unit[np.argmax(np.abs(unit) > 1e-6)]), 9) + 0.0
        if key.tobytes() not in column_keys:
            column_keys.add(key.tobytes())
            different.append(term)
    return different


def given(data: SearchData, terms: Sequence[CandidateTerm], weighting: str | None) -> TermChoice:
    """Return a choice of terms the user gave, with the likeliest weighting unless one is named.

    Raises InputError where there are more terms than runs can tell apart.
    """
    if len(terms) + 1 > len(data.y):
        raise InputError(
            f"{data.file}: {len(terms)} terms and a constant need {len(terms) + 1} runs at least, "
            f"there are {len(data.y)}",
            hint="measure more, or give fewer terms",
        )
    design = data.design(terms)
    if weighting is None or weighting not in data.weightings():
        weighting = min(
            data.weightings(), key=lambda w: likelihood(data.y, fit_linear(design, data.y, w))
        )
    return TermChoice(tuple(terms), weighting)


def likelihood(y: FloatColumn, fit: LinearFit) -> float:
    """Return BIC of a fit, comparable between weightings: a residual's spread is m^(power / 2)."""
    power = WEIGHTINGS[fit.weighting]
    n, k = len(y), len(fit.coefficients)
    variance = fit.variance * max(fit.freedom, 0) / n if fit.freedom > 0 else np.inf
    jacobian = power * float(np.log(y).sum()) if power else 0.0
    return float(n * np.log(max(variance, 1e-300)) + jacobian + k * np.log(n))
