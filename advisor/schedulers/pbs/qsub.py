"""qsub's options: read from command lines, ``#PBS`` lines and hooks, and written as typed.

By the records of :mod:`~advisor.schedulers.pbs.table`. Resources (``-l``) go by their own name,
what else there is by a long name of ours. Standard library only: the daemon uses it.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from advisor.schedulers.pbs.table import BY_LETTER, OPTIONS

_RESOURCES = re.compile(r"""(\s-l\s*)((?:"[^"]*"|'[^']*'|[^\s"'])+)""")
"""An option ``-l`` with its words, as it stands in a line."""
_ARGUMENT = re.compile(r"<jsdl-hpcpa:Argument>(.*?)</jsdl-hpcpa:Argument>", re.DOTALL)


def decode_arguments(text: str) -> list[str]:
    """Return the words of ``Submit_arguments`` or ``argument_list`` as a hook sees them (JSDL)."""
    return [html.unescape(word) for word in _ARGUMENT.findall(text)]


def split_words(words: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return qsub's options, and the words that follow them: a script, or ``--`` and a command.

    Unknown options are skipped; of what is given twice the last counts, as for qsub.
    """
    options: dict[str, str] = {}
    queue = list(words)
    while queue:
        word = queue[0]
        if word == "--" or not word.startswith("-") or word == "-":
            break
        del queue[0]
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            option = BY_LETTER.get(letter)
            if option and not option.has_value:
                options[option.name] = ""
                continue
            if option or letter == "l":
                value = letters or (queue.pop(0) if queue else "")
                options.update({option.name: value} if option else read_resources(value))
            break
    return options, queue


def read_resources(text: str) -> dict[str, str]:
    """Return the resources of one ``-l``: ``select=2:ncpus=4,walltime=1:00:00``."""
    resources = {}
    for part in split_quoted(text):
        name, equals, value = part.strip().partition("=")
        if name:
            resources[name] = value.strip("\"'") if equals else ""
    return resources


def split_quoted(text: str) -> list[str]:
    """Split at commas outside quotes."""
    parts, quote = [""], ""
    for character in text:
        if character == "," and not quote:
            parts.append("")
            continue
        if character in "\"'":
            quote = "" if quote == character else quote or character
        parts[-1] += character
    return parts


def directive_words(script: str, prefix: str = "#PBS") -> list[list[str]]:
    """Return the words of each line of options before a script's first command, as qsub does.

    Lines begin with ``prefix``, blanks before it do not count; "" is none at all. One that ends in
    a backslash goes on in the next.
    """
    directives: list[list[str]] = []
    lines = iter(script.split("\n") if prefix else ())
    for line in lines:
        text = line.lstrip()
        if text.startswith(prefix):
            while text.rstrip().endswith("\\"):
                text = text.rstrip()[:-1] + next(lines, "")
            directives.append(directive_split(text.removeprefix(prefix)))
        # A line that begins with a colon is no command to qsub, either.
        elif text and not text.startswith("#") and not line.startswith(":"):
            break
    return directives


def directive_split(text: str) -> list[str]:
    """Return the words of a line of options: quotes group, a backslash takes the next character
    as it is; a ``#`` is a character like any other. qsub refuses a quote without an end."""
    words: list[str] = []
    word: str | None = None
    quote, position = "", 0
    while position < len(text):
        character, position = text[position], position + 1
        if quote:
            quote, word = (
                ("", word or "") if character == quote else (quote, (word or "") + character)
            )
        elif character in "\"'":
            quote, word = character, word or ""
        elif character == "\\" and position < len(text):
            word, position = (word or "") + text[position], position + 1
        elif character.isspace():
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    if quote:
        return text.split()
    return words if word is None else [*words, word]


def read_directives(
    script: str, command_options: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the options of a script's ``#PBS`` lines.

    What they begin with ``-C`` of the command line (``command_options``) says, else PBS_DPREFIX. As
    for qsub, of a resource that several lines ask for the first counts, of all else the last.
    """
    options: dict[str, str] = {}
    prefix = command_options.get("prefix", os.environ.get("PBS_DPREFIX", "#PBS"))
    for words in directive_words(script, prefix):
        line_options = split_words(words)[0]
        options.update({n: v for n, v in line_options.items() if n in OPTIONS or n not in options})
    return options


def without(line: str, names: Collection[str]) -> str:
    """Return a ``#PBS`` line without some of its resources and options; "" for nothing left.

    They have to go: what a line below asks for again does not count.
    """
    if not read_directives(line).keys() - set(names):
        return ""

    def rest(match: re.Match[str]) -> str:
        words = match[2]
        quote = words[0] if words[0] in "\"'" and words.find(words[0], 1) == len(words) - 1 else ""
        parts = split_quoted(words.strip(quote) if quote else words)
        remaining_parts = [p for p in parts if p.strip().partition("=")[0] not in names]
        if len(remaining_parts) == len(parts):
            return match[0]
        return f"{match[1]}{quote}{','.join(remaining_parts)}{quote}" if remaining_parts else ""

    return _RESOURCES.sub(rest, line).rstrip()


def read_arguments(words: Iterable[str]) -> dict[str, str]:
    """Return qsub's command-line options by name; stops at the first word that is none."""
    return split_words(words)[0]


def default_variables(server: Mapping[str, object]) -> str:
    """Return the ``-v`` that a server gives every job which has none, "" where it has none.

    ``server``: its attributes. Raises ValueError for default_qsub_arguments that hold words which
    are no options, or ``-C``, which changes what counts as a line of options.
    """
    options, rest = split_words(directive_split(str(server.get("default_qsub_arguments") or "")))
    if rest or "prefix" in options:
        raise ValueError("the server's default_qsub_arguments are not understood")
    return options.get("variables", "")


def environment_options() -> dict[str, str]:
    """Return nothing: qsub takes no options from its environment."""
    return {}


def written(options: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return options as they are typed: ``-l select=1:ncpus=16``. A resource without value is
    one that is taken out: it is left out here, too."""
    words: list[tuple[str, ...]] = []
    for name, value in options.items():
        if option := OPTIONS.get(name):
            words.append((f"-{option.letter}", *([value] if option.has_value else [])))
        elif value:
            words.append(("-l", f"{name}={value}"))
    return words


def attributes_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that qsub's options set, ``-W`` included, by PBS's names."""
    attributes = {
        option.attribute: value or "u"
        for name, value in options.items()
        if (option := OPTIONS.get(name)) and option.attribute
    }
    name = ""
    for part in split_quoted(options.get("additional", "")):
        word, equals, value = part.strip().partition("=")
        if equals and ":" not in word and "@" not in word:
            name = word
            attributes[name] = value
        elif name:  # one of several values: stagein=a@h:b,c@h:d
            attributes[name] += "," + part
        elif word:
            attributes[word] = ""
    return attributes


def resources_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return what of a job's options are resources."""
    return {name: value for name, value in options.items() if name not in OPTIONS}


def script_of(rest: Sequence[str], folder: str) -> str:
    """Return the script's path among the words after the options, "" when it came by stdin."""
    if not rest or rest[0] in ("--", "-"):
        return ""
    return rest[0] if rest[0].startswith("/") or not folder else f"{folder}/{rest[0]}"
