"""Keep the log readable: few lines for the same wrong thing, one field for each value."""

from __future__ import annotations

import logging
import time

_LINES = 10
"""Lines of one kind that are written in each period."""
_PERIOD_S = 60.0
"""Seconds of a period."""
_MOST = 10_000
"""Kinds of lines that are counted at once."""


class Quiet(logging.Filter):
    """Lets ten warnings of a kind through in a minute, for each user; says how many it held back.

    A kind is the text of a line before its values are put in; the user is its first value where
    that is a number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is written."""
        if record.levelno < logging.WARNING:
            return True
        values = record.args if isinstance(record.args, tuple) else ()
        user = values[0] if values and isinstance(values[0], int) else None
        key, now = (record.msg, user), time.monotonic()
        since, count = self._seen.pop(key, (now, 0))
        if now - since >= _PERIOD_S:
            if count > _LINES:
                record.msg = f"{record.msg} held_back={count - _LINES}"
            since, count = now, 0
        if len(self._seen) >= _MOST:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = since, count + 1
        return count < _LINES


def quote(text: str) -> str:
    """Return text as one log field: quoted when needed, control characters escaped."""
    if text and all(c.isprintable() and c not in ' "=' for c in text):
        return text
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'
