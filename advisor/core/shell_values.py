"""What the variables of a shell script hold, as far as reading tells, and what words become of it.

A script's environment is not known: a variable that the script never assigns has no value here,
and what is assigned in a branch, a loop or a function, or read from a file, is not known either.
A word that such a variable is in is :class:`Doubtful`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from time import thread_time

from advisor.core.job_numbers import job_number
from advisor.core.shell_words import KEPT, LITERAL, SPLIT, NotFollowedError, Quoted, TooSlowError

MAX_EXPANDED = 65536
"""Characters that the variables of one script may become in all: they can double in each line."""

SCHEDULERS_OWN = ("SLURM_", "PBS_")
"""How variables begin that a scheduler sets in each job: one word each."""

_VARIABLE = re.compile(
    r"\$(?:\{(?P<name>\w+|[@*])(?:\[(?P<index>[@*]|\d{1,4})\])?"
    r"(?:(?P<how>:?[-+=])(?P<other>[^{}`\"'\\]*))?\}|(?P<bare>\d|[A-Za-z_]\w*|[@*]))"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_WORDS = re.compile(r"(?:\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|\S)+")
"""Words between blanks, with ``$(...)`` and backquotes whole."""
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_SETS_DEFAULT = re.compile(r"\$\{(\w+):?=")
_ARITHMETIC = re.compile(
    r"\b([A-Za-z_]\w*)(?:\[\w*\])?\s?(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s?([A-Za-z_]\w*)"
)
"""A variable that arithmetic gives a value."""
_GIVE_VALUES = frozenset({"read", "mapfile", "readarray", "getopts", "let", "printf", "wait"})
DECLARES = frozenset({"export", "declare", "readonly", "local", "typeset"})


class Doubtful(str):
    """A word that may be another one, or several, when the script runs."""

    __slots__ = ("why",)
    why: str
    """The variable or substitution whose value is not known."""


def doubtful(text: str, why: str) -> str:
    """Return a word, Doubtful where ``why`` says so."""
    if not why:
        return text
    word = Doubtful(text)
    word.why = why
    return word


def assignment(word: str) -> tuple[str, str, str] | None:
    """Return name, ``""``, ``"+"`` or ``"["``, and value of a word that assigns, else None."""
    match = _ASSIGNMENT.match(word) if "=" in word else None
    if match is None:
        return None
    return match[1], "[" if match[2] else match[3], _word_from(word, match.end())


def _word_from(word: str, start: int) -> str:
    """Return what of a word begins at a character, with its quotes."""
    text = str(word)[start:]
    if not isinstance(word, Quoted):
        return text
    pieces = []
    for piece, how in word.pieces:
        pieces.append((piece[start:], how))
        start = max(0, start - len(piece))
    rest = Quoted(text)
    rest.pieces = tuple(pieces)
    return rest


class ShellValues:
    """Variables by name: the values of a list, of others one, of one that is unset none.

    ``assigned`` and the room for what they become are shared by copies. ``unsettled`` names
    variables whose value is never known. At ``until``, by the thread's own clock, TooSlowError is
    raised.
    """

    __slots__ = ("_known", "_room", "_ticks", "arguments", "assigned", "unsettled", "until")

    def __init__(
        self,
        arguments: Sequence[str] = (),
        unsettled: frozenset[str] = frozenset(),
        until: float = math.inf,
    ):
        self._known: dict[str, tuple[str, ...]] = {}
        # A list, since all copies take from the same room.
        self._room = [MAX_EXPANDED]
        self._ticks = 0
        self.until = until
        self.arguments: tuple[str, ...] | None = tuple(arguments)
        self.unsettled = unsettled
        self.assigned: dict[str, tuple[str | None, ...]] = {}

    def copy(self) -> ShellValues:
        """Return what a part of the script starts with that may not run, or not here."""
        branch = ShellValues((), self.unsettled, self.until)
        branch._ticks = self._ticks
        branch._known, branch._room = dict(self._known), self._room
        branch.arguments, branch.assigned = self.arguments, self.assigned
        return branch

    def forget_changes(self, branch: ShellValues) -> None:
        """Take what a part of the script that may not run has changed as not known."""
        for name, values in branch._known.items():
            if self._known.get(name) != values:
                self._known[name] = _unknown(name)
        if branch.arguments != self.arguments:
            self.arguments = None

    def assign(
        self, name: str, values: Sequence[str], kind: str = "", *, items: bool = False
    ) -> None:
        """Give a variable its values; ``kind`` as :func:`assignment` returns it.

        ``items``: they are those of a list, ``NAME+=(...)``.
        """
        self._ticks += 1
        if not self._ticks & 31 and thread_time() > self.until:
            raise TooSlowError
        new = tuple(values)
        if kind == "+" and items:
            new = (*self._known.get(name, _unknown(name)), *new)
        elif kind == "+":
            previous = self._known.get(name)
            old = previous or _unknown(name)
            if len(new) == 1 and len(old) == 1:
                why = next((v.why for v in (*old, *new) if isinstance(v, Doubtful)), "")
                new = (doubtful(old[0] + new[0], why),)
            else:
                new = _unknown(name)
        elif kind == "[":
            new = _unknown(name)
        self._known[name] = new
        self.note(name, new)

    def note(self, name: str, values: Sequence[str]) -> None:
        """Remember that a variable is given these values; none: it is unset."""
        value = None if len(values) > 1 else next(iter(values), "")
        noted = None if isinstance(value, Doubtful) or name in self.unsettled else value
        have = self.assigned.get(name, ())
        if noted not in have:
            self.assigned[name] = (*have, noted)

    def lose(self, name: str) -> None:
        """Take a variable's value as not known: something gives it one that is not read here."""
        if _IDENTIFIER.fullmatch(name):
            self.assign(name, _unknown(name))

    def text(self, word: str) -> str:
        """Return the one word that a word becomes, as in an assignment."""
        parts = list(self._fields(word, split=False))
        why = next((f.why for f in parts if isinstance(f, Doubtful)), "")
        return doubtful(" ".join(parts), why)

    def words(self, word: str) -> list[str]:
        """Return the words that a word becomes: without quotes, values are split at blanks.

        A Doubtful word without letters stands for none, or some that are not known.
        Raises NotFollowedError where the script's variables become too long.
        """
        if "$" not in word and "`" not in word:
            return [word]  # as most are: a generator would take longer than all else here
        return list(self._fields(word, split=True))

    def _fields(self, word: str, *, split: bool) -> Iterator[str]:
        if "$" not in word and "`" not in word:
            yield word
            return
        pieces = word.pieces if isinstance(word, Quoted) else ((word, SPLIT),)
        if number := self._number(word, pieces):
            yield number
            return
        fields: list[str] = []
        current: list[str] = []  # of the field that is being made; none: it has not begun
        why, empty_list = "", False
        for piece, how in pieces:
            if how == LITERAL:
                current.append(piece)
                continue
            position = 0
            for match in _VARIABLE.finditer(piece):
                rest, position = piece[position : match.start()], match.end()
                if rest or how == KEPT:
                    current.append(rest)
                    why = why or _substitution(rest)
                values, doubt = self._value(match)
                why = why or doubt
                if how == KEPT or not split:
                    empty_list = empty_list or not values
                    for i, value in enumerate(values):
                        if i and split:
                            fields.append("".join(current))
                            current = []
                        elif i:
                            current.append(" ")
                        current.append(value)
                    continue
                # Values are split at what IFS holds, which need not be blanks any longer.
                if "IFS" in self._known and not doubt:
                    why = why or "$IFS"
                for i, value in enumerate(values):
                    parts = [value] if value == match[0] else _split(value)
                    # Blanks at a value's ends end the word that it stands in: `a$X` with X=" b" are
                    # two words.
                    if (i or value[:1].isspace()) and current:
                        fields.append("".join(current))
                        current = []
                    for j, part in enumerate(parts):
                        if j:
                            fields.append("".join(current))
                            current = []
                        current.append(part)
                    if value[-1:].isspace() and current:
                        fields.append("".join(current))
                        current = []
            rest = piece[position:]
            if rest or how == KEPT:
                current.append(rest)
                why = why or _substitution(rest)
        if current and not (empty_list and not any(current)):
            fields.append("".join(current))
        yield from (doubtful(f, why) for f in fields or ([""] if why else []))

    def _number(self, word: str, pieces: Sequence[tuple[str, int]]) -> str:
        """Return the number that a word becomes which the script works out, "" for other words:
        digits, or how it follows from the job's own numbers."""
        option, equals, text = word.rpartition("=") if word[:1] == "-" else ("", "", str(word))
        if text[:2] not in ("$(", "$[") and text[:1] != "`":
            return ""
        number = job_number(text, self._number_in)
        if not number or any(how == LITERAL for _, how in pieces):
            return ""
        return option + equals + (number if text[:2] == "$[" or text[:3] == "$((" else text)

    def _number_in(self, name: str) -> str | None:
        """Return the number that a variable holds, "" where the script never sets it, None where
        that is not known."""
        values, _ = self._lookup(name)
        if values is None:
            return None if name in self.unsettled else ""
        if len(values) != 1 or isinstance(values[0], Doubtful):
            return None
        value = values[0]
        return value if value.isdecimal() else job_number(value, lambda _: None) or None

    def _value(self, match: re.Match[str]) -> tuple[tuple[str, ...], str]:
        """Return the values that a variable stands for, and what is not known of them."""
        name, index = match["name"] or match["bare"], match["index"]
        how, alternative = match["how"], match["other"]
        all_elements = name in ("@", "*") or index in ("@", "*")
        values, set_ = self._lookup(name)
        unknown: tuple[tuple[str, ...], str] = ((match[0],), match[0])
        if values is None:
            scheduler_variable = name.startswith(SCHEDULERS_OWN)
            if scheduler_variable and name not in self.unsettled and how is None and not index:
                return (match[0],), "" if name not in self._known else match[0]
            if (
                how in (":-", "-", ":=", "=")
                and not scheduler_variable
                and name not in self.unsettled
            ):
                if name.isdecimal():
                    # An argument is never set from outside of the script, as a variable may be.
                    return self._within_room((self.text(alternative),)), ""
                return self._within_room((self.text(alternative),)), match[
                    0
                ]  # unless it is set outside
            return unknown
        if not all_elements:
            position = int(index or 0)
            values = values[position : position + 1]
        value = values if all_elements or values else ("",)
        why = next((v.why for v in value if isinstance(v, Doubtful)), "")
        if how is not None and why:
            return unknown
        filled = any(value) if ":" in (how or "") else set_
        if how in (":-", "-", ":=", "=") and not filled:
            value = (self.text(alternative),)
        elif how in (":+", "+"):
            value = (self.text(alternative),) if filled else ("",)
        why = why or next((v.why for v in value if isinstance(v, Doubtful)), "")
        return self._within_room(value), why

    def _lookup(self, name: str) -> tuple[tuple[str, ...] | None, bool]:
        """Return a variable's values, None where they are not known, and whether it is set."""
        if name in ("@", "*"):
            return self.arguments, bool(self.arguments)
        if name.isdecimal():
            # Six digits are beyond any argument; a name may have a million of them.
            number, arguments = int(name[:6]), self.arguments
            if arguments is None or not 0 < number <= len(arguments):
                return None, False
            return (arguments[number - 1],), True
        if name in self.unsettled:
            return None, False
        values = self._known.get(name)
        return values, bool(values)

    def _within_room(self, values: tuple[str, ...]) -> tuple[str, ...]:
        self._room[0] -= sum(map(len, values))
        if self._room[0] < 0:
            raise NotFollowedError(f"its variables become more than {MAX_EXPANDED} characters")
        return values


def _unknown(name: str) -> tuple[str, ...]:
    return (doubtful(f"${name}", f"${name}"),)


def _split(value: str) -> list[str]:
    """Return a value's words; what is substituted in it is part of one, whatever it holds."""
    return _WORDS.findall(value) if "`" in value or "$(" in value else value.split()


def _substitution(text: str) -> str:
    """Return what in a text without variables is not known: ``$(nproc)``."""
    return text[text.find("$") :][:40] if "$" in text else ("`...`" if "`" in text else "")


def run_builtin(raw_words: Sequence[str], values: ShellValues) -> str:
    """Do to the variables what a command of the shell itself does to them.

    Returns the word that leaves open which variables it changes, "" for none.
    """
    name = raw_words[0]
    if name in DECLARES:
        return _declare(raw_words[1:], values)
    words = [w for word in raw_words[1:] for w in values.words(word)]
    if name == "set":
        position = 0
        while (
            position < len(words)
            and words[position] not in ("--", "-")
            and words[position][:1] in ("-", "+")
        ):
            position += 2 if words[position].endswith("o") else 1  # -o pipefail
        if position < len(words):
            values.arguments = tuple(words[position + (words[position] in ("--", "-")) :])
    elif name == "shift":
        count = words[0] if words else "1"
        arguments = values.arguments
        shiftable = arguments is not None and count.isdecimal()
        values.arguments = arguments[int(count[:6]) :] if arguments and shiftable else None
    elif name == "unset":
        for word in words:
            if isinstance(word, Doubtful):
                return word
            if not word.startswith("-"):
                values.assign(word.partition("[")[0], ())
    else:
        for word in given_values(name, words):
            if isinstance(word, Doubtful):
                return word
            values.lose(word)
    return ""


def _declare(raw_words: Sequence[str], values: ShellValues) -> str:
    flags = "".join(w for w in raw_words if w[:1] in "-+" and "=" not in w)
    for word in raw_words:
        if (parts := assignment(word)) is not None:
            name, kind, value = parts
            items = getattr(word, "items", None)
            if items is not None:
                values.assign(name, [w for i in items for w in values.words(i)], kind, items=True)
            elif set(flags) & set("inluA"):  # computed, a reference, changed as it is assigned
                values.lose(name)
            else:
                values.assign(name, [values.text(value)], kind)
        elif word.startswith(("-", "+")):
            continue
        elif "n" in flags:  # exported no more
            values.note(word, ())
        elif "$" in word or "`" in word:
            return word
    return ""


def given_values(name: str, words: Sequence[str]) -> list[str]:
    """Return what may be names among the words of a command that gives variables values."""
    if name not in _GIVE_VALUES:
        return []
    if name in ("printf", "wait"):
        # Only behind this option do these two set a variable.
        flag = "-v" if name == "printf" else "-p"
        return [b for a, b in pairwise(words) if a == flag]
    if name == "let":
        return [m[1] or m[2] for w in words for m in _ARITHMETIC.finditer(w)]
    names = [w for w in words if _IDENTIFIER.fullmatch(w) or isinstance(w, Doubtful)]
    # What read and mapfile fill where they are given no name.
    return names or ["REPLY", "MAPFILE"]


def unsettled_names(commands: Sequence[tuple[Sequence[str], bool]], text: str) -> set[str]:
    """Return variables that get values where reading does not follow.

    ``commands``: each with whether it stands in a function's body. In arithmetic, by ``${A:=b}``
    and in functions, of which nobody knows when they run.
    """
    names = set(_SETS_DEFAULT.findall(text))
    start = text.find("((")
    while start >= 0 and (end := text.find("))", start)) >= 0:
        names.update(a or b for a, b in _ARITHMETIC.findall(text, start, end))
        start = text.find("((", end)
    for words, function in commands:
        if function:
            names.update(a[0] for w in words if (a := assignment(w)) is not None)
            names.update(given_values(words[0], words[1:]))
            names.update(words[1:] if words[0] == "unset" else ())
    return names


ALTERS = _GIVE_VALUES | DECLARES | {"set", "shift", "unset"}
"""Commands of the shell that change variables."""
