"""How wide a text is in a terminal, so that tables stay aligned. Standard library only."""

from __future__ import annotations

import unicodedata


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for each wide character (East Asian,
    emoji), none for marks that are put over another, as wcwidth counts."""
    if text.isascii():
        return len(text)
    columns = 0
    last = 0
    for character in text:
        if character == "\ufe0f" and last == 1:  # shown as an emoji: wide
            columns += 1
        last = _columns(character)
        columns += last
    return columns


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Return a text with blanks before or behind it, so that it takes so many columns."""
    blanks = " " * (columns - columns_of(text))
    return blanks + text if right else text + blanks
