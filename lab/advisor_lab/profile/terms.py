"""Terms: expressions of scaling parameters and thread counts, and the candidates of a search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.core.expression import PLACEHOLDERS, Expression, parse_expression, product, quotient
from advisor.errors import InputError

ARRAYS: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "exp": np.exp,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
}
Values = Mapping[str, NDArray[np.float64]]
"""Arrays by name: parameters, thread counts, and reuse distances."""
_ONE = parse_expression("1")


@dataclass(frozen=True, slots=True)
class CandidateTerm:
    """A term that a search may add: a product of main effects, perhaps over a thread count."""

    numerator: Expression
    parameters: frozenset[str]
    threads: Expression | None = None

    @property
    def expression(self) -> Expression:
        """Return the whole term."""
        return self.numerator if self.threads is None else quotient(self.numerator, self.threads)

    @property
    def parts(self) -> int:
        """Return how involved it is: parameters, and one more where threads divide it."""
        return len(self.parameters) + (self.threads is not None)

    def times(self, main: CandidateTerm) -> CandidateTerm:
        """Return the interaction with a main effect; what was divided stays so."""
        return CandidateTerm(
            product(self.expression, main.numerator), self.parameters | main.parameters
        )


def evaluate(expression: Expression, values: Values, file: str = "") -> NDArray[np.float64]:
    """Return a term's column. Raises InputError where it is not finite: log or division of 0."""
    length = len(next(iter(values.values())))
    floats = {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}
    with np.errstate(all="ignore"):
        column = np.broadcast_to(
            np.asarray(expression.value(floats, ARRAYS), dtype=np.float64), (length,)
        )
    bad = np.flatnonzero(~np.isfinite(column))
    if len(bad):
        place_text = ", ".join(f"{n} = {floats[n][bad[0]]:.6g}" for n in sorted(expression.names))
        where = f"{file}: " if file else ""
        raise InputError(
            f"{where}term {expression.text} has no finite value at {place_text}",
            hint="leave out that run or the term",
        )
    return column


def columns(terms: Iterable[Expression], values: Values, file: str = "") -> NDArray[np.float64]:
    """Return the columns of terms, (n, k)."""
    length = len(next(iter(values.values())))
    term_columns = [evaluate(term, values, file) for term in terms]
    return np.column_stack(term_columns) if term_columns else np.zeros((length, 0))


def main_effects(
    patterns: Mapping[str, Sequence[Expression]], parameters: Sequence[str]
) -> list[CandidateTerm]:
    """Return the main effects of complexity definitions: patterns applied to their parameters.

    ``patterns`` maps a parameter, or "" for all, to patterns of ``x``; one that names parameters
    itself stands for those. Raises InputError for a parameter that there is not.
    """
    parameter_names = frozenset(parameters)
    by_text: dict[str, CandidateTerm] = {}
    for owner, listed in patterns.items():
        if owner and owner not in parameter_names:
            names = ", ".join(parameters)
            raise InputError(f"there is no parameter {owner!r}", hint=f"there are: {names}")
        for pattern in listed:
            stands = pattern.names & PLACEHOLDERS
            for parameter in ([owner] if owner else parameters) if stands else [""]:
                term = pattern.replaced(stands, parameter) if stands else pattern
                unknown = sorted(term.names - parameter_names)
                if unknown:
                    raise InputError(
                        f"there is no parameter {unknown[0]!r}, used in {pattern.text!r}",
                        hint=f"there are: {', '.join(parameters)}",
                    )
                if term.names:
                    by_text.setdefault(term.text, CandidateTerm(term, term.names))
    return list(by_text.values())


def divided(terms: Iterable[CandidateTerm], threads: Sequence[Expression]) -> list[CandidateTerm]:
    """Return terms and each of them over each thread count."""
    quotients = []
    for term in terms:
        quotients.append(term)
        if term.threads is None:
            quotients += [
                CandidateTerm(term.numerator, term.parameters, count) for count in threads
            ]
    return quotients


def shares(threads: Sequence[Expression]) -> list[CandidateTerm]:
    """Return constants over thread counts: work of one size, shared by all."""
    return [CandidateTerm(_ONE, frozenset(), count) for count in threads]


def products(mains: Sequence[CandidateTerm]) -> list[CandidateTerm]:
    """Return the products of main effects of different parameters, two or three of them."""
    combined = []
    for count in (2, 3):
        for chosen in itertools.combinations(mains, count):
            if sum(len(m.parameters) for m in chosen) == len(
                frozenset().union(*(m.parameters for m in chosen))
            ):
                term = chosen[0]
                for main in chosen[1:]:
                    term = term.times(main)
                combined.append(term)
    return combined
