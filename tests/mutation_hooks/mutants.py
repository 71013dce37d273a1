"""One mutant of a source, and where it differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A source with one change: its first and last line, what stood there and what stands there."""

    text: str
    line: int
    last: int
    before: str
    after: str

    @classmethod
    def of(cls, text: str, begin: int, end: int, new: str, shown: str = "") -> Mutant:
        """Put ``new`` in the place of ``text[begin:end]``."""
        mutated = text[:begin] + new + text[end:]
        number = text.count("\n", 0, begin + (len(shown) > 0)) + 1
        first = text.rfind("\n", 0, begin) + 1
        line = text[first : text.find("\n", end - 1 if text[end - 1] == "\n" else end)]
        changed = mutated[first : begin + len(new) + len(line) - (end - first)]
        return cls(mutated, number, text.count("\n", 0, end) + 1, line.strip(), changed.strip())

    def __str__(self) -> str:
        return f"{self.line}: {self.before}  =>  {self.after or '(nothing)'}"


def unique(text: str, mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """Leave out mutants that are another's equal, or the source itself."""
    seen = {text}
    for mutant in mutants:
        if mutant.text not in seen:
            seen.add(mutant.text)
            yield mutant
