"""A job script as it would be with what the advisor writes: its lines, and the difference."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from advisor.schedulers.slurm_options import read_directives


def rewritten(lines: Sequence[str], rewrite: Mapping[str, object]) -> list[str]:
    """Return a script's lines with the rewritten options as ``#SBATCH`` lines."""
    kept = []
    last = 0
    for line in lines:
        names = read_directives(line) if line.startswith("#SBATCH") else {}
        if names and set(names) <= set(rewrite):
            continue
        kept.append(line)
        if line.startswith(("#!", "#SBATCH")):
            last = len(kept)
    return [*kept[:last], *directives(rewrite), *kept[last:]]


def directives(rewrite: Mapping[str, object]) -> list[str]:
    """Return the rewritten options as the lines they would be in a script."""
    return [f"#SBATCH --{k}={v}" for k, v in rewrite.items()]


def diff(old: Sequence[str], new: Sequence[str], name: str) -> list[str]:
    """Return the difference of two versions of a script in unified form."""
    return list(difflib.unified_diff(old, new, name, f"{name} (as run)", lineterm="", n=1))
