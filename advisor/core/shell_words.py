"""Read the words of a shell script: quotes, variables and substitutions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from time import thread_time

MAX_DEPTH = 3
"""Command substitutions inside one another that are followed."""

TOO_SLOW = "it takes too long to read"

_PLAIN = re.compile(r"[^\s;&|<>()'\"`$\\]+")
_SINGLE = re.compile(r"'([^']*)'")
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ARITHMETIC = re.compile(r"\$\(\((?:[^()]|\([^()]*\))*\)\)")
# Possessive, as a user's script may be made to keep whoever reads it going back over it.
_BRACED = re.compile(r"\$\{(?:[^{}`\"'$\\]++|\$(?![({'\"]))*+\}")
_IN_BRACES = re.compile(r"[^{}`\"'$\\]+")
_BARE_SINGLE = re.compile(r"'[^'}$`\"\\]*'")
"""A quote that ends where it seems to, whether or not double quotes around it make it a letter."""
_NAME = re.compile(r"\$(?:\w+|[?#@*!$-])")
_IN_DOUBLE = re.compile(r"[^\"\\$`]+")
BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\r?\n)+")


LITERAL, KEPT, SPLIT = range(3)
"""How a part of a word stands in a script: as it is (in ``'...'``, behind a backslash), with its
variables replaced (in ``"..."``), or with what they become split at blanks, too (without quotes).
"""


class Quoted(str):
    """A word with variables of which a part was in quotes: equal to its text without them."""

    __slots__ = ("pieces",)
    pieces: tuple[tuple[str, int], ...]
    """Its parts, each with LITERAL, KEPT or SPLIT."""


class ListWord(str):
    """The word ``NAME=`` of ``NAME=(...)``, or ``NAME+=``, with the words in the parentheses."""

    __slots__ = ("items",)
    items: tuple[str, ...]


class NotFollowedError(Exception):
    """The rest of the line is not understood."""


class TooSlowError(Exception):
    """The time for reading is over."""


@dataclass(slots=True)
class WordReader:
    """Reads words from ``at`` on; what a substitution runs goes to :meth:`_substitution`.

    At ``until``, by the thread's own clock, TooSlowError is raised.
    """

    source: str
    depth: int = 0
    at: int = 0
    until: float = math.inf
    ticks: int = 0

    def _tick(self) -> None:
        """Look at the clock now and then; every loop over the source does."""
        self.ticks += 1
        # Asking for the time takes longer than reading a word.
        if not self.ticks & 31 and thread_time() > self.until:
            raise TooSlowError

    def _substitution(self, text: str) -> None:
        """Take note of what a substitution runs."""

    def _take_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return what matches here and go on behind it."""
        match = pattern.match(self.source, self.at)
        self.at = match.end() if match else self.at
        return match

    def _blank(self) -> None:
        self._take_match(BLANK)

    def _word(self) -> str | None:
        """Return the word that begins here without its quotes, None if there is none."""
        source, start = self.source, self.at
        parts: list[tuple[str, int]] = []
        while self.at < len(source):
            self._tick()
            char = source[self.at]
            if match := self._take_match(_PLAIN):
                parts.append((match[0], SPLIT))
            elif char == "'":
                match = _SINGLE.match(source, self.at)
                if match is None:
                    raise NotFollowedError("a quote ' has no end")
                self.at = match.end()
                parts.append((match[1], LITERAL))
            elif char == '"':
                parts += self._double()
            elif char == "\\":
                parts.append((source[self.at + 1 : self.at + 2], LITERAL))
                self.at += 2
            elif char in "$`":
                ansi = source.startswith("$'", self.at)
                parts.append((self._dollar(), LITERAL if ansi else SPLIT))
            elif char in "<>" and source[self.at + 1 : self.at + 2] == "(":
                self.at += 2
                parts.append((f"{char}({self._inner()})", SPLIT))
            else:
                break
        if self.at == start:
            return None
        text = "".join([part for part, _ in parts])
        # How a part was quoted only matters where a variable is to be replaced.
        if "$" not in text or all(how == SPLIT for _, how in parts):
            return text
        word = Quoted(text)
        word.pieces = tuple(parts)
        return word

    def _double(self) -> list[tuple[str, int]]:
        """Return the parts of what stands in double quotes, of which the first is here."""
        source = self.source
        parts = [("", KEPT)]
        self.at += 1
        while self.at < len(source):
            self._tick()
            char = source[self.at]
            if match := self._take_match(_IN_DOUBLE):
                parts.append((match[0], KEPT))
            elif char == '"':
                self.at += 1
                return parts
            elif char == "\\":
                # In double quotes a backslash stays where it stands before anything else.
                following = source[self.at + 1 : self.at + 2]
                escaped = following if following in '"\\$`' else "\\" + following
                parts.append((escaped, LITERAL))
                self.at += 2
            else:
                parts.append((self._dollar(), KEPT))
        raise NotFollowedError('a quote " has no end')

    def _dollar(self) -> str:
        """Return a variable as it is written; read the commands of a substitution."""
        source, start = self.source, self.at
        if source[start] == "`":
            end = source.find("`", start + 1)
            if end < 0:
                raise NotFollowedError("a ` has no end")
            self.at = end + 1
            # A backquote inside of backquotes is written with a backslash.
            self._substitution(source[start + 1 : end].replace("\\`", "`"))
            return source[start : self.at]
        # $(( before $(, and ${...} that holds nothing to look into before the one that does.
        for pattern in (_ARITHMETIC, _ANSI, _BRACED, _NAME):
            if match := pattern.match(source, start):
                self.at = match.end()
                return match[1] if pattern is _ANSI else match[0]
        if source.startswith("$(", start):
            self.at = start + 2
            self._inner()
            return source[start : self.at]
        if source.startswith("${", start):
            self.at = start + 2
            self._braces()
            return source[start : self.at]
        self.at = start + 1
        return "$"

    def _braces(self) -> None:
        """Read to the end of a ``${...}`` with quotes, braces or commands in it."""
        self._check_depth()
        self.depth += 1
        try:
            while not self.source.startswith("}", self.at):
                self._tick()
                char = self.source[self.at : self.at + 1]
                if self._take_match(_IN_BRACES) or self._take_match(_BARE_SINGLE):
                    continue
                if char == '"':
                    self._double()
                elif char == "\\":
                    self.at += 2
                elif char in ("$", "`") and not self.source.startswith("$'", self.at):
                    self._dollar()
                else:
                    raise NotFollowedError("a ${...} with quotes or braces in it")
            self.at += 1
        finally:
            self.depth -= 1

    def _inner(self) -> str:
        """Read what stands in parentheses whose first is behind us, and its commands."""
        self._check_depth()
        start, open_ = self.at, 1
        while self.at < len(self.source):
            self._tick()
            char = self.source[self.at]
            if char == "'":
                match = _SINGLE.match(self.source, self.at)
                self.at = match.end() if match else len(self.source)
                continue
            if char == '"':
                # A parenthesis in quotes is none; what the quotes run is read with what is around
                # them.
                nested = type(self)(self.source, self.depth + 1, self.at, self.until)
                nested._double()
                self.at = nested.at
                continue
            self.at += 2 if char == "\\" else 1
            open_ += (char == "(") - (char == ")")
            if not open_:
                inner = self.source[start : self.at - 1]
                self._substitution(inner)
                return inner
        raise NotFollowedError("a ( has no end")

    def _check_depth(self) -> None:
        if self.depth >= MAX_DEPTH:
            raise NotFollowedError("commands inside commands inside commands")
