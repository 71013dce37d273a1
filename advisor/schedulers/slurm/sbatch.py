"""sbatch's options: read from command lines, ``#SBATCH`` lines and the environment, and written.

By the records of :mod:`~advisor.schedulers.slurm.table`; tests/slurm/test_option_lines.py asks
sbatch itself. Standard library only: the daemon uses it.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from advisor.schedulers.slurm import table as slurm_table

SUBMIT = "sbatch"
PBS_LINES = "pbs-lines"
"""Stands for what of ``#PBS`` lines is not read here; no option: such a job is left alone."""
_BLANK = " \t\n\v\f\r"
_COMPONENT = re.compile(r"\s*(het|pack)job(?!\S)", re.IGNORECASE | re.ASCII)
_COMMAND_LINE_ALONE = frozenset({"help", "quiet", "usage", "verbose", "version", "wrap"})
"""Options that sbatch looks at before it reads the script, and nowhere else."""
_PBS_LETTERS = {
    "a": "begin",
    "A": "account",
    "e": "error",
    "J": "array",
    "M": "mail-user",
    "N": "job-name",
    "o": "output",
    "p": "nice",
    "q": "partition",
    "t": "array",
    "v": "export",
}
_PBS_VALUED, _PBS_FLAGS = frozenset("aAcCejJklmMNopqrStuvW"), frozenset("hIVz")
_PBS_MAIL = {"a": "FAIL", "b": "BEGIN", "e": "END", "n": "NONE"}
_PBS_LIMITS = {"walltime": "time", "cput": "time", "pcput": "time", "mem": "mem", "file": "tmp"}
_PBS_NODES = re.compile(r"(\d+)(?::ppn=(\d+))?(?![^,])")


def read_directives(script: str, given: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the options of a script's lines (those before the first command), as sbatch does.

    ``#SBATCH`` lines, of the first component of a heterogeneous job; then, unless these or
    ``given`` say ``--ignore-pbs``, ``#PBS`` lines wherever they stand.
    """
    words: list[str] = []
    # Not splitlines, which also breaks at \f and \v: for sbatch these are blanks within a line.
    lines = script.split("\n")
    for line in lines:
        if line.startswith("#SBATCH"):
            text = line.removeprefix("#SBATCH")
            if _COMPONENT.match(text):
                break
            words += split_directive(text)
        elif (stripped := line.strip(_BLANK)) and not stripped.startswith("#"):
            break
    options = {k: v for k, v in read_arguments(words).items() if k not in _COMMAND_LINE_ALONE}
    if "\n#PBS" in script and "ignore-pbs" not in {*options, *given}:
        options |= _read_pbs(
            w
            for line in lines
            if line.startswith("#PBS")
            for w in split_directive(line.removeprefix("#PBS"))
        )
    return options


def split_directive(text: str) -> list[str]:
    """Return the words of a line behind ``#SBATCH``.

    Quotes group, a backslash takes the next character as it is, and a ``#`` ends the line even
    inside of a word. As in sbatch a word of nothing but quotes ends it, too.
    """
    words, position = [], 0
    while position < len(text):
        while text[position : position + 1] and text[position] in _BLANK:
            position += 1
        word, position = _directive_word(text, position)
        if not word:
            break
        words.append(word)
    return words


def _directive_word(text: str, position: int) -> tuple[str, int]:
    word, quote, escaped = "", "", False
    while position < len(text) and (quote or text[position] not in _BLANK):
        character = text[position]
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = text[position + 1 : position + 2] != " "
            word, position = (word, position + 1) if escaped else (word + " ", position + 2)
            continue
        elif quote:
            if character == quote:
                quote, position = "", position + 1
                continue
        elif character in "\"'":
            quote, position = character, position + 1
            continue
        elif character == "#":
            break
        word, position = word + character, position + 1
    return word, position


def _read_pbs(words: Iterable[str]) -> dict[str, str]:
    """Return what sbatch makes of the words of ``#PBS`` lines; the rest it leaves out."""
    options: dict[str, str] = {}
    queue = deque(words)
    while queue and queue[0].startswith("-") and queue[0] not in ("-", "--"):
        letters = queue.popleft()[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _PBS_FLAGS:
                options |= {"hold": ""} if letter == "h" else {}
                continue
            if letter not in _PBS_VALUED:
                break
            value = letters or (queue.popleft() if queue else "")
            letters = ""
            if letter in _PBS_LETTERS:
                options[_PBS_LETTERS[letter]] = value
            elif letter == "m":
                options["mail-type"] = ",".join(_PBS_MAIL[w] for w in value if w in _PBS_MAIL)
            elif letter == "l":
                options |= _pbs_limits(value)
            elif letter == "W" and value.lower().startswith("depend="):
                options["dependency"] = value[7:]
    return options


def _pbs_limits(text: str) -> dict[str, str]:
    options = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name in _PBS_LIMITS:
            sized = name in ("mem", "file") and value[-1:] in ("b", "B")
            options[_PBS_LIMITS[name]] = value[:-1] if sized else value
        elif name == "nodes" and (match := _PBS_NODES.fullmatch(value)):
            options["nodes"] = match[1]
            if match[2]:
                options["ntasks"] = str(int(match[1]) * int(match[2]))
        elif name in ("nodes", "select", "ncpus", "mpiprocs", "proc"):
            options[PBS_LINES] = part  # sbatch reads more of it than is read here
    return options


def read_arguments(words: Iterable[str]) -> dict[str, str]:
    """Return sbatch's command-line options by long name; stops at the first non-option.

    Names are completed and letters taken apart as sbatch does; an option that is in no table keeps
    the name that is typed.
    """
    options: dict[str, str] = {}
    queue = deque(words)
    while queue and queue[0].startswith("-") and queue[0] not in ("-", "--"):
        word = queue.popleft()
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = slurm_table.option_of(name, SUBMIT)
            if option is not None:
                name = option.name
                if not equals and option.value == "required" and queue:
                    value = queue.popleft()
            _put_last(options, slurm_table.SAME.get(name, name), value)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            option, value = slurm_table.letter_of(letter, SUBMIT), ""
            if option is not None and option.value != "no":
                value, letters = letters, ""
                if not value and option.value == "required" and queue:
                    value = queue.popleft()
            _put_last(options, option.name if option is not None else letter, value)
    return options


def _put_last(options: dict[str, str], name: str, value: str) -> None:
    """Set an option behind all others: of two that exclude each other the last counts."""
    options.pop(name, None)
    options[name] = value


def environment_options() -> dict[str, str]:
    """Return the options that sbatch takes from its environment; they win over the script's."""
    return {
        slurm_table.SETS[k]: v
        for k, v in os.environ.items()
        if k.startswith("SBATCH_") and k in slurm_table.SETS
    }


def written(options: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return options as they are typed, one word each: ``--cpus-per-task=16``, ``--overcommit``."""
    return [
        (f"--{name}" if name in _BARE and (not value or name in _NEVER) else f"--{name}={value}",)
        for name, value in options.items()
    ]


_OF_SBATCH = [option for option in slurm_table.RECORDS if SUBMIT in option.programs]
_BARE = frozenset(option.name for option in _OF_SBATCH if option.value != "required")
_NEVER = frozenset(option.name for option in _OF_SBATCH if option.value == "no")
