"""A job script as it would be with what the advisor writes: its lines, and the difference."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from advisor.schedulers.translators import translator


def rewritten(
    lines: Sequence[str],
    rewrite: Mapping[str, str],
    scheduler: str,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return a script's lines with the rewritten options as ``#SBATCH`` or ``#PBS`` lines.

    Lines that hold nothing else are replaced; one that also holds other options keeps those. What
    follows the first command is no directive and stays as it is. ``environment`` holds variables
    the job needs with these options; the script sets them itself then, from the scheduler where it
    can. What is added are the lines of :func:`lines_of`.
    """
    language = translator(scheduler)
    remaining: list[str] = []
    last = 0
    heading = True
    for line in lines:
        if line.strip() and not line.startswith("#"):
            heading = False
        directive = heading and line.startswith(language.DIRECTIVE)
        if directive and language.read_directives(line).keys() & rewrite.keys():
            kept_line = language.without(line, rewrite.keys())
            remaining += [kept_line] if kept_line else []
            last = len(remaining) if kept_line else last
            continue
        remaining.append(line)
        if directive or (heading and line.startswith("#!")):
            last = len(remaining)
    exports = _exports(rewrite, scheduler, environment or {})
    if exports:
        exports.insert(0, "")
        if not (last < len(remaining) and not remaining[last].strip()):
            exports.append("")
    return [*remaining[:last], *directives(rewrite, scheduler), *exports, *remaining[last:]]


def _exports(
    rewrite: Mapping[str, str], scheduler: str, environment: Mapping[str, str]
) -> list[str]:
    """Return the lines that set variables, from the scheduler's own where those are the same.

    A script that sets or reads one of them keeps its threads, so it never has two such lines.
    """
    follows = translator(scheduler).FOLLOWS
    variable_by_value = {
        rewrite[option]: f"${name}" for option, name in follows.items() if option in rewrite
    }
    return [
        f"export {name}={variable_by_value.get(value, value)}"
        for name, value in environment.items()
    ]


def directives(rewrite: Mapping[str, str], scheduler: str) -> list[str]:
    """Return the rewritten options as the lines they would be in a script."""
    language = translator(scheduler)
    return [" ".join((language.DIRECTIVE, *words)) for words in language.written(rewrite)]


def lines_of(
    rewrite: Mapping[str, str], environment: Mapping[str, str], scheduler: str
) -> tuple[str, ...]:
    """Return options and variables as the lines that :func:`rewritten` adds to a script."""
    return (*directives(rewrite, scheduler), *_exports(rewrite, scheduler, environment))


def diff(old: Sequence[str], new: Sequence[str], name: str, new_name: str) -> list[str]:
    """Return the difference of two versions of a script in unified form."""
    return list(difflib.unified_diff(old, new, name, new_name, lineterm="", n=1))
