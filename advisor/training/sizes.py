"""``advisor train SCRIPT --sizes n=1e6,2e6,4e6``: the same job at several sizes.

A size is set where the script writes its number: in the launcher's line, in a variable that the
line uses, in the script's arguments. Which place that is shows in what the job would be recognised
as: of all numbers with the parameter's value the one counts that, changed, changes this parameter
alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from advisor.core.parameters import (
    DIGITS,
    ParameterLine,
    format_number,
    parameters_of,
    parse_number,
    plain_number,
)
from advisor.core.size_table import FEWEST_SIZES
from advisor.errors import InputError, UsageError

_NUMBER = re.compile(rf"(?<![\d.$])(?<!\$\{{)({DIGITS})([kKmMgGtT]i?(?![A-Za-z]))?(?!\.?\d)")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_STATED = "#ADVISOR"


@dataclass(frozen=True, slots=True)
class AskedSizes:
    """A parameter and its values, ascending, each as it was written."""

    parameter: str
    values: tuple[tuple[float, str], ...]

    @classmethod
    def read(cls, text: str) -> AskedSizes:
        """Read ``n=1e6,2e6,4e6``. Raises UsageError that names what is wrong."""
        name, equals, rest = (part.strip() for part in text.partition("="))
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(f"--sizes {text!r}: write one parameter, like n=1e6,2e6,4e6")
        try:
            values = {parse_number(word): word.strip() for word in rest.split(",") if word.strip()}
        except ValueError as error:
            raise UsageError(f"--sizes: {name}: {error}") from None
        if len(values) < FEWEST_SIZES:
            raise UsageError(
                f"--sizes: {name} has {len(values)} different values",
                hint=f"fewer than {FEWEST_SIZES} show no law; best each twice the one before",
            )
        return cls(name, tuple(sorted(values.items())))

    @property
    def largest(self) -> float:
        """The largest value."""
        return self.values[-1][0]


@dataclass(frozen=True, slots=True)
class SizedText:
    """What holds a job's size: the script's text (None: there is none), and words after it."""

    text: str | None
    words: tuple[str, ...]


def sized_texts(
    job: SizedText, sizes: AskedSizes, workload_of: Callable[[SizedText], str]
) -> list[SizedText]:
    """Return the job at each size asked for.

    ``workload_of`` tells what a job would be recognised as. Raises InputError where the parameter
    is not the job's, or no place is found where it can be changed alone.
    """
    line = parameters_of(workload_of(job))
    if sizes.parameter not in line.size:
        parameters = ", ".join(f"{n} {format_number(v)}" for n, v in line.values)
        raise InputError(
            f"{sizes.parameter} is not a parameter of this job",
            hint=f"it has {parameters}"
            if parameters
            else "no number stands in its launcher's line",
        )
    job_size = line.size[sizes.parameter]
    numbers = list(_numbers_of(job, job_size))
    stated = [n for n in numbers if n.stated]
    for number in (n for n in numbers if not n.stated):
        for places in ([number], [number, *stated]):
            texts = [_with_value(job, places, *value) for value in sizes.values]
            lines = [parameters_of(workload_of(text)) for text in texts]
            if all(
                _differs_only_in(line, sizes.parameter, value, new_line)
                for (value, _), new_line in zip(sizes.values, lines, strict=True)
            ):
                return texts
    raise InputError(
        f"nowhere in this job can {sizes.parameter}={format_number(job_size)} be changed alone",
        hint="write it once, as a number in the launcher's line or as a variable that it uses",
    )


def _differs_only_in(line: ParameterLine, name: str, value: float, new_line: ParameterLine) -> bool:
    return new_line.family == line.family and new_line.size == {**line.size, name: value}


@dataclass(frozen=True, slots=True)
class _WrittenNumber:
    """A number in a job: in its text (``word`` -1) or in one of its words, with its unit."""

    word: int
    start: int
    end: int
    plain: bool
    """Digits only; a program may not read ``4e6`` there."""
    stated: bool
    """In a line that only states it."""


def _numbers_of(job: SizedText, value: float) -> Iterator[_WrittenNumber]:
    texts = chain([(-1, job.text or "")], enumerate(job.words))
    for word, text in texts:
        for match in _NUMBER.finditer(text):
            try:
                is_value = parse_number(match[0]) == value
            except ValueError:
                continue
            start = text.rfind("\n", 0, match.start()) + 1
            comment = word < 0 and text[start:].lstrip().startswith("#")
            stated = comment and text[start:].startswith(_STATED)
            if is_value and (stated or not comment):
                plain = match[0].replace(".", "", 1).isdigit()
                yield _WrittenNumber(word, match.start(), match.end(), plain, stated)


def _with_value(
    job: SizedText, places: Sequence[_WrittenNumber], value: float, spelling: str
) -> SizedText:
    text, words = job.text, list(job.words)
    for p in sorted(places, key=lambda p: p.start, reverse=True):
        new = plain_number(value) if p.plain else spelling
        if p.word < 0:
            assert text is not None
            text = text[: p.start] + new + text[p.end :]
        else:
            words[p.word] = words[p.word][: p.start] + new + words[p.word][p.end :]
    return SizedText(text, tuple(words))
