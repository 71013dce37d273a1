"""What a job is: a digest of its commands, without what differs from one of its runs to the next.

Two submissions of one script have one identity although input files, paths, numbers, seeds, dates
and job ids in it differ; another program, another order of programs or another option word makes
another job. The outcomes of jobs are found by it (:mod:`advisor.core.job_history`). It is a digest:
what a script says cannot be read from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from advisor.core.remembered import Remembered
from advisor.core.request import JobRequest
from advisor.core.script import Command, read
from advisor.core.script_use import MAX_SCRIPT
from advisor.core.shell_words import TOO_SLOW

DIGEST_BYTES = 12
"""Of an identity: that two of a million jobs share one by chance is less likely than 1 in 10^16."""
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[-+]?\d+(?:[.:_\-/]\d+)*(?:[eEdD][-+]?\d+)?")
"""Numbers, dates, times, ranges and versions."""
_LONG_NUMBER = re.compile(r"\d{4,}")
"""In a program's name only what no version is: a date, a job's id."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"\$\{[^}]*\}|\$\w+")
_PROGRAM_FILE = re.compile(r"\.(?:py|pl|rb|jl|R|r|m|sh|bash|jar|js|exe|x|out|bin|sif|simg)$")
"""How files of programs end, which name what runs; others are its input."""
_SEPARATORS = re.compile(r"[;|&()\n]+")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n")
_NAMED = re.compile(r"--?[A-Za-z][\w-]*=?|[A-Za-z_]\w*=")
"""An option, or what a value is given to."""
_LOOKED_AT = 8192
"""Characters of a script that is not followed in which numbers are taken out; the rest counts as it
is written. Some ms on a bad day."""
_LONGEST_WORD = 200
"""Characters of a word that count: no hostile one takes long."""

_IDENTITIES: Remembered[str] = Remembered(8 << 20)


def job_identity(request: JobRequest) -> str:
    """Return the identity of a job as 24 hex digits, "" for one whose commands are not known whole.

    Besides the commands count its name without numbers, its user and account, and how many nodes,
    tasks and cores it asks for: its history is of jobs of one size.
    """
    script = request.script
    if script is not None and (request.script_truncated or len(script) > MAX_SCRIPT):
        return ""
    key = (
        script,
        request.command if request.kind == "run" else request.command[1:],
        (request.user, request.account, request.job_name),
        (request.nodes, request.ntasks, request.ntasks_per_node, request.cpus_per_task),
    )
    identity = _IDENTITIES.get(key)
    if identity is None:
        lines = _lines(script, key[1]) if script is not None else [" ".join(_of_words(key[1]))]
        if lines is None:
            return ""
        identity = _digest([*lines, repr((_NUMBER.sub("#", request.job_name), key[2][:2], key[3]))])
        identity = identity if any(lines) else ""
        _IDENTITIES.put(key, identity, 512 + 2 * len(script or ""))
    return identity


def _digest(lines: Sequence[str]) -> str:
    text = "\n".join(lines).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def _lines(script: str, arguments: tuple[str, ...]) -> list[str] | None:
    """Return the commands of a script, one a line; all its words where reading does not follow.

    None where reading took too long, which is another answer on another day.
    """
    reading = read(script, arguments)
    if reading.shell.problem == TOO_SLOW:
        return None
    if reading.commands and not (reading.shell.problem or reading.unresolved or reading.renamed):
        return [" ".join(_of_command(command)) for command in reading.commands]
    text = _CONTINUED.sub(" ", _COMMENT.sub("", script))
    parts = [p for part in _SEPARATORS.split(text[:_LOOKED_AT]) if (p := part.split())]
    lines = [" ".join(_of_words(words)) for words in (*parts, ("", *arguments))]
    return [*lines, text[_LOOKED_AT:]] if parts else []


def _of_command(command: Command) -> Iterator[str]:
    place = command.place
    yield f"{place.loop:d}{place.function:d}{place.background:d}"
    yield command.launcher
    yield from _distinct_in_turn((*command.launcher_options, *command.wrappers))
    yield _program(command.executable)
    yield from _distinct_in_turn(command.arguments)


def _of_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command: the first one that is no assignment names its program."""
    start = next((i for i, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    yield from _distinct_in_turn(words[:start])
    yield from map(_program, words[start : start + 1])
    yield from _distinct_in_turn(words[start + 1 :])


def _distinct_in_turn(words: Iterable[str]) -> Iterator[str]:
    """Yield arguments as they count, several alike once: so many numbers, files of one kind."""
    previous = None
    for word in map(_argument, words):
        if word != previous:
            yield word
        previous = word


def _program(word: str) -> str:
    return _LONG_NUMBER.sub("#", word.rsplit("/", 1)[-1][:_LONGEST_WORD])


def _argument(word: str) -> str:
    """Return an argument without numbers; of a path its last part, of an input file the ending."""
    word = word[:_LONGEST_WORD]
    named = _NAMED.match(word)
    name, value = (named[0], word[named.end() :]) if named else ("", word)
    value = _VARIABLE.sub("$", value).strip("\"'")
    file = value.rsplit("/", 1)[-1]
    if _PROGRAM_FILE.search(file) or "." not in file[1:]:  # a program's file may have no ending
        value = file
    else:
        value = "." + file.rpartition(".")[2]
    return _NUMBER.sub("#", name + value)
