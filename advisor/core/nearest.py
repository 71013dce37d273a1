"""What a misspelt name probably means, among the names there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN = 8
"""So many of the names there are get listed at most."""


def nearest(word: str, valid_names: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names closest to a misspelt one, best first; case and ``-_`` are equal."""
    by_folded = {_fold(name): name for name in sorted(valid_names)}
    return [by_folded[f] for f in get_close_matches(_fold(word), by_folded, most, 0.6)]


def suggestion(word: str, valid_names: Iterable[str]) -> str:
    """Return ``did you mean X?``, else what is known, for the hint of an error."""
    names = sorted(valid_names)
    if not names:
        return "there are none yet"
    if close := nearest(word, names):
        return f"did you mean {close[0]}?"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"known: {', '.join(names[:_SHOWN])}{more}"


def _fold(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")
