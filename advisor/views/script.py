"""A job script as it would be with what the advisor writes: its lines, and the difference."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from advisor.schedulers.translators import translator


def rewritten(
    lines: Sequence[str], rewrite: Mapping[str, str], scheduler: str = "slurm"
) -> list[str]:
    """Return a script's lines with the rewritten options as ``#SBATCH`` or ``#PBS`` lines.

    Lines that hold nothing else are replaced; one that also holds other options is overruled by
    the line behind it. What follows the first command is no directive and stays as it is.
    """
    language = translator(scheduler)
    kept = []
    last = 0
    heading = True
    for line in lines:
        if line.strip() and not line.startswith("#"):
            heading = False
        directive = heading and line.startswith(language.DIRECTIVE)
        names = language.read_directives(line) if directive else {}
        if names and set(names) <= set(rewrite):
            continue
        kept.append(line)
        if directive or (heading and line.startswith("#!")):
            last = len(kept)
    return [*kept[:last], *directives(rewrite, scheduler), *kept[last:]]


def directives(rewrite: Mapping[str, str], scheduler: str = "slurm") -> list[str]:
    """Return the rewritten options as the lines they would be in a script."""
    language = translator(scheduler)
    return [" ".join((language.DIRECTIVE, *words)) for words in language.written(rewrite)]


def diff(old: Sequence[str], new: Sequence[str], name: str, new_name: str) -> list[str]:
    """Return the difference of two versions of a script in unified form."""
    return list(difflib.unified_diff(old, new, name, new_name, lineterm="", n=1))
