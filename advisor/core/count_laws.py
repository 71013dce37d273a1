"""What an application's profiles say of a size: instructions it executes, memory it touches.

Counts hardly vary from run to run, so few profiles tell how they grow. The laboratory fits sums of
terms (docs/profiles.md); here they are kept as text with coefficients and evaluated. Standard
library only: the daemon does so, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from advisor.core.codec import JsonForm
from advisor.core.expression import Expression, parse_expression
from advisor.errors import InputError

CountTerm = tuple[float, str]
"""A coefficient and the term it is of; the constant's is ``1``."""
TermSum = tuple[CountTerm, ...]
ClassCount = tuple[TermSum, TermSum]
"""Of a class of threads: how many there are, and what each of them does."""
_NO_VALUE = (ArithmeticError, KeyError, TypeError, ValueError)
"""What a term raises where it has no value: a logarithm of 0, a root of less, a name unknown."""
INSTRUCTIONS = "instructions"
"""The name of the count that is all instructions of a run."""


@dataclass(frozen=True, slots=True)
class CountLaws(JsonForm):
    """Laws of a run's instructions, and of the bytes it touches, over the profiles' parameters.

    ``processes`` is the parameter that counts processes, "" for none; ``threads`` are the counts of
    threads that terms may name; ``instructions`` and ``footprint`` have an entry for each class of
    threads and are empty where nothing is known. ``fixed`` are sizes that are not stated again.
    """

    parameters: tuple[str, ...]
    processes: str = ""
    threads: Mapping[str, TermSum] = field(default_factory=dict)
    instructions: tuple[ClassCount, ...] = ()
    footprint: tuple[ClassCount, ...] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)

    def missing(self, names: Iterable[str]) -> str:
        """Return a parameter that a size with these names does not state, "" where there is none.

        A parameter is the size's of that name, whatever its case, or the number of processes.
        """
        stated_names = {n.lower() for n in (*names, *self.fixed)}
        lacking = (
            p for p in self.parameters if p.lower() not in stated_names and p != self.processes
        )
        return next(lacking, "")

    def counts(self, size: Mapping[str, float], processes: float) -> dict[str, float] | None:
        """Return all instructions of a run, and those of each term; None where that is not known.

        The terms' are what the term alone would grow like; all are above 0.
        """
        values = self._values(size, processes)
        if values is None or not self.instructions:
            return None
        counts: dict[str, float] = {INSTRUCTIONS: 0.0}
        try:
            for members, per_thread in self.instructions:
                threads = max(0.0, _sum(members, values))
                counts[INSTRUCTIONS] += threads * max(0.0, _sum(per_thread, values))
                for coefficient, term in per_thread:
                    name = f"{INSTRUCTIONS}[{term}]"
                    term_count = abs(coefficient) * threads * _parsed(term).value(values)
                    counts[name] = counts.get(name, 0.0) + term_count
        except _NO_VALUE:
            return None
        return counts if all(0.0 < v < float("inf") for v in counts.values()) else None

    def footprint_bytes(self, size: Mapping[str, float], processes: float) -> float | None:
        """Return the bytes that all processes touch together; None where that is not known.

        What threads share counts for each of them, so it is the most they take.
        """
        values = self._values(size, processes)
        if values is None or not self.footprint:
            return None
        try:
            total_bytes = sum(
                max(0.0, _sum(members, values)) * max(0.0, _sum(per_thread, values))
                for members, per_thread in self.footprint
            )
        except _NO_VALUE:
            return None
        return total_bytes if total_bytes < float("inf") else None

    def _values(self, size: Mapping[str, float], processes: float) -> dict[str, float] | None:
        """Return the parameters and the counts of threads at a size."""
        stated = {n.lower(): v for n, v in (*self.fixed.items(), *size.items())}
        if self.missing(stated):
            return None
        values = {p: stated.get(p.lower(), float(processes)) for p in self.parameters}
        try:
            counts = {name: max(1.0, _sum(law, values)) for name, law in self.threads.items()}
        except _NO_VALUE:
            return None
        return values | counts

    @classmethod
    def from_dict(cls, data: object) -> CountLaws | None:
        """Read the JSON form; None for anything else."""
        try:
            assert isinstance(data, Mapping)
            return cls(
                tuple(map(str, data["parameters"])),
                str(data["processes"]),
                {str(n): _read_sum(law) for n, law in data["threads"].items()},
                _read_classes(data["instructions"]),
                _read_classes(data["footprint"]),
                {str(n): float(v) for n, v in data["fixed"].items()},
            )
        except (AssertionError, AttributeError, InputError, KeyError, TypeError, ValueError):
            return None


def _sum(law: TermSum, values: Mapping[str, float]) -> float:
    return sum(coefficient * float(_parsed(term).value(values)) for coefficient, term in law)


@lru_cache(maxsize=4096)
def _parsed(term: str) -> Expression:
    return parse_expression(term)


def _read_sum(data: Any) -> TermSum:
    terms = tuple((float(coefficient), str(term)) for coefficient, term in data)
    for _, term in terms:
        _parsed(term)
    return terms


def _read_classes(data: Any) -> tuple[ClassCount, ...]:
    return tuple((_read_sum(members), _read_sum(per_thread)) for members, per_thread in data)
