"""Parameters of a launcher line: its numbers, and the family that is left without them.

``lmp -in in.lj -n 4000000`` and ``-n 8e6`` are two sizes of one *family*; another word is another
family. Numbers stand after an option (``-n 4e6``, ``--size=4e6``), a name (``n=4M``), joined by x
(``64x64x64``), alone, and in the names of files (``in_625K.txt``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
"""A number without its unit."""
_NUMBER = re.compile(rf"({DIGITS})([kKmMgGtT]i?)?[bB]?")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_NAMED = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)[=:](.+)")
_ATTACHED = re.compile(r"-([A-Za-z])(\d.*)")
_EXTENSION = re.compile(r"\.[A-Za-z]\w*$")
_DIGIT = re.compile(r"\d")
_JOINED = re.compile(r"(?<=\d)[xX](?=\d)")
_BETWEEN = re.compile(r"([_,:-])")
_WORD = re.compile(r"[A-Za-z]\w*")
_TAILED = re.compile(r"([A-Za-z]+)(\d+(?:\.\d+)?(?:[kKmMgGtT]i?)?)")
_NO_LETTER = re.compile(r"[^A-Za-z]")
_CUT = "{}"


@dataclass(frozen=True, slots=True)
class ParameterLine:
    """A line's family, ``{}`` where a number was cut out, and the numbers by name, in order."""

    family: str
    values: tuple[tuple[str, float], ...]

    @property
    def size(self) -> dict[str, float]:
        """Return the numbers by name."""
        return dict(self.values)


def parse_number(text: str) -> float:
    """Return ``4000000``, ``4e6``, ``4M``, ``64Ki`` as a number above 0, else raise ValueError."""
    match = _NUMBER.fullmatch(text.strip().removeprefix("-"))
    if match is None:
        raise ValueError(f"{text!r} is not a number; write 4000000, 4e6 or 4M")
    unit = (match[2] or "").lower()
    value = float(match[1]) * (_BINARY[unit] if unit in _BINARY else _UNITS[unit])
    if text.strip().startswith("-") or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text} is out of range; a parameter is above 0")
    return value


def format_number(value: float) -> str:
    """Return a parameter's value as people write it: ``4e6``, ``1.5e9``, ``640``."""
    mantissa, exponent, power = f"{value:g}".partition("e")
    return f"{mantissa}e{int(power)}" if exponent else mantissa


def plain_number(value: float) -> str:
    """Return a parameter's value without an exponent where it is whole: ``4000000``."""
    return str(int(value)) if value == int(value) and value < 1e15 else repr(value)


def parse_sizes(text: str) -> dict[str, float]:
    """Return ``n=4e6,nodes=64`` as numbers by name, else raise ValueError."""
    sizes: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not name:
            raise ValueError(f"{part!r} is not NAME=NUMBER")
        if name in sizes:
            raise ValueError(f"{name} is given twice")
        try:
            sizes[name] = parse_number(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if not sizes:
        raise ValueError("no size is given; write NAME=NUMBER")
    return sizes


def parameters_of(line: str) -> ParameterLine:
    """Cut the numbers out of a launcher line's arguments.

    A number is named by the option or name before it, else by the word it stands in, else
    ``arg1``, ``arg2`` by position; several under one name get ``.2``, ``.3``. What is not
    above 0 stays a word.
    """
    values: dict[str, float] = {}
    words = list(_words(line))
    for word in words:
        for number in word.numbers:
            values[_free_name(word.name, values)] = number
    return ParameterLine(" ".join(w.template for w in words), tuple(values.items()))


def line_at(line: ParameterLine, size: Mapping[str, float]) -> str:
    """Return a line at another size: its family with the numbers of ``size``."""
    return _filled_template(line.family, (plain_number(size[name]) for name, _ in line.values))


def sized_line(line: str, sizes: Mapping[str, float], ignore: Iterable[str] = ()) -> str:
    """Return a line under which a job's sizes are known by name: ``-s _ n=4000000``.

    Numbers named in ``ignore``, and those equal to a stated size, are cut out; the stated ones
    follow.
    """
    ignored, stated = set(ignore), set(sizes.values())
    words = []
    for word in _words(line):
        texts = iter(word.texts())
        cut = (
            "_" if word.name in ignored or number in stated else text
            for text, number in zip(texts, word.numbers, strict=True)
        )
        words.append(_filled_template(word.template, cut) if word.numbers else word.text)
    base = " ".join(words)
    named = [f"{name}={plain_number(value)}" for name, value in sizes.items()]
    return " ".join([*([] if base == "default" and named else [base]), *named]).strip()


def _filled_template(template: str, texts: Iterable[str]) -> str:
    rest = template.split(_CUT)
    return rest[0] + "".join(text + literal for text, literal in zip(texts, rest[1:], strict=True))


@dataclass(frozen=True, slots=True)
class _NumberedWord:
    """A word with its numbers cut out, and the name they go by."""

    text: str
    template: str
    name: str
    numbers: list[float]

    def texts(self) -> list[str]:
        """Return its numbers as they are written."""
        pattern = "(.+?)".join(map(re.escape, self.template.split(_CUT)))
        match = re.fullmatch(pattern, self.text)
        return list(match.groups()) if match else [""] * len(self.numbers)


def _words(line: str) -> Iterator[_NumberedWord]:
    pending = ""
    position = 0
    for word in line.split():
        if not _DIGIT.search(word):
            option = _OPTION.fullmatch(word)
            position += not (pending or option)
            pending = word.lstrip("-") if option else ""
            yield _NumberedWord(word, word, "", [])
            continue
        named = _NAMED.fullmatch(word)
        attached = _ATTACHED.fullmatch(word)
        if named and (numbered := _numbers(named[2])):
            template, numbers = numbered
            name, shown = named[1].lstrip("-"), f"{word[: named.start(2)]}{template}"
        elif attached and (numbered := _numbers(attached[2])):
            template, numbers = numbered
            name, shown = attached[1], f"-{attached[1]}{template}"
        elif numbered := _numbers(word):
            shown, numbers = numbered
            position += not pending
            name = pending or f"arg{position}"
        else:
            shown, numbers, name = _in_name(word)
            position += not (pending or _OPTION.fullmatch(word))
        pending = word.lstrip("-") if _OPTION.fullmatch(word) and not numbers else ""
        yield _NumberedWord(word, shown, name, numbers)


def _numbers(text: str) -> tuple[str, list[float]] | None:
    """Return a template and the numbers of a text that is numbers joined by x, else None."""
    if not _DIGIT.search(text):
        return None
    parts = _JOINED.split(text) if "x" in text or "X" in text else [text]
    try:
        numbers = [parse_number(p) for p in parts]
    except ValueError:
        return None
    return "x".join([_CUT] * len(numbers)), numbers


def _in_name(word: str) -> tuple[str, list[float], str]:
    """Return a file's name with its numbers cut out, the numbers, and a name for them.

    Only the last part of a path is looked at, without its extension; digits inside of a word
    (``mesh3d``) belong to it.
    """
    if word.startswith("-"):
        return word, [], ""
    folder, slash, last = word.rpartition("/")
    extension = _EXTENSION.search(last)
    stem = last[: extension.start()] if extension else last
    stem_words = _BETWEEN.split(stem)
    numbers: list[float] = []
    name = ""
    for i, part in enumerate(stem_words):
        numbered = _numbers(part) or _tail(part)
        if numbered is None or not numbered[1]:
            name = name or (part if _WORD.fullmatch(part) else "")
            continue
        stem_words[i], new = numbered
        name = name or _NO_LETTER.sub("", part.split(_CUT)[0]).rstrip("KMGT") or name
        numbers += new
    shown = f"{folder}{slash}{''.join(stem_words)}{extension[0] if extension else ''}"
    return (shown, numbers, name or "file") if numbers else (word, [], "")


def _tail(part: str) -> tuple[str, list[float]] | None:
    """Return a word that ends in a number (``input10``) as template and number."""
    match = _TAILED.fullmatch(part)
    if match is None:
        return None
    try:
        return match[1] + _CUT, [parse_number(match[2])]
    except ValueError:
        return None


def _free_name(name: str, parameters: dict[str, float]) -> str:
    count, free = 1, name
    while free in parameters:
        count += 1
        free = f"{name}.{count}"
    return free
