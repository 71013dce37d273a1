"""Read shell scripts: which commands there are, and where they stand.

This is reading, not running. What is not followed is named in :attr:`Shell.problem`, so that
nobody builds on half an understanding; the commands found until then are still there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from advisor.core.shell_words import (
    BLANK,
    TOO_SLOW,
    ListWord,
    NotFollowedError,
    TooSlowError,
    WordReader,
)

MAX_PROBLEMS = 20
"""A script with more is not read to its end: the daemon has other jobs to answer."""

MAX_COMMANDS = 1000
"""A script with more, those of substitutions included, is not read to its end either."""

MAX_NESTING = 50
"""Compound commands inside one another; nobody writes more by hand."""

_USUAL = re.compile(  # possessive: a word has one reading, and what is none is seen at once
    r"(?:[ \t]|\\\n)*+((?!\d+[<>])(?:[^\s;&|<>()'\"`$\\#]|\$\w++|\$\{\w++\})"
    r"(?:[^\s;&|<>()'\"`$\\]|\$\w++|\$\{\w++\})*+)(?=[\s;&|)])"
)
"""Blanks and a word without quotes and substitutions: most of a script."""
# `<<<` is no here-document but a redirection of one word.
_HERE = re.compile(r"\d*<<(-?)(?!<)")
# The longest first, since an alternative that matches is not tried again. `<(` and `>(` begin a
# word.
_REDIRECT = re.compile(r"\d*(?:<<<|<>|>>|>\||>&|<&|<(?!\()|>(?!\())|&>>?")
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")
_LOOP_HEAD = re.compile(r"\(\((?:[^()]|\([^()]*\))*\)\)")
_TEST = re.compile(r"\[\[\s(?:[^\]\n]|\](?!\]))*\]\]")
_NAME = re.compile(r"[A-Za-z_]\w*")
# Behind these a command begins as if they were not there.
_SKIPPED = frozenset({"then", "do", "else", "elif", "!", "time"})
_POSIX_TIME = re.compile(r"[ \t]+-p(?=[ \t])")
_OPENING = {
    "if": "if",
    "while": "loop",
    "until": "loop",
    "for": "loop",
    "select": "loop",
    "case": "case",
    "{": "{",
}
_HEADS = {"for": "for", "select": "for", "case": "case"}
_CLOSING = {"fi": "if", "done": "loop", "}": "{", "esac": "case"}


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command: its words without quotes, variables and substitutions as written."""

    words: tuple[str, ...]
    loop: bool = False
    """Inside ``for``, ``while`` or ``until``."""
    function: bool = False
    """In the body of a function."""
    substituted: bool = False
    """Inside ``$(...)``, backquotes or ``<(...)``."""
    background: bool = False
    subshell: bool = False
    """In ``(...)``: what it assigns holds there alone."""
    conditional: bool = False
    """It may not run at all: in ``if`` or ``case``, in a loop, behind ``&&`` or ``||``."""
    piped: bool = False
    """It reads what the command before it writes, so both run at once."""


@dataclass(frozen=True, slots=True)
class Shell:
    """What a script holds. ``text`` is all of it but the comments."""

    commands: tuple[ShellCommand, ...] = ()
    functions: frozenset[str] = frozenset()
    loop_variables: frozenset[str] = frozenset()
    """What ``for`` and ``select`` give values to."""
    text: str = ""
    problem: str = ""
    """What could not be followed, "" if all was."""


class _TooLongError(NotFollowedError):
    """The rest of the script is not read."""


@dataclass(slots=True)
class _Frame:
    """An open compound command; ``first`` is the first command of the list it stands in."""

    kind: str
    first: int
    function: bool = False


class _HereDocument(NamedTuple):
    """A here-document whose text is still to come; ``tabs``: those before a line do not count."""

    delimiter: str
    quoted: bool
    tabs: bool


@dataclass(slots=True)
class _Reader(WordReader):
    commands: list[ShellCommand] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    loop_variables: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    first: int = 0
    head: str = ""
    """"for" or "case" while its head is read, "pattern" before a case's ")"."""
    here: list[_HereDocument] = field(default_factory=list)
    body: bool = False
    """The next compound command is a function's body."""
    chained: bool = False
    """``&&`` or ``||`` stands before in the same list."""
    piped: bool = False
    """``|`` stands before."""

    def read(self) -> None:
        source, end = self.source, len(self.source)
        usual, tick = _USUAL.match, self._tick
        while self.at < end:
            tick()
            char = source[self.at]
            if char == "\n":
                self.at += 1
                if self.head or self.here:
                    self._operator("\n")
                else:
                    self._end_list()
            elif char == "#":  # words that hold one were read to their end
                line_end = source.find("\n", self.at)
                self.at = end if line_end < 0 else line_end
            elif (match := usual(source, self.at)) and (word := match[1]) != "[[":
                self.at = match.end()
                if self.words and not self.head:
                    self.texts.append(word)
                    self.words.append(word)
                else:
                    self._take_word(word, bare=True)
            elif match := BLANK.match(source, self.at):
                self.at = match.end()
            elif match := self._take_match(_HERE):
                self._blank()
                # Where the delimiter is quoted (`<<'EOF'`), the shell expands nothing in the
                # document.
                quoted = source[self.at : self.at + 1] in ("'", '"', "\\")
                self.here.append(_HereDocument(self._word() or "", quoted, match[1] == "-"))
            elif match := self._take_match(_REDIRECT):
                self._blank()
                self.texts.append(self._word() or "")
            elif match := self._take_match(_OPERATOR):
                self._operator(match[0])
            else:
                self._add_word()
        if self.here:
            raise NotFollowedError("a here-document has no end")
        self._end_command()
        if self.frames or self.head:
            raise NotFollowedError(
                f"{self.frames[-1].kind if self.frames else self.head} has no end"
            )

    def skip_line(self) -> None:
        """Go on with the next line after what was not followed."""
        self._end_command()
        # What was open is lost with the line; what follows is read as if it stood outside of all.
        self.frames, self.here, self.head, self.body = [], [], "", False
        end = self.source.find("\n", self.at)
        self.at = len(self.source) if end < 0 else end + 1
        self.first = len(self.commands)

    # -- words ---------------------------------------------------------------------------------

    def _add_word(self) -> None:
        source, start = self.source, self.at
        if not self.words and source.startswith("[[", start):
            match = _TEST.match(source, start)
            if match is None:
                raise NotFollowedError("[[ has no end")
            self.at = match.end()
            self.texts.append(match[0])
            self.words.append("[[")
            return
        word = self._word()
        if word is None:
            raise NotFollowedError(f"the character {source[start]!r}")
        self._take_word(word, bare=source.startswith(word, start))

    def _take_word(self, word: str, *, bare: bool) -> None:
        """Put a word where it belongs; ``bare``: it stands there without quotes."""
        self.texts.append(word)
        if self.head:
            self._head_word(word)
        elif bare and not self.words:
            self._first_word(word)
        else:
            self.words.append(word)

    def _substitution(self, text: str) -> None:
        self._check_depth()
        inner = _Reader(text, self.depth + 1, until=self.until)
        inner.read()
        # A substitution runs where it stands, as often as what is around it.
        loop, function, _, _ = self._command_place()
        self.texts += inner.texts
        self.functions |= inner.functions
        self.loop_variables |= inner.loop_variables
        self.commands += [
            replace(c, loop=loop or c.loop, function=function or c.function, substituted=True)
            for c in inner.commands
        ]
        self._check_length()

    def _check_length(self) -> None:
        if len(self.commands) > MAX_COMMANDS:
            raise _TooLongError(f"it has more than {MAX_COMMANDS} commands")

    # -- commands ------------------------------------------------------------------------------

    def _command_place(self) -> tuple[bool, bool, bool, bool]:
        """Return whether what stands here is in a loop, in a function, in (...), and may not run
        at all."""
        loop = function = subshell = False
        conditional = self.chained
        for frame in self.frames:
            loop = loop or frame.kind == "loop"
            function = function or frame.function
            subshell = subshell or frame.kind == "("
            conditional = conditional or frame.kind in ("if", "case", "loop")
        return loop, function, subshell, conditional

    def _open_frame(self, kind: str) -> None:
        self.frames.append(_Frame(kind, self.first, self.body))
        self.body = False
        self.first = len(self.commands)
        if len(self.frames) > MAX_NESTING:
            raise _TooLongError(f"it nests more than {MAX_NESTING} deep")

    def _close_frame(self, kind: str) -> None:
        if not self.frames or self.frames[-1].kind != kind:
            raise NotFollowedError(f"an end of {kind} without its beginning")
        self.first = self.frames.pop().first

    def _first_word(self, word: str) -> None:
        if word in _SKIPPED:
            if word == "time":
                # `-p` is an option of the shell's own `time`, not the command behind it.
                self._take_match(_POSIX_TIME)
            return
        if word in _OPENING:
            self._open_frame(_OPENING[word])
            self.head = _HEADS.get(word, "")
            if self.head == "for":
                self._blank()
                if name := _NAME.match(self.source, self.at):
                    self.loop_variables.add(name[0])
                # `for ((i=0; i<4; i++))`: its semicolons end no command.
                if match := self._take_match(_LOOP_HEAD):
                    self.texts.append(match[0])
        elif word in _CLOSING:
            self._close_frame(_CLOSING[word])
        elif word == "function":
            self.head = "function"
        else:
            self.words.append(word)

    def _head_word(self, word: str) -> None:
        if self.head == "function":
            self.functions.add(word)
            self.head, self.body = "", True
            self._blank()
            if self.source.startswith("()", self.at):
                self.at += 2
        elif self.head == "case" and word == "in":
            self.head = "pattern"
        elif self.head == "for" and word == "do":
            self.head = ""
        elif self.head == "pattern" and word == "esac":
            self.head = ""
            self._close_frame("case")

    def _operator(self, operator: str) -> None:
        if operator == "\n" and self.here:
            self._here_documents()
        if self.head == "pattern":
            if operator == ")":
                self.head = ""
        elif self.head:
            if operator not in ("\n", ";"):
                raise NotFollowedError(f"{self.head} with {operator}")
        elif operator == "(":
            self._parenthesis()
        elif operator == ")":
            self._end_command()
            self._close_frame("(")
        else:
            self._end_command()
            if operator.startswith(";;") or operator == ";&":
                if not self.frames or self.frames[-1].kind != "case":
                    raise NotFollowedError(f"{operator} outside of case")
                self.head = "pattern"
            # Of `a && b &` all of the list runs beside what follows.
            if operator == "&":
                for i in range(self.first, len(self.commands)):
                    if not self.commands[i].background:
                        self.commands[i] = replace(self.commands[i], background=True)
            self.piped = operator in ("|", "|&")
            # A pipe binds closer than && and ||: what it leads to may not run at all, either.
            self.chained = operator in ("&&", "||") or (self.chained and operator == "|")
            if operator in ("\n", ";", "&", ";;", ";&", ";;&"):
                self.first = len(self.commands)

    def _end_list(self) -> None:
        """Do what an end of a line does, where no here-document and no head is open."""
        if self.words:
            self._end_command()
        self.chained, self.first = False, len(self.commands)

    def _parenthesis(self) -> None:
        """Read what follows a "(": a function's name stands before it, or a subshell begins."""
        if not self.words and (match := _LOOP_HEAD.match(self.source, self.at - 1)):
            self.at = match.end()
            self.texts.append(match[0])
            self.words.append("((")
            return
        if not self.words:
            self._open_frame("(")
            return
        self._blank()
        name = self.words[-1]
        if name.endswith("=") and self.source.find(")", self.at) >= 0:  # a list of values
            values: list[str] = []
            while not self.source.startswith(")", self.at):
                self._tick()
                if match := re.compile(r"\s+|#[^\n]*").match(self.source, self.at):
                    self.at = match.end()
                else:
                    value = self._word()
                    if value is None:
                        raise NotFollowedError(f"what {name}( begins")
                    self.texts.append(value)
                    values.append(value)
            self.at += 1
            self.words[-1] = listed = ListWord(name)
            listed.items = tuple(values)
            return
        if not (len(self.words) == 1 and self.source.startswith(")", self.at)):
            raise NotFollowedError(f"a ( behind {name}")
        self.at += 1
        self.functions.add(name)
        self.words = []
        self.body = True

    def _end_command(self) -> None:
        """Keep the simple command that has ended."""
        if not self.words:
            return
        loop, function, subshell, conditional = self._command_place()
        self.commands.append(
            ShellCommand(
                tuple(self.words),
                loop,
                function,
                subshell=subshell,
                conditional=conditional,
                piped=self.piped,
            )
        )
        self.words, self.piped = [], False
        self._check_length()

    def _here_documents(self) -> None:
        for document in self.here:
            body: list[str] = []
            while True:
                self._tick()
                if self.at >= len(self.source):
                    raise NotFollowedError("a here-document has no end")
                end = self.source.find("\n", self.at)
                end = len(self.source) if end < 0 else end
                line = self.source[self.at : end]
                self.at = end + 1
                # Nothing but the tabs of `<<-` is taken off: an indented EOF ends no `<<EOF`.
                if (line.lstrip("\t") if document.tabs else line) == document.delimiter:
                    break
                body.append(line)
            text = "\n".join(body)
            self.texts.append(text)
            # The shell expands such a text like one in double quotes, and so runs what it holds.
            if not document.quoted and ("$(" in text or "`" in text):
                raise NotFollowedError("a here-document runs commands")
        self.here = []
        self.at = min(self.at, len(self.source))


def read_shell(script: str, until: float = math.inf) -> Shell:
    """Return the commands of a script; never raises.

    Where reading lasts ``until`` then, by the thread's own clock, there are none at all.
    """
    reader = _Reader(script, until=until)
    problem, problems = "", 0
    while True:
        try:
            reader.read()
            break
        except TooSlowError:
            return Shell(problem=TOO_SLOW)
        except NotFollowedError as error:
            problem = problem or str(error)
            problems += 1
            if problems == MAX_PROBLEMS or isinstance(error, _TooLongError):
                break
            reader.skip_line()
    return Shell(
        tuple(reader.commands),
        frozenset(reader.functions),
        frozenset(reader.loop_variables),
        "\n".join(reader.texts),
        problem,
    )
