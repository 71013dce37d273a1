"""Patterns that most texts have no sign of."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signs:
    """A pattern, and texts of which each of its matches holds one.

    A text is looked through for these first: that is many times faster than the pattern, and in
    most scripts there is none.
    """

    pattern: re.Pattern[str]
    parts: tuple[str, ...]

    def search(self, text: str) -> re.Match[str] | None:
        """Return the pattern's first match in a text, None without one."""
        for part in self.parts:
            if part in text:
                return self.pattern.search(text)
        return None
