"""A program's own rate, read from what it prints: a figure of merit, like GFLOP/s or steps/s.

Source: Endrei 2019, section 6.5 (performance as steps per second, efficiency as steps per joule).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, BinaryIO, Literal, get_args

from advisor.core.codec import JsonForm
from advisor.core.keys import Written

RateTake = Literal["last", "first", "mean", "sum"]
TAKES: tuple[RateTake, ...] = get_args(RateTake)

LONGEST_LINE = 8192
"""Bytes of a line that are looked at: no program prints its rate behind more."""

_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?$")
"""A number with its thousands set apart: 12,345.6."""
_SHOWN = 60
"""Characters of a line that a message shows."""


@dataclass(frozen=True, slots=True)
class RateRule(JsonForm):
    """How a rate is read: a regular expression, searched in every line, whose group is a number."""

    match: Annotated[
        str,
        Written.RATE_EXPRESSION,
        "a regular expression, searched in each line; its group `rate`, else its first, is the "
        "number",
    ]
    take: Annotated[RateTake, "which of several matches counts: last, first, mean or sum"] = "last"
    unit: Annotated[str, Written.UNIT, "the rate's unit, like GFLOP/s"] = ""

    def __post_init__(self) -> None:
        """Raise ValueError for an expression that cannot give a number."""
        if why := refused(self.match):
            raise ValueError(why)
        if self.take not in TAKES:
            raise ValueError(f"{self.take!r} is none of {', '.join(TAKES)}")

    @classmethod
    def from_dict(cls, data: object) -> RateRule | None:
        """Build a rule from its stored form, None from none."""
        if not isinstance(data, Mapping):
            return None
        take = data.get("take", "last")
        valid_take: RateTake = next((t for t in TAKES if t == take), "last")
        return cls(str(data["match"]), valid_take, str(data.get("unit", "")))


@dataclass(frozen=True, slots=True)
class Work:
    """What a run does, in what its rate counts: ``amount`` over seconds is the rate."""

    amount: float
    unit: str = ""

    @classmethod
    def of_stats(cls, stats: Mapping[str, object]) -> Work | None:
        """Return the work behind a model whose runs all had a rate, else None."""
        rate = stats.get("rate")
        if not isinstance(rate, Mapping) or not isinstance(rate.get("work"), int | float):
            return None
        return cls(float(rate["work"]), str(rate.get("unit", "")))

    @property
    def labels(self) -> tuple[str, str]:
        """The names of rate and rate per joule with their units."""
        return f"rate ({self.unit})" if self.unit else "rate", f"rate per joule ({self.per_joule})"

    @property
    def per_joule(self) -> str:
        """The unit of what is done with a joule: GFLOP/J where the rate is in GFLOP/s."""
        for second in ("/s", "/sec", "/second"):
            if self.unit.endswith(second):
                return f"{self.unit.removesuffix(second)}/J"
        return f"{self.unit} s/J" if self.unit else "1/J"

    def done(self, value: float, low: float, high: float) -> tuple[float, float, float]:
        """Return what is done in a second or with a joule, from seconds or joules of a run."""
        return self.amount / value, self.amount / high, self.amount / low


def refused(pattern: str) -> str:
    """Return why a regular expression cannot read a rate, "" where it can."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"'{pattern}' is not a regular expression: {error}"
    if not compiled.groups:
        return f"'{pattern}' has no group: put the number in brackets, like 'rate: (\\S+)'"
    return ""


@dataclass(slots=True)
class RateReader:
    """Reads a run's rate from its lines, one after the other."""

    rule: RateRule
    lines: int = 0
    matches: int = 0
    value: float = math.nan
    wrong: str = ""
    last: str = ""

    def feed(self, raw: bytes) -> None:
        """Take the next line."""
        self.lines += 1
        line = raw[:LONGEST_LINE].decode(errors="replace").rstrip("\r\n")
        if line.strip():
            self.last = line.strip()
        pattern = re.compile(self.rule.match)  # from re's own cache
        group = "rate" if "rate" in pattern.groupindex else 1
        for match in pattern.finditer(line):
            text = match[group]
            number = _number(text or "")
            if number is None:
                self.wrong = self.wrong or (
                    f"line {self.lines} of its output: '{_short(text or '')}' is not a rate above 0"
                )
                continue
            self.matches += 1
            self._take_number(number)

    def _take_number(self, number: float) -> None:
        if self.matches == 1 or self.rule.take == "last":
            self.value = number
        elif self.rule.take in ("mean", "sum"):
            self.value += number

    def result(self) -> tuple[float | None, str]:
        """Return the rate, or None and why there is none."""
        if self.wrong:
            return None, self.wrong
        if not self.matches:
            where = f"the last is line {self.lines}: '{_short(self.last)}'" if self.last else "none"
            return None, f"no line of its output matches the rate '{self.rule.match}' ({where})"
        return self.value / (self.matches if self.rule.take == "mean" else 1), ""


def read_rate(rule: RateRule, file: BinaryIO) -> tuple[float | None, str]:
    """Return the rate in a program's output, or None and why there is none."""
    reader = RateReader(rule)
    for line in _lines(file):
        reader.feed(line)
    return reader.result()


def _lines(file: BinaryIO) -> Iterable[bytes]:
    """Yield lines; of one without an end only its first bytes."""
    while line := file.readline(LONGEST_LINE):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)


def _number(text: str) -> float | None:
    """Return a number above 0 as programs print it: 1.5e9, Fortran's 1.5D+09, 12,345.6."""
    text = text.strip()
    if _GROUPED.match(text):
        text = text.replace(",", "")
    try:
        value = float(re.sub(r"(?<=[\d.])[dD](?=[+-]?\d)", "e", text))
    except ValueError:
        return None
    # float() takes 1_000, which is Python's own way to write a number and no program's output.
    return value if math.isfinite(value) and value > 0 and "_" not in text else None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
