"""What is wrong in a file: where, what, what is allowed, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from advisor.core.codec import JsonForm, wire
from advisor.core.nearest import nearest

Path = tuple[str | int, ...]
"""Place in a document: ``("rules", 1, "match", "partition")``."""


@dataclass(frozen=True, slots=True)
class Problem(JsonForm):
    """One mistake in a file. ``line`` is 1-based, 0 when it concerns the file as a whole.

    ``key`` is the path as people write it, ``rules[1].match.partition``; ``allowed`` lists what
    may stand there; a ``warning`` does not stop the file from being applied.
    """

    JSON = ("path", "line", "key", "level", "message", "hint", "allowed")

    path: str = field(metadata=wire("file"))
    line: int
    key: str
    message: str
    hint: str = ""
    allowed: tuple[str, ...] = ()
    warning: bool = False

    @property
    def level(self) -> str:
        """``warning`` or ``error``."""
        return "warning" if self.warning else "error"

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        text = f"{where}: {'warning: ' if self.warning else ''}"
        text += f"{self.key}: {self.message}" if self.key else self.message
        notes = [self.hint] if self.hint else []
        if self.allowed:
            notes.append(f"allowed: {', '.join(self.allowed)}")
        return f"{text} ({'; '.join(notes)})" if notes else text


def key_text(path: Sequence[str | int]) -> str:
    """Return a path as people write it, ``rules[1].match.partition``, in one printable line."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if part.isprintable() else part.encode("unicode_escape").decode()
            text += f".{shown}" if text else shown
    return text


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return "did you mean ...?" for the allowed word nearest to a misspelt one, else ""."""
    close = nearest(word, allowed)
    return f"did you mean {close[0]!r}?" if close else ""
