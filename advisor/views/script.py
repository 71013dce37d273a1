"""A job script as it would be with what the advisor writes: its lines, and the difference."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from advisor.core.script import threads_of
from advisor.schedulers.translators import translator


def rewritten(
    lines: Sequence[str],
    rewrite: Mapping[str, str],
    scheduler: str,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return a script's lines with the rewritten options as ``#SBATCH`` or ``#PBS`` lines.

    Lines that hold nothing else are replaced; one that also holds other options is overruled by
    the line behind it. What follows the first command is no directive and stays as it is.
    ``environment`` holds variables the job needs with these options; the script sets them itself
    then, from the scheduler where it can.
    """
    language = translator(scheduler)
    remaining = []
    last = 0
    heading = True
    for line in lines:
        if line.strip() and not line.startswith("#"):
            heading = False
        directive = heading and line.startswith(language.DIRECTIVE)
        names = language.read_directives(line) if directive else {}
        if names and set(names) <= set(rewrite):
            continue
        remaining.append(line)
        if directive or (heading and line.startswith("#!")):
            last = len(remaining)
    added = directives(rewrite, scheduler)
    exports = _exports(remaining, rewrite, scheduler, environment or {})
    if exports and not (last < len(remaining) and not remaining[last].strip()):
        exports.append("")
    return [*remaining[:last], *added, *(["", *exports] if exports else []), *remaining[last:]]


def _exports(
    lines: Sequence[str],
    rewrite: Mapping[str, str],
    scheduler: str,
    environment: Mapping[str, str],
) -> list[str]:
    """Return the lines that set what the script does not yet take from the scheduler."""
    follows = "cpus-per-task" in rewrite and threads_of("\n".join(lines)).from_scheduler
    wanted = []
    for name, value in environment.items():
        if any(name in line for line in lines) or (follows and name == "OMP_NUM_THREADS"):
            continue
        for option, variable in translator(scheduler).FOLLOWS.items():
            if rewrite.get(option) == value:
                value = f"${variable}"
        wanted.append(f"export {name}={value}")
    return wanted


def directives(rewrite: Mapping[str, str], scheduler: str) -> list[str]:
    """Return the rewritten options as the lines they would be in a script."""
    language = translator(scheduler)
    return [" ".join((language.DIRECTIVE, *words)) for words in language.written(rewrite)]


def lines_of(
    rewrite: Mapping[str, str], environment: Mapping[str, str], scheduler: str
) -> tuple[str, ...]:
    """Return options and variables as the lines they would be in a script."""
    exports = [f"export {name}={value}" for name, value in environment.items()]
    return (*directives(rewrite, scheduler), *exports)


def diff(old: Sequence[str], new: Sequence[str], name: str, new_name: str) -> list[str]:
    """Return the difference of two versions of a script in unified form."""
    return list(difflib.unified_diff(old, new, name, new_name, lineterm="", n=1))
