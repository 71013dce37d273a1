"""Read HPCProbe's experiment file: its options with their lines, every mistake collected.

Source: Endrei 2019, appendix A.1.2 (the options) and listing A.1 (a whole file).
"""

from __future__ import annotations

import configparser
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from advisor.core.units import format_count
from advisor.errors import InputError

T = TypeVar("T")
SECTION = "Experiment"
RANGES = ("threadCount", "cpuFrequency", "execParam")
COUNTS = (
    "nodes",
    "ppn",
    "nodePEs",
    "totalPEs",
    "peThreads",
    "repeatCount",
    "nodeSockets",
    "socketRings",
    "retries",
    "accWaitLi",
    "accCopyLi",
    "execLoopLi",
    "execRegion",
)
TEXTS = (
    "expName",
    "expExec",
    "workFolder",
    "outputFolder",
    "walltime",
    "account",
    "queue",
    "env",
    "modules",
    "limits",
    "cpuBinding",
    "postExec",
    "runtime",
    "threadPlacement",
    "nodePlacement",
)
FLAGS = ("batch", "batchContinue", "omp", "base2", "reget")
OPTIONS = frozenset({*RANGES, *COUNTS, *TEXTS, *FLAGS})
"""Every option of the thesis's release."""
RELEASE = "the release of Endrei 2019"
_FROM_0 = {"retries"}
_MOST_VALUES = 10_000
"""Values that a range may stand for."""


@dataclass(slots=True)
class ExperimentFile:
    """An experiment's options: ``texts`` ("" where not given), ``counts``, ``flags``, ``ranges``.

    ``problems`` are the mistakes so far, each with its line (0: none).
    """

    path: Path
    values: dict[str, str]
    lines: dict[str, int]
    problems: list[tuple[int, str]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int | None] = field(default_factory=dict)
    flags: dict[str, bool | None] = field(default_factory=dict)
    ranges: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def wrong(self, key: str, message: str) -> None:
        """Note a mistake of an option."""
        line = self.lines.get(key, 0)
        self.problems.append((line, f"line {line}, {key}: {message}" if line else message))

    def check(self) -> None:
        """Raise InputError that lists every mistake by line."""
        if not self.problems:
            return
        count = format_count(len(self.problems), "mistake")
        lines = [f"  {message}" for _, message in sorted(set(self.problems))]
        raise InputError("\n".join([f"{self.path}: {count}, nothing is run", *lines]))

    def one_of(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """Return an option that has a few values only; another one is a mistake."""
        value = self.texts[key] or default
        if value not in choices:
            self.wrong(key, f"{value!r} is not known; known: {', '.join(choices)}")
            return default
        return value

    def get(self, key: str, parse: Callable[[str], T]) -> T | None:
        """Return an option's value, None where it is not given or a mistake."""
        text = self.values.get(key)
        if text is None or not text.strip():
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            self.wrong(key, str(error))
            return None


def read_file(path: Path) -> ExperimentFile:
    """Read an experiment file. Raises InputError for what is none; mistakes in values are noted."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from None
    values = _section(path, text)
    lines: dict[str, int] = {}
    for number, row in enumerate(text.splitlines(), 1):
        option = re.match(r"([\w.]+)\s*[=:]", row)
        if option:
            lines.setdefault(option[1], number)
    file = ExperimentFile(path, values, lines)
    for key in values:
        if key not in OPTIONS:
            file.wrong(key, _unknown(key))
    file.texts = {key: file.get(key, str) or "" for key in TEXTS}
    file.counts = {
        key: file.get(key, _count_from_0 if key in _FROM_0 else _count) for key in COUNTS
    }
    file.flags = {key: file.get(key, _flag) for key in FLAGS}
    file.ranges = {key: file.get(key, _values) or () for key in RANGES}
    return file


def _section(path: Path, text: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys as they are written
    try:
        parser.read_string(text)
    except configparser.MissingSectionHeaderError as error:
        raise InputError(
            f"{path}, line {error.lineno}: no section yet", hint=f"begin with [{SECTION}]"
        ) from None
    except configparser.ParsingError as error:
        line = error.errors[0][0]
        raise InputError(f"{path}, line {line}: not KEY = VALUE") from None
    except (configparser.DuplicateOptionError, configparser.DuplicateSectionError) as error:
        what = getattr(error, "option", "") or f"[{error.section}]"
        raise InputError(f"{path}, line {error.lineno}: {what} is given twice") from None
    if SECTION not in parser:
        sections = ", ".join(f"[{s}]" for s in parser.sections())
        line = next((n for n, row in enumerate(text.splitlines(), 1) if row.startswith("[")), 1)
        raise InputError(
            f"{path}, line {line}: there is no section [{SECTION}]"
            f"{f', but {sections}' if sections else ''}",
            hint=f"files of {RELEASE} are read: all options stand in [{SECTION}]",
        )
    return {k: " ".join(v.split()) for k, v in parser[SECTION].items()}


def _unknown(key: str) -> str:
    option = next((k for k in sorted(OPTIONS) if k.lower() == key.lower()), "")
    near = option or next(iter(difflib.get_close_matches(key, sorted(OPTIONS), 1, 0.75)), "")
    if near:
        return f"is not an option of an experiment; is it {near}?"
    return f"is not an option of an experiment in {RELEASE}; known: {', '.join(sorted(OPTIONS))}"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise ValueError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _count_from_0(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"


def _values(text: str) -> tuple[int, ...]:
    """Read ``VALUE`` or ``START,END,STEP``, the end included."""
    parts = [p.strip() for p in text.split(",")]
    if len(parts) not in (1, 3) or not all(p.isascii() and p.isdecimal() for p in parts):
        raise ValueError(f"{text!r} is neither a whole number nor start,end,step")
    numbers = [int(p) for p in parts]
    if len(numbers) == 1:
        return (numbers[0],)
    start, end, step = numbers
    if start == end:
        return (start,)
    if step < 1 or end < start:
        raise ValueError(f"{text!r} does not go from start up to end in steps")
    if (end - start) // step > _MOST_VALUES:
        raise ValueError(f"{text!r} has more than {_MOST_VALUES} values")
    return tuple(range(start, end + 1, step))
